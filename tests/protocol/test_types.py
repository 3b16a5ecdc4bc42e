"""Timestamps (SPEC Conventions; STACK: the platform's own types are too lax)."""

from datetime import UTC

import pytest
from pydantic import TypeAdapter, ValidationError

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
    assert moment.isoformat() == utc
    assert moment.tzinfo is UTC
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
    with pytest.raises(ValueError, match="must be"):
        parse_timestamp(text)
    with pytest.raises(ValidationError):
        TIMESTAMP.validate_python(text)
