"""Tell in which encoding a text is, where that is sure (D11). Pure.

A byte order mark is believed, and so is UTF-8 that is valid. Of other bytes charset-normalizer says
what may be meant; it is taken only where nothing else is as likely. What is not sure, what is half
UTF-8 and what has control characters stays bytes.
"""

import codecs
import re
from typing import Final, NamedTuple

from charset_normalizer import CharsetMatches, from_bytes

SAMPLE_BYTES: Final = 32 * 1024  # of the lines that are not ASCII
_MARKS: Final = (  # the longer first: one begins as another
    (codecs.BOM_UTF32_LE, "utf-32le"),
    (codecs.BOM_UTF32_BE, "utf-32be"),
    (codecs.BOM_UTF16_LE, "utf-16le"),
    (codecs.BOM_UTF16_BE, "utf-16be"),
)
# Python's names, and those by which they are known (the strictest first that fits)
_NAMES: Final = {
    "cp932": ("shift_jis", "cp932"),
    "euc_jp": ("euc-jp",),
    "gb18030": ("gbk", "gb18030"),
    "big5": ("big5",),
    "cp949": ("euc-kr", "cp949"),
    "cp1252": ("iso-8859-1", "windows-1252"),
    "cp1250": ("windows-1250",),
    "iso8859_2": ("iso-8859-2",),
    "cp1251": ("windows-1251",),
    "cp1254": ("windows-1254",),
    "koi8_r": ("koi8-r",),
}
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_CONTROL_BYTES: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_UTF_8: Final = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
_HIGH_LINES: Final = re.compile(rb"[^\n]*[\x80-\xff][^\n]*\n?")
# No other encoding writes so. (Turkish has letters of its own in the place of Icelandic ones.)
_WESTERN: Final = re.compile(
    rb"""(?x)(?:
    [\x00-\x7f]
    # a letter within a word, or at its edge
    | (?<![\x80-\x91\x93-\xff])
      (?:(?<=[A-Za-z]) | (?=.[A-Za-z]))
      [\xc0-\xcf\xd1-\xd6\xd8-\xdc\xdf-\xef\xf1-\xf6\xf8-\xfc\xff]
      (?![\x80-\xff])
    # two small letters after others, and a word of one
    | (?<=[A-Za-z])[\xdf-\xef\xf1-\xfc]{2}(?![\x80-\xff])
    | (?<![!-~\x80-\xff])[\xc0\xe0](?![!-~\x80-\xff])
    # signs, and those that end a word
    | (?<![A-Za-z\x80-\xff])
      [\x80\x85\x91-\x97\xa0\xa1\xa3\xa7\xa9\xab\xae\xb0\xb1\xb7\xbb\xbf]
    | (?<=[A-Za-z])(?:\x92|[\x94\xa0\xbb](?![\x80-\xff]))
    )*+"""
)
_SURER: Final = 0.02  # by so much less mess than with another encoding, it is sure
_FOREIGN: Final = 0.2  # more like a language than with another encoding


class Text(NamedTuple):
    """Hold a text and the encoding in which it was, as WHATWG names it; "" is UTF-8."""

    text: str
    charset: str


def decode(data: bytes) -> Text | None:
    """Return the text that bytes are, None where that is not sure."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _strict(data[len(mark) :], name)
    if b"\0" in data[:SAMPLE_BYTES]:
        return _without_mark(data)
    try:
        return Text(data.decode(), "") if b"\0" not in data else None
    except UnicodeDecodeError:
        return _guess(data)


def _strict(data: bytes, *names: str) -> Text | None:
    for name in names:
        try:
            text = data.decode(name)
        except UnicodeDecodeError:
            continue
        if not _CONTROLS.search(text):
            return Text(text, name)
    return None


def _without_mark(data: bytes) -> Text | None:
    """Decode UTF-16 of Latin script, whose every other byte is mostly NUL."""
    nuls = data.count(0, 0, SAMPLE_BYTES)
    for name, first in (("utf-16le", 1), ("utf-16be", 0)):
        sample = data[first:SAMPLE_BYTES:2]
        letters = data[1 - first : SAMPLE_BYTES : 2]
        ascii_ones = sum(letter < 128 for letter in letters)
        if sample.count(0) == nuls and nuls * 2 > len(sample) and ascii_ones * 2 > len(letters):
            return _strict(data, name)
    return None


def _guess(data: bytes) -> Text | None:
    if _CONTROL_BYTES.search(data):
        return None
    sample = b"".join(_sample(data))
    high = len(sample) - len(sample.translate(None, bytes(range(128, 256))))
    if sum(map(len, _UTF_8.findall(sample))) * 2 > high:
        return None  # UTF-8, and something else between
    if _WESTERN.fullmatch(sample):
        return _strict(data, *_NAMES["cp1252"])
    found = _surest(from_bytes(sample, cp_isolation=list(_NAMES)))
    return _strict(data, *_NAMES[found]) if found else None


def _sample(data: bytes) -> list[bytes]:
    """Return lines that are not ASCII: the others say nothing, and a lot of it."""
    lines: list[bytes] = []
    size = 0
    for line in _HIGH_LINES.finditer(data):
        size += len(line[0])
        if lines and size > SAMPLE_BYTES:
            break
        lines.append(line[0][:SAMPLE_BYTES])
    return lines


def _surest(matches: CharsetMatches) -> str:
    """Return the encoding that fits clearly better than all that give another text."""
    if (best := matches.best()) is None:
        return ""
    for other in matches:
        clear = other.chaos - best.chaos > _SURER or best.coherence - other.coherence > _FOREIGN
        if str(other) != str(best) and not clear:
            return ""
    return str(best.encoding)
