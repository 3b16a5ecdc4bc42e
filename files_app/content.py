"""Read files: whole for GET /files/content, in lines for file_read (D11)."""

import base64
import codecs
import io
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail, shown
from bridge_project.kernel.path_walk import Opened, translate_os_errors
from bridge_project.protocol.jsontext import dumps_unicode
from bridge_project.protocol.types import now_text
from files_app import charset

_CHUNK: Final = 2**20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOO_MANY_LINES: Final = "These lines are more than one message holds; ask for fewer."
_ENCODED: Final = 3 * 2**14  # bytes put into JSON at once; base64 takes three at a time
PATH_ENVELOPE_BYTES: Final = limits.ENVELOPE_BYTES + limits.FILE_PATH_MAX_BYTES * 2  # with a path


def content(jail: Jail, path: object) -> bytes:
    """Return the body of GET /files/content, as JSON.

    Its fields: path, size, encoding, modified_at, content.

    ``encoding`` is ``utf-8``, or ``base64`` for a file that is not UTF-8 text or holds a NUL;
    ``size`` is the file's bytes. A body over ``max_message_size_mb`` is FILE_TOO_LARGE: in memory
    are the file and its JSON, each at most so long. Other errors are the jail's (D12).
    """
    most = conf.max_message_bytes
    data = bytearray()
    try:
        with jail.open_file(path) as file:
            if file.stat.st_size > most:
                raise BridgeError("FILE_TOO_LARGE")
            for chunk in _chunks(file):
                data += chunk
                if len(data) > most:  # it grew
                    raise BridgeError("FILE_TOO_LARGE")
        try:
            is_text = b"\0" not in data and all(_decoded(data))
        except UnicodeDecodeError:
            is_text = False
        about = {
            "path": shown(file.path),
            "size": len(data),
            "encoding": "utf-8" if is_text else "base64",
            # taken before reading: a change during the reading shows as newer the next time
            "modified_at": modified_at(file.stat),
        }
        if is_text:
            return _json(about, (dumps_unicode(one).encode()[1:-1] for one in _decoded(data)), most)
        return _json(about, map(base64.b64encode, _pieces(data)), most)
    finally:
        # else a raised error would keep it until the garbage collector runs
        data.clear()


def _json(about: dict[str, Any], pieces: Iterator[bytes], most: int) -> bytes:
    """Insert ``pieces`` into ``about`` as ``content``; FILE_TOO_LARGE over ``most``."""
    body = io.BytesIO()
    body.write(dumps_unicode(about)[:-1].encode() + b',"content":"')
    for piece in pieces:
        body.write(piece)
        if body.tell() + 2 > most:
            body.close()  # as above
            raise BridgeError("FILE_TOO_LARGE")
    body.write(b'"}')
    return body.getvalue()


def _decoded(data: bytearray) -> Iterator[str]:
    """Decode in pieces: one emoji makes a whole text four times as long."""
    return codecs.iterdecode(_pieces(data), "utf-8")


def _pieces(data: bytearray) -> Iterator[bytes]:
    return (bytes(data[at : at + _ENCODED]) for at in range(0, len(data), _ENCODED))


def read_lines(
    jail: Jail,
    path: object,
    base: str | None = None,
    offset: int = 0,
    limit: int = limits.FILE_READ_LINES,
) -> dict[str, Any]:
    """Return file_read_response's fields: path, content, size, lines, encoding (D11).

    ``content`` holds up to ``limit`` lines from line ``offset`` (0 is the first), line ends
    included; ``size`` is the file's bytes and ``lines`` its line count (0 for a binary file, which
    comes whole as base64, up to 5 MiB). Where it is sure what text such a file is, all of that is
    its ``text``, decoded from ``charset``, if both fit into the answer. A relative path begins in
    ``base``. An answer over ``max_message_size_mb`` is FILE_TOO_LARGE. The file is read through
    once, and no text is held in memory.
    """
    with jail.open_file(path, base=base) as file:
        reading = _Reading(offset, limit)
        for chunk in _chunks(file):
            reading.feed(chunk)
        return {"path": shown(file.path), **reading.result()}


def modified_at(stat: os.stat_result) -> str:
    """Return ISO 8601 UTC with milliseconds; clamp years it cannot hold."""
    try:
        return now_text(_EPOCH + timedelta(microseconds=stat.st_mtime_ns // 1000))
    except OverflowError:
        return "9999-12-31T23:59:59.999Z" if stat.st_mtime_ns > 0 else "0001-01-01T00:00:00.000Z"


class _Reading:
    """Read a file once: detect text, count lines, keep those that were asked for."""

    def __init__(self, offset: int, limit: int) -> None:
        self.first, self.last, self.most = offset, offset + limit, conf.max_message_bytes
        self.size = self.newlines = 0
        self.ends_line = self.is_text = True
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.kept = bytearray()  # the lines asked for
        # everything, as long as it could be a binary file that is sent whole
        self.whole = bytearray()

    def feed(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size <= limits.FILE_BINARY_MAX_BYTES:
            self.whole += chunk
        else:
            self.whole.clear()
        if not self._check_text(chunk):
            return
        newlines = chunk.count(b"\n")
        start = _line_start(chunk, self.first - self.newlines, newlines)
        self.kept += chunk[start : _line_start(chunk, self.last - self.newlines, newlines)]
        # a smaller file may still turn out to be binary
        if len(self.kept) > max(self.most, limits.FILE_BINARY_MAX_BYTES):
            raise BridgeError("FILE_TOO_LARGE", _TOO_MANY_LINES)
        self.newlines += newlines
        self.ends_line = chunk.endswith(b"\n")

    def result(self) -> dict[str, Any]:
        if self._check_text(b"", final=True):
            text, encoding = self.kept.decode("utf-8"), "utf-8"
            lines = self.newlines + (not self.ends_line)
        else:
            text, encoding, lines = base64.b64encode(self.whole).decode("ascii"), "base64", 0
        room = self.most - PATH_ENVELOPE_BYTES - len(dumps_unicode(text).encode())
        if room < 0:
            raise BridgeError("FILE_TOO_LARGE", _TOO_MANY_LINES)
        found = {"content": text, "size": self.size, "lines": lines, "encoding": encoding}
        return found | (self._decoded(room) if encoding == "base64" else {})

    def _decoded(self, room: int) -> dict[str, Any]:
        """Return the text of a file that is not UTF-8, if it is sure and there is room."""
        known = charset.decode(bytes(self.whole))
        if known is None or not known.charset or len(dumps_unicode(known.text).encode()) > room:
            return {}
        lines = known.text.count("\n") + (known.text[-1:] not in ("", "\n"))
        return {"text": known.text, "charset": known.charset, "lines": lines}

    def _check_text(self, data: bytes, *, final: bool = False) -> bool:
        """Return whether all is text so far; FILE_TOO_LARGE for a large binary file."""
        if self.is_text:
            try:
                self.decoder.decode(data, final)
                self.is_text = b"\0" not in data
            except UnicodeDecodeError:
                self.is_text = False
        if not self.is_text and self.size > limits.FILE_BINARY_MAX_BYTES:
            raise BridgeError("FILE_TOO_LARGE", "A binary file is sent whole, up to 5 MB.")
        return self.is_text


def _line_start(chunk: bytes, line: int, newlines: int) -> int:
    """Return where a line of a chunk begins; the chunk's end if it is further on."""
    if line > newlines:
        return len(chunk)
    at = 0
    for _ in range(line):
        at = chunk.find(b"\n", at) + 1
    return at


def _chunks(file: Opened) -> Iterator[bytes]:
    with translate_os_errors():
        while chunk := os.read(file.fd, _CHUNK):
            yield chunk
