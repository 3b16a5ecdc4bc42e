"""A row of the log between the database and a socket: what the outbox writes, the hub hands on and the reader reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the log as sockets send it: ``frame`` is the whole envelope, serialised once."""

    seq: int
    feed_id: int
    type: str
    id: str
    frame: str

    @property
    def size(self) -> int:
        return size_of(self.frame)


def size_of(text: str) -> int:
    """Bytes of a frame on the wire."""
    return len(text) if text.isascii() else len(text.encode())
