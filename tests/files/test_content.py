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


def test_the_fields_are_the_specs(house: House) -> None:
    path = put(house, "grüße\r\n\ufeff\x1b\n".encode())
    os.utime(path, ns=(0, 1_769_860_800_000_000_000))
    for asked in (path, "file"):
        with no_leak():
            assert content(house.jail, asked) == {
                "path": path,
                "content": "grüße\r\n\ufeff\x1b\n",
                "size": 14,
                "encoding": "utf-8",
                "modified_at": "2026-01-31T12:00:00.000Z",
            }


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"text\0text",
        b"\xff\xfe",
        b"caf\xe9",
        b"\xed\xa0\x80",
        "ä".encode()[:1],
        b"\x89PNG\r\n",
    ],
)
def test_what_is_no_text_is_base64(house: House, data: bytes) -> None:
    answer = content(house.jail, put(house, data))
    assert (answer["encoding"], answer["size"]) == ("base64", len(data))
    assert base64.b64decode(answer["content"]) == data


def test_an_empty_file(house: House) -> None:
    answer = content(house.jail, put(house, b""))
    assert (answer["content"], answer["size"], answer["encoding"]) == ("", 0, "utf-8")


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


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (None, "INVALID_PATH"),
        ("", "INVALID_PATH"),
        ("docs", "INVALID_PATH"),
        ("../outside/secret.txt", "ACCESS_DENIED"),
        ("x", "NOT_FOUND"),
    ],
)
def test_the_errors_are_the_jails(house: House, path: object, code: str) -> None:
    for way in (content, read_lines):
        with no_leak(), refused(f"FILE_{code}"):
            way(house.jail, path)


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


def test_all_lines_of_a_short_file(house: House) -> None:
    with no_leak():
        assert read_lines(house.jail, "b.txt", f"{house.root}/docs") == {
            "path": f"{house.root}/docs/b.txt",
            "content": "inside too\n",
            "size": 11,
            "lines": 1,
            "encoding": "utf-8",
        }


def test_the_default_is_the_first_2000_lines(house: House) -> None:
    path = put(house, b"".join(b"%d\n" % n for n in range(5000)))
    answer = read_lines(house.jail, path)
    assert answer["content"].splitlines() == [str(n) for n in range(2000)]
    assert answer["lines"] == 5000


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (0, 0, ""),
        (0, 1, "a\n"),
        (1, 1, "\n"),
        (1, 2, "\nb\r\n"),
        (3, 1, "c"),
        (3, 10**30, "c"),
        (4, 5, ""),
        (10**30, 1, ""),
    ],
)
def test_a_slice(house: House, offset: int, limit: int, expected: str) -> None:
    answer = read_lines(house.jail, put(house, b"a\n\nb\r\nc"), None, offset, limit)
    assert answer["content"] == expected
    assert (answer["size"], answer["lines"]) == (7, 4)


def test_no_lines(house: House) -> None:
    answer = read_lines(house.jail, put(house, b""))
    assert (answer["content"], answer["lines"], answer["size"]) == ("", 0, 0)


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


def test_a_slice_over_one_message_is_too_large(house: House) -> None:
    path = put(house, b"x" * (11 * MB) + b"\nshort\n")
    with no_leak(), refused("FILE_TOO_LARGE"):
        read_lines(house.jail, path)
    assert read_lines(house.jail, path, None, 1)["content"] == "short\n"


def test_the_whole_message_fits_not_only_the_bytes(house: House) -> None:
    """Control characters grow sixfold in JSON."""
    path = put(house, b"\x1b" * 300_000)
    with no_leak(), refused("FILE_TOO_LARGE"):
        read_lines(house.jail, path, max_bytes=MB)
    answer = read_lines(house.jail, put(house, b"\x1b" * 150_000), max_bytes=MB)
    assert len(json.dumps(answer)) < MB


@pytest.mark.parametrize("tail", [b"\0", b"\xff", "ä".encode()[:1]])
def test_a_binary_file_comes_whole(house: House, tail: bytes) -> None:
    data = b"text\n" * 1000 + tail
    answer = read_lines(house.jail, put(house, data), None, 3, 1)
    assert (answer["encoding"], answer["size"], answer["lines"]) == ("base64", len(data), 0)
    assert base64.b64decode(answer["content"]) == data


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


@pytest.mark.parametrize("bad", [-1, True, 1.0, "1", None])
def test_offset_and_limit_are_counts(house: House, bad: Any) -> None:
    with refused("FILE_INVALID_PATH"):
        read_lines(house.jail, "a.txt", None, bad)
    with refused("FILE_INVALID_PATH"):
        read_lines(house.jail, "a.txt", None, 0, bad)
