"""Frames made once for all sockets are what RFC 6455, 5.2 asks of a server: read back by a library
that had no part in making them.
"""

from __future__ import annotations

import struct

import pytest
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from bridge_project.protocol.framing import text_frame


def read(data: bytes) -> Frame:
    stream = StreamReader()
    stream.feed_data(data)
    stream.feed_eof()
    parsing = Frame.parse(stream.read_exact, mask=False)
    while True:
        try:
            next(parsing)
        except StopIteration as done:
            assert stream.buffer == b""
            frame: Frame = done.value
            return frame


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 10 * 2**20])
def test_every_length_is_written_as_the_standard_says(size: int) -> None:
    frame = read(text_frame("x" * size))
    assert (frame.opcode, frame.fin, frame.rsv1, bytes(frame.data)) == (
        Opcode.TEXT,
        True,
        False,
        b"x" * size,
    )


@pytest.mark.parametrize(("size", "head"), [(125, 2), (126, 4), (65535, 4), (65536, 10)])
def test_the_length_takes_the_fewest_bytes(size: int, head: int) -> None:
    assert len(text_frame("x" * size)) == head + size


def test_the_length_counts_bytes_and_not_characters() -> None:
    text = "é漢🙂" * 20
    data = text_frame(text)
    assert struct.unpack("!BBH", data[:4]) == (0x81, 126, len(text.encode()))
    assert bytes(read(data).data).decode() == text
