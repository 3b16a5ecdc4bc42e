"""GET /files/content and file_read (D11, D12): whole files, lines of files, and their bounds."""

from __future__ import annotations

import json
import os
import tracemalloc
from typing import Any

import pytest

from bridge_project.kernel import limits
from files_app import content as content_module
from files_app.content import modified_at, read_lines
from tests.files.conftest import House, messages_of, no_leak, refused

MB = limits.MB


def content(*arguments: Any, **more: Any) -> dict[str, Any]:
    """The body of GET /files/content."""
    return dict(json.loads(content_module.content(*arguments, **more)))


def put(house: House, data: bytes) -> str:
    path = house.root / "file"
    path.write_bytes(data)
    return str(path)


# -- content ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [b"\x01", b'"', "\U0001f600".encode(), b"\0"])
def test_the_limit_is_of_what_is_sent(house: House, piece: bytes) -> None:
    """Base64 and JSON's escapes are counted, and nothing is said to be longer than it is."""
    whole = len(content_module.content(house.jail, put(house, piece * 3)))
    longer = len(content_module.content(house.jail, put(house, piece * 6)))
    count = 3 + 3 * ((100_000 - whole) // (longer - whole))
    path = put(house, piece * count)
    size = len(content_module.content(house.jail, path))
    with messages_of(size):
        assert content(house.jail, path)["size"] == count * len(piece)
    with messages_of(size - 1), no_leak(), refused("FILE_TOO_LARGE"):
        content(house.jail, path)


def test_a_file_that_is_binary_at_its_end_is_no_long_text(house: House) -> None:
    """As a text it would be six times as long."""
    path = put(house, b"\x01" * 50_000 + b"\xff")
    with messages_of(100_000):
        assert content(house.jail, path)["encoding"] == "base64"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.000Z"),
        (-(10**12), "0001-01-01T00:00:00.000Z"),
        (10**12, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_times_that_no_calendar_holds(seconds: int, text: str) -> None:
    assert modified_at(os.stat_result([0] * 10, {"st_mtime_ns": seconds * 10**9})) == text


# -- read_lines ------------------------------------------------------------------------------------


def test_a_large_file_is_streamed(house: House) -> None:
    line = b"x" * 99 + b"\n"
    path = put(house, line * (30 * MB // 100))
    tracemalloc.start()
    try:
        answer = read_lines(house.jail, path, None, 200_000, 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (answer["content"], answer["lines"]) == (line.decode() * 3, 30 * MB // 100)
    assert peak < 16 * MB


def test_the_whole_message_fits_not_only_the_bytes(house: House) -> None:
    """Control characters grow sixfold in JSON."""
    path = put(house, b"\x1b" * 300_000)
    with messages_of(MB):
        with no_leak(), refused("FILE_TOO_LARGE"):
            read_lines(house.jail, path)
        answer = read_lines(house.jail, put(house, b"\x1b" * 150_000))
    assert len(json.dumps(answer)) < MB
