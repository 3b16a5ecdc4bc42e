"""file_list and file_read (spec, WebSocket operations, File resources; D7, D11): over the socket,
in the session's directory.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.reader import Reader
from tests.conformance.samples import hook

MIB = 2**20


@pytest.mark.spec("ws.file_list", "ws.file_list_response", "file.listing.*")
def test_a_directory(reader: Reader) -> None:
    """Spec, Directory listing entry: name, type, size for files only; the directory itself, not
    what is below.
    """
    reader.write("a.txt", b"12345")
    reader.write("sub/below.txt", b"1")
    reader.write(".hidden", b"")
    entries = reader.list(".")
    assert entries == {
        "a.txt": {"name": "a.txt", "type": "file", "size": 5},
        "sub": {"name": "sub", "type": "directory"},
        ".hidden": {"name": ".hidden", "type": "file", "size": 0},
    }
    assert set(reader.list("sub")) == {"below.txt"} == set(reader.list(reader.place / "sub"))


def test_an_empty_directory(reader: Reader) -> None:
    """Spec: entries is an array."""
    (reader.place / "empty").mkdir()
    assert reader.list("empty") == {}


def test_odd_names(reader: Reader) -> None:
    """Issue: names with spaces, quotes, newlines and umlauts, and one that is no UTF-8; each can be
    read under the name that is listed, but the last.
    """
    names = [" ", 'quote"', "new\nline", "tab\t", "ümläut 会", "-rf", "*", "\\", "~", "a" * 255]
    for name in names:
        reader.write(name, name.encode())
    Path(os.fsdecode(os.fsencode(reader.place) + b"/bad\xff")).write_bytes(b"x")
    entries = reader.list(".")
    assert set(names) < set(entries) and len(entries) == len(names) + 1
    for name in names:
        assert reader.read(name)["content"] == name


def test_a_directory_of_many(reader: Reader) -> None:
    """Three thousand entries come in one answer, each once."""
    for number in range(3000):
        (reader.place / f"file {number}").touch()
    assert len(reader.list(".")) == 3000


@pytest.mark.spec("ws.file_read", "ws.file_read_response")
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", 0),
        (b"one line\n", 1),
        (b"no end", 1),
        (b"a\nb\nc", 3),
        (b"\n\n\n", 3),
        (b"a\r\nb\rc\n", 2),
        ("ü\u2028会\x0b\x85\n🎉".encode(), 2),
        (b"\xef\xbb\xbfmark\n", 1),
    ],
    ids=repr,
)
def test_a_text(reader: Reader, data: bytes, lines: int) -> None:
    """D11: size is the file's bytes, lines its line count (a line ends with a newline and with
    nothing else); text as it is, utf-8.
    """
    reader.write("a", data)
    payload = reader.read("a")
    assert (
        payload["content"].encode(),
        payload["size"],
        payload["lines"],
        payload["encoding"],
    ) == (data, len(data), lines, "utf-8")


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (0, 2, "0\n1\n"),
        (3, 2, "3\n4\n"),
        (8, 5, "8\n9"),
        (9, 1, "9"),
        (10, 5, ""),
        (1000, 1, ""),
        (0, 10, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9"),
    ],
)
def test_offset_and_limit(reader: Reader, offset: int, limit: int, expected: str) -> None:
    """D11: counted in lines, the first line is 0; size and lines are the whole file's."""
    reader.write("a", "\n".join(map(str, range(10))).encode())
    payload = reader.read("a", offset=offset, limit=limit)
    assert (payload["content"], payload["size"], payload["lines"]) == (expected, 19, 10)


@pytest.mark.spec("file.read.default")
@pytest.mark.parametrize("given", [..., None], ids=["absent", "null"])
def test_the_default_limit(reader: Reader, given: Any) -> None:
    """D11: from the first line, 2000 of them."""
    reader.write("a", b"x\n" * 2500)
    payload = reader.read("a", offset=given, limit=given)
    assert (payload["content"], payload["lines"]) == ("x\n" * 2000, 2500)


@pytest.mark.parametrize(
    ("offset", "limit"),
    [(-1, 1), (0, 0), (0, -5), ("0", 1), (0, 1.5), (0, True), (2**80, 1)],
    ids=str,
)
def test_what_is_no_offset_or_limit(reader: Reader, offset: Any, limit: Any) -> None:
    """Spec: integers; PROTO_INVALID_MESSAGE with violations."""
    reader.write("a", b"x\n")
    assert assert_refused(
        reader.ask("file_read", "a", offset=offset, limit=limit), "PROTO_INVALID_MESSAGE", True
    )["violations"]


@pytest.mark.spec("versioning.wire_types")
@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)) * 10,
        b"\x00",
        b"caf\xe9 au lait\n",
        b"\xed\xa0\x80",
        "utf-16".encode("utf-16"),
        b"text\n" * 50_000 + b"\xff",
        b"text\n" * 50_000 + b"\x00",
    ],
    ids=["all bytes", "nul", "latin-1", "surrogate", "utf-16", "late byte", "late nul"],
)
def test_a_binary_file(reader: Reader, data: bytes) -> None:
    """D11: comes whole as base64, whatever lines were asked for, and byte for byte (a NUL is text
    in JSON too, if it comes back as it was).
    """
    reader.write("blob", data)
    payload = reader.read("blob", offset=0, limit=1 if b"\x00" not in data else 10_000_000)
    assert payload["size"] == len(data)
    if payload["encoding"] == "utf-8" and b"\x00" in data:
        assert payload["content"].encode() == data
    else:
        assert (
            payload["encoding"] == "base64"
            and base64.b64decode(payload["content"], validate=True) == data
        )


@pytest.mark.spec("limit.binary")
def test_five_megabytes_of_binary(reader: Reader) -> None:
    """D11: up to 5 MiB; one byte more is FILE_TOO_LARGE (D12)."""
    data = os.urandom(5 * MIB - 2) + b"\xff\x00"
    reader.write("blob", data)
    payload = reader.read("blob")
    assert payload["encoding"] == "base64" and base64.b64decode(payload["content"]) == data
    reader.write("blob", data + b"\x00")
    reader.refused("file_read", "blob", "FILE_TOO_LARGE")


@pytest.mark.spec("limit.max_message_size_mb")
def test_a_text_that_is_too_large(reader: Reader) -> None:
    """D12: larger than max_message_size_mb: FILE_TOO_LARGE, or the lines that were asked for where
    they fit; nothing over the limit is sent.
    """
    reader.write("large", b"x" * 99 + b"\n" + b"y\n" * (6 * MIB))
    reader.refused("file_read", "large", "FILE_TOO_LARGE")
    answer = reader.ask("file_read", "large", offset=0, limit=1)
    assert (
        answer["payload"].get("code", "FILE_TOO_LARGE") == "FILE_TOO_LARGE"
        and answer["payload"].get("content", "x" * 99 + "\n") == "x" * 99 + "\n"
    )
    reader.phone.ping()


def test_a_text_that_grows_in_json(reader: Reader) -> None:
    """Spec, max_message_size_mb 10: four megabytes of control characters are 24 in JSON: refused or
    delivered whole, the connection lives.
    """
    reader.write("odd", b"\x01" * (4 * MIB))
    answer = reader.ask("file_read", "odd")
    if answer["type"] == "error":
        assert_refused(answer, "FILE_TOO_LARGE", True)
    elif answer["payload"]["encoding"] == "utf-8":
        assert (
            answer["payload"]["content"] == "\x01" * (4 * MIB)
            and len(json.dumps(answer)) < 10 * MIB
        )
    else:
        assert base64.b64decode(answer["payload"]["content"]) == b"\x01" * (4 * MIB)
    reader.phone.ping()


def test_a_closed_session(shared: Bridge, reader: Reader) -> None:
    """D7: file requests work in a closed observed session that is joined."""
    reader.write("a", b"1")
    shared.accept(hook("SessionEnd", reader.sid))
    assert reader.read("a")["content"] == "1" and set(reader.list(".")) == {"a"}
