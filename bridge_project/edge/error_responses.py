"""Answer errors over HTTP at the edge, before the application runs (D9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from bridge_project.http.error_body import error_answer
from bridge_project.kernel.errors import BridgeError

Message = dict[str, Any]


def raw_response(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
    """A whole HTTP/1.1 response after which the connection ends. Raises ValueError when a header
    would break out of its line.
    """
    lines = [b"HTTP/1.1 %d %s" % (status, _phrase(status))]
    for name, value in headers:
        if b"\r" in name + value or b"\n" in name + value:
            raise ValueError(f"a header of the answer holds a line break: {name!r}")
        if name.lower() not in (b"content-length", b"connection", b"transfer-encoding"):
            lines.append(name + b": " + value)
    lines += [b"Content-Length: %d" % len(body), b"Connection: close", b"", b""]
    return b"\r\n".join(lines) + body


def error_response(
    code: str, request_id: str, *, base_url: str, status: int | None = None, message: str = ""
) -> bytes:
    """The raw response of an error, with the six fields of D9."""
    answer = error_answer(BridgeError(code, message), request_id, base_url, status=status)
    headers = {**answer.headers, "Cache-Control": "no-store"}
    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    return raw_response(answer.status, named, answer.body)


class Inbox(asyncio.Queue[Message]):
    """The application's queue of one connection; it knows how many bytes the application has not
    taken yet.
    """

    def __init__(self, on_taken: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.waiting = 0
        self._on_taken = on_taken

    def _put(self, item: Message) -> None:
        self.waiting += _size(item)
        super()._put(item)

    def _get(self) -> Message:
        item: Message = super()._get()
        self.waiting -= _size(item)
        if self._on_taken is not None:
            self._on_taken()
        return item


def _size(message: Message) -> int:
    """Bytes of what a message carries, and something for the message itself, so that empty ones
    count too.
    """
    return (
        256
        + len(message.get("text") or b"")
        + len(message.get("bytes") or b"")
        + len(message.get("body") or b"")
    )


def _phrase(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode("ascii")
    except ValueError:
        return b"Unknown"
