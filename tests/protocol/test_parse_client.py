"""Whatever a client sends is a message or refused (D3, D4); what is sent is a frame for others."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from bridge_project.docs import asyncapi
from bridge_project.protocol.catalogue import CATALOGUE, text_frame
from bridge_project.protocol.parse import ProtocolInvalid, parse_client

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=30,
)
AT = "2026-01-31T12:00:00Z"
EXAMPLES = [
    json.loads(one.example).get("payload", {}) for one in asyncapi.messages() if one.from_client
]


NAMES = sorted({name for payload in EXAMPLES for name in payload} | {"__class__"})
LIKELY = st.sampled_from([AT, "s-1", "user", "modified", "approved"])
FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(sorted(CATALOGUE)) | VALUES,
        "id": VALUES,
        "timestamp": st.just(AT) | VALUES,
        "payload": st.dictionaries(st.sampled_from(NAMES), VALUES | LIKELY, max_size=8) | VALUES,
        "x": VALUES,
    },
)


@given((FRAMES | VALUES).map(json.dumps) | st.text(max_size=100) | st.binary(max_size=100))
def test_anything_is_a_message_or_protocol_invalid(text: str | bytes) -> None:
    for strict in (True, False):
        try:
            message = parse_client(text, strict_ids=strict)
        except ProtocolInvalid as invalid:
            shapes = [set(violation) for violation in invalid.violations]
        else:
            assert isinstance(message.payload, CATALOGUE[message.type])
            assert 1 <= len(message.id) <= 128
            continue
        assert shapes and all(one == {"field", "constraint", "received"} for one in shapes)


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
