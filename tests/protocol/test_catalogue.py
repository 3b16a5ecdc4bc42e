"""The catalogue is sound, and its messages go out in frames that others read (D4)."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from bridge_project.protocol.catalogue import CATALOGUE, text_frame


def test_every_reply_is_a_message_of_the_other_side() -> None:
    for model in CATALOGUE.values():
        for reply in model.reply:
            assert (
                CATALOGUE[reply].from_server if model.from_client else CATALOGUE[reply].from_client
            )


@pytest.mark.parametrize("text", ["x" * n for n in (0, 125, 126, 65535, 65536)] + ["é漢🙂" * 20])
def test_a_frame_is_read_back_by_another_library(text: str) -> None:
    """RFC 6455, 5.2; the length counts bytes, and takes the fewest."""
    data, size = text_frame(text), len(text.encode())
    assert len(data) - size == (2 if size < 126 else 4 if size < 65536 else 10)
    stream = StreamReader()
    stream.feed_data(data)
    stream.feed_eof()
    parsing = Frame.parse(stream.read_exact, mask=False)
    with pytest.raises(StopIteration) as done:
        while True:
            next(parsing)
    frame: Frame = done.value.value
    assert (frame.opcode, frame.fin, frame.rsv1) == (Opcode.TEXT, True, False)
    assert bytes(frame.data).decode() == text and stream.buffer == b""
