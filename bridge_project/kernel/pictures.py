"""Take pictures out of what agents send: name and collect them (D70). Pure.

A picture in base64 is hundreds of kilobytes of letters that nobody can read, on each phone. The
functions append pictures that are to be kept to ``taken``, where they are given it: image blocks
and data URLs, that are pictures by their bytes. Any other run of base64 is only named.
"""

import base64
import re
import string
from collections.abc import Mapping
from typing import Any, Final

from bridge_project.kernel.limits import ATTACHMENT_BYTES, PICTURE_TEXT_CHARS
from bridge_project.kernel.picture_files import Picture, picture_of

_MEDIA: Final = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
_SIGNS: Final = (*_MEDIA, r"\/9j", ";base64,")  # cheap to find: no picture has none of them
_MAGIC: Final = r"iVBORw0KGgo|\\?/9j\\?/|R0lGOD[dl]h|UklGR[\w+/-]{6}XRUJQ"
_LETTER: Final = r"(?:\\?[A-Za-z0-9+/_-])"  # JSON within text escapes slashes and line ends
_LINES: Final = rf"(?:\r?\n{_LETTER}{{60,}}+)*+(?:\r?\n{_LETTER}{{1,75}}+(?==))?"  # as `base64`
_PICTURE: Final = re.compile(
    rf"(?:data:(?P<said>image/[\w.+-]{{1,40}});base64,|(?<![\w+/-])(?={_MAGIC}))"
    rf"(?P<run>{_LETTER}++{_LINES}={{0,2}})"
)
_WHOLE: Final = re.compile(
    rf"(?:data:(?P<said>[\w.+/-]{{1,80}});base64,)?(?P<run>{_LETTER}++{_LINES}={{0,2}})\s*"
)
_DATA: Final = "data:image/"
_URL: Final = re.compile(_DATA + r"[\w.+-]{0,40}(?:;[base64]{0,6}(?:,[\w+/=-]*)?)?")
_URL_CHARS: Final = 70  # the longest beginning of a data URL
_STANDARD: Final = str.maketrans("-_", "+/")
_LETTERS: Final = string.ascii_letters + string.digits + "+/_-="
_BLOCKS: Final = ("image", "image_url", "input_image")  # of Anthropic and ACP, of OpenAI


def label(media_type: str, size: int) -> str:
    """Return what stands for a picture, as ``[image/png, 160 KB]``."""
    kilobytes = max(1, size / 1024)
    if kilobytes < 1024:
        return f"[{media_type}, {kilobytes:.0f} KB]"
    return f"[{media_type}, {kilobytes / 1024:.1f} MB]"


def name_in_text(text: str, taken: list[Picture] | None = None) -> str:
    """Replace pictures over PICTURE_TEXT_CHARS, data URLs too, by their labels."""
    if len(text) <= PICTURE_TEXT_CHARS or not any(sign in text for sign in _SIGNS):
        return text

    def labelled(found: re.Match[str]) -> str:
        if len(found["run"]) <= PICTURE_TEXT_CHARS:
            return found[0]
        if found["said"] and taken is not None and (picture := _decoded(found["run"])):
            taken.append(picture)
        return label(found["said"] or _media_type(found["run"]), _size(found["run"]))

    return _PICTURE.sub(labelled, text)


def _decoded(run: str) -> Picture | None:
    """Return the picture that a run of base64 is; None if it is none, or too large."""
    letters = re.sub(r"\\[nr]|[\s\\=]", "", run).translate(_STANDARD)
    if len(letters) % 4 == 1 or len(letters) * 3 // 4 > ATTACHMENT_BYTES:
        return None
    return picture_of(base64.b64decode(letters + "=" * (-len(letters) % 4)))


def _media_type(run: str) -> str:
    start = run[:16].replace("\\", "")
    return next((kind for sign, kind in _MEDIA.items() if start.startswith(sign)), "")


def _size(run: str) -> int:
    return len(re.sub(r"\\[nr]|[\s\\=]", "", run)) * 3 // 4


def name_in(value: Any, taken: list[Picture] | None = None) -> Any:
    """Replace the pictures in a JSON value; return one without any as it is.

    A block that is a picture becomes ``{type: "image", media_type, size}``, and with
    ``attachment_id`` one that is taken.
    """
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if len(one) > PICTURE_TEXT_CHARS and any(sign in one for sign in _SIGNS):
                return _named(value, taken)
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return value


def _named(value: Any, taken: list[Picture] | None) -> Any:
    if isinstance(value, str):
        return name_in_text(value, taken)
    if isinstance(value, list):
        return [_named(one, taken) for one in value]
    if isinstance(value, dict):
        block = named_block(value, taken)
        return block or {name: _named(one, taken) for name, one in value.items()}
    return value


def named_block(
    block: Mapping[str, Any], taken: list[Picture] | None = None
) -> dict[str, Any] | None:
    """Return what stands for a block that is a picture in base64; None for any other."""
    if block.get("type") not in _BLOCKS:
        return None
    for holder in (block, *(one for one in block.values() if isinstance(one, dict))):
        for name in ("data", "base64", "url", "image_url"):
            text = holder.get(name)
            if not isinstance(text, str) or len(text) <= PICTURE_TEXT_CHARS:
                continue
            if found := _WHOLE.fullmatch(text):
                if taken is not None and (picture := _decoded(found["run"])):
                    taken.append(picture)
                    return picture.block()
                told = holder.get("media_type") or holder.get("mimeType")
                kind = found["said"] or _media_type(found["run"]) or str(told or "image")
                return {"type": "image", "media_type": kind, "size": _size(found["run"])}
    return None


class Stream:
    """Name the pictures in a text that comes in pieces; what may begin one waits."""

    def __init__(self) -> None:
        self.taken: list[Picture] = []  # with what was returned last; the caller empties it
        self._url: list[str] = []  # the letters of a data URL that is being left out
        self._held = ""  # the beginning of a picture, or of its sign
        self._kind = ""  # of a picture that is being left out
        self._letters = 0

    def feed(self, piece: str) -> str:
        """Return the text that may be shown by now."""
        if self._kind:
            rest = piece.lstrip(_LETTERS)
            self._letters += (count := len(piece) - len(rest))
            self._keep(piece[:count])
            return self.end() + self.feed(rest) if rest else ""
        text, self._held = self._held + piece, ""
        start = _beginning(text)
        run = text[start:].rpartition(",")[2]
        if len(run) <= PICTURE_TEXT_CHARS:
            self._held = text[start:]
        else:
            said = text[start : len(text) - len(run)].removeprefix("data:").partition(";")[0]
            self._kind, self._letters = said or _media_type(run) or "image", len(run)
            self._url = [run] if said else []
        return name_in_text(text[:start], self.taken)

    def _keep(self, letters: str) -> None:
        """Keep a data URL's letters, as long as they may be those of a picture."""
        if self._url and self._letters * 3 // 4 <= ATTACHMENT_BYTES:
            self._url.append(letters)
        else:
            self._url = []

    def end(self) -> str:
        """Return what waits; nothing follows it."""
        held, self._held = self._held, ""
        if self._kind:
            held, self._kind = label(self._kind, self._letters * 3 // 4), ""
            if picture := _decoded("".join(self._url)):
                self.taken.append(picture)
            self._url = []
        return held


def _beginning(text: str) -> int:
    """Return where a picture begins at a text's end, or may; else its length."""
    start = len(text.rstrip(_LETTERS))
    url = text.rfind(_DATA, max(0, start - _URL_CHARS))
    if url >= 0 and _URL.fullmatch(text, url):
        return url
    run = text[start:]
    if run and any(run.startswith(sign) or sign.startswith(run) for sign in _MEDIA):
        return start
    starts = (count for count in range(len(_DATA) - 1, 0, -1) if text.endswith(_DATA[:count]))
    return len(text) - next(starts, 0)
