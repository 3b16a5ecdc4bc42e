"""A row of the log between the database and a socket: what the outbox writes and sockets send."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bridge_project.protocol.catalogue import text_frame


@dataclass(frozen=True)
class Row:
    """A row of the log as sockets send it: ``frame`` is the whole envelope, serialised once."""

    seq: int
    feed_id: int
    type: str
    id: str
    frame: str

    @cached_property
    def wire(self) -> bytes:
        """The frame as it goes into a socket: made when the first one takes it, for all."""
        return text_frame(self.frame)

    @property
    def size(self) -> int:
        return size_of(self.frame)


def size_of(text: str) -> int:
    """Bytes of a frame on the wire."""
    return len(text) if text.isascii() else len(text.encode())
