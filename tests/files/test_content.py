"""GET /files/content and file_read (D11, D12): whole files, lines of files, and their bounds."""

from __future__ import annotations

import base64
import json
import os
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge_project.kernel import limits
from files_app import content as content_module
from files_app.content import modified_at, read_lines
from tests.files.conftest import House, no_leak, refused

MB = limits.MB


def content(*arguments: Any, **more: Any) -> dict[str, Any]:
    """The body of GET /files/content."""
    return dict(json.loads(content_module.content(*arguments, **more)))


def put(house: House, data: bytes) -> str:
    path = house.root / "file"
    path.write_bytes(data)
    return str(path)


# -- content ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "piece",
    [
        b"x",
        b"\n",
        b"\x01",
        b'"',
        "\u00e4".encode(),
        "\u2028".encode(),
        "\U0001f600".encode(),
        b"\0",
    ],
)
def test_the_limit_is_of_what_is_sent(house: House, piece: bytes) -> None:
    """Base64 and JSON's escapes are counted, and nothing is said to be longer than it is."""
    whole = len(content_module.content(house.jail, put(house, piece * 3)))
    longer = len(content_module.content(house.jail, put(house, piece * 6)))
    count = 3 + 3 * ((100_000 - whole) // (longer - whole))
    path = put(house, piece * count)
    size = len(content_module.content(house.jail, path))
    assert content(house.jail, path, max_bytes=size)["size"] == count * len(piece)
    with no_leak(), refused("FILE_TOO_LARGE"):
        content(house.jail, path, max_bytes=size - 1)


def test_a_file_that_is_binary_at_its_end_is_no_long_text(house: House) -> None:
    """As a text it would be six times as long."""
    path = put(house, b"\x01" * 50_000 + b"\xff")
    assert content(house.jail, path, max_bytes=100_000)["encoding"] == "base64"


def test_a_huge_file_is_not_read(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(house, b"")
    os.truncate(path, 2**40)
    monkeypatch.setattr(os, "read", None)
    with no_leak(), refused("FILE_TOO_LARGE"):
        content(house.jail, path)


def while_reading(monkeypatch: pytest.MonkeyPatch, path: str, change: Any) -> None:
    read = os.read

    def changing(fd: int, size: int) -> bytes:
        data = read(fd, 4)
        change(path)
        return data

    monkeypatch.setattr(os, "read", changing)


def append(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"more")


def test_a_file_that_shrinks_is_answered_as_it_was_read(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(house, b"12345678")
    while_reading(monkeypatch, path, lambda path: os.truncate(path, 2))
    answer = content(house.jail, path)
    assert (answer["content"], answer["size"]) == ("1234", 4)


def test_a_file_that_grows_beyond_the_limit_is_too_large(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(house, b"12345678")
    while_reading(monkeypatch, path, append)
    with no_leak(), refused("FILE_TOO_LARGE"):
        content(house.jail, path, max_bytes=100)


def test_a_read_that_would_wait_is_denied(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(*_: object) -> bytes:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "read", waits)
    for way in (content, read_lines):
        with no_leak(), refused("FILE_ACCESS_DENIED"):
            way(house.jail, "a.txt")


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


@given(
    text=some.text(alphabet="aä\n\r\u2028😀", max_size=40),
    offset=some.integers(0, 12),
    limit=some.integers(0, 12),
    chunk=some.integers(1, 5),
)
def test_slices_are_those_of_the_whole(text: str, offset: int, limit: int, chunk: int) -> None:
    """Whatever the pieces in which the file is read: line ends and characters may fall on their
    edges.
    """
    data = text.encode()
    reading = content_module._Reading(offset, limit, MB)
    for start in range(0, len(data), chunk):
        reading.feed(data[start : start + chunk])
    lines = [line + "\n" for line in text.split("\n")[:-1]] + [
        last for last in text.split("\n")[-1:] if last
    ]
    assert reading.result() == {
        "content": "".join(lines[offset : offset + limit]),
        "size": len(data),
        "lines": len(lines),
        "encoding": "utf-8",
    }


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
    with no_leak(), refused("FILE_TOO_LARGE"):
        read_lines(house.jail, path, max_bytes=MB)
    answer = read_lines(house.jail, put(house, b"\x1b" * 150_000), max_bytes=MB)
    assert len(json.dumps(answer)) < MB


def test_a_binary_file_comes_up_to_5_mb(house: House) -> None:
    path = put(house, b"\0" * (5 * MB))
    assert len(base64.b64decode(read_lines(house.jail, path)["content"])) == 5 * MB
    append(path)
    with no_leak(), refused("FILE_TOO_LARGE"):
        read_lines(house.jail, path)
    for late in (b"\0", b"\xc3"):
        with no_leak(), refused("FILE_TOO_LARGE"):
            read_lines(house.jail, put(house, b"text\n" * (6 * MB // 5) + late), None, 0, 1)
    with refused("FILE_TOO_LARGE"):
        read_lines(house.jail, put(house, b"\0" * MB), max_bytes=MB)
