"""What travels: timestamps (SPEC Conventions; the platform's own types are too lax), and frames."""

from datetime import UTC

import pytest
from pydantic import TypeAdapter, ValidationError
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from bridge_project.protocol.catalogue import text_frame
from bridge_project.protocol.types import Timestamp, parse_timestamp

TIMESTAMP = TypeAdapter(Timestamp)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00"),
        ("2026-01-31T12:00:00.123Z", "2026-01-31T12:00:00.123000+00:00"),
        ("2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00.123456+00:00"),
        ("2026-01-31 12:00:00Z", "2026-01-31T12:00:00+00:00"),
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00+00:00"),
        ("2026-01-31T12:00:00,25Z", "2026-01-31T12:00:00.250000+00:00"),
        ("2026-01-31T12:00:00+05:30", "2026-01-31T06:30:00+00:00"),
        ("2026-01-31T12:00:00-0800", "2026-01-31T20:00:00+00:00"),
        ("20260131T120000.5+0530", "2026-01-31T06:30:00.500000+00:00"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00+00:00"),
        ("2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00.500000+00:00"),
    ],
)
def test_timestamps_are_read(text: str, utc: str) -> None:
    moment = parse_timestamp(text)
    assert (moment.isoformat(), moment.tzinfo) == (utc, UTC)
    assert TIMESTAMP.validate_python(text) == text, "kept as sent"


NONE = """
2026-01-31 1700000000 2026-01-31T12Z 2026-01-31T12:00:00.1234567890Z 2026-02-30T12:00:00Z
2026-13-01T12:00:00Z 2026-01-31T24:00:00Z 2026-01-31T12:00:61Z 2026-01-31T12:00:00+24:00
0001-01-01T00:00:00+01:00 9999-12-31T23:59:60Z ٢٠٢٦-01-31T12:00:00Z 2026-0131T12:00:00Z
"""


@pytest.mark.parametrize(
    "text", ["", " 2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z\n", *NONE.split()]
)
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="must be"):
        TIMESTAMP.validate_python(text)


@pytest.mark.parametrize("text", ["x" * n for n in (0, 125, 126, 65535, 65536)] + ["é漢🙂" * 20])
def test_a_frame_is_read_back_by_another_library(text: str) -> None:
    """RFC 6455, 5.2; the length counts bytes, and takes the fewest."""
    data, size = text_frame(text), len(text.encode())
    assert len(data) - size == (2 if size < 126 else 4 if size < 65536 else 10)
    stream = StreamReader()
    stream.feed_data(data)
    with pytest.raises(StopIteration) as done:
        next(Frame.parse(stream.read_exact, mask=False))
    frame: Frame = done.value.value
    assert (frame.opcode, frame.fin, frame.rsv1) == (Opcode.TEXT, True, False)
    assert bytes(frame.data).decode() == text and stream.buffer == b""
