"""file_list and file_read (spec, WebSocket operations, File resources; D7, D11, D12)."""

import base64
import os
import shutil
from typing import Any

import pytest

from bridge_project.kernel import limits
from tests.conformance.repositories import Reader

MIB = 2**20


@pytest.mark.spec("ws.file_list", "ws.file_list_response", "file.listing.*", "file.jail")
def test_a_directory(reader: Reader) -> None:
    """Itself, not what is below; a size for files only. D12: up and out of the session's directory
    is inside while it is inside a root; the jail is the same as over HTTP: test_files_http.py.
    """
    reader.write("a.txt", b"12345")
    reader.write("sub/below.txt", b"1")
    reader.write(".hidden", b"")
    (reader.place / "empty").mkdir()
    expected: dict[str, Any] = {name: {"type": "directory"} for name in ("sub", "empty")}
    expected |= {"a.txt": {"type": "file", "size": 5}, ".hidden": {"type": "file", "size": 0}}
    assert reader.list(".") == {name: {"name": name} | expected[name] for name in expected}
    assert reader.list("empty") == {}
    assert set(reader.list("sub")) == {"below.txt"} == set(reader.list(reader.place / "sub"))
    (top := reader.place.with_name("top.txt")).write_text("top")
    assert reader.read("../top.txt")["content"] == reader.read(top)["content"] == "top"
    assert reader.place.name in reader.list("..")


def test_a_listing_that_is_too_long_is_cut(reader: Reader) -> None:
    (reader.place / "many").mkdir()
    for number in range(limits.FILE_TREE_MAX_ENTRIES + 1):
        (reader.place / "many" / f"{number:06}").touch()
    payload = reader.ask("file_list", "many")["payload"]
    assert (len(payload["entries"]), payload["truncated"]) == (limits.FILE_TREE_MAX_ENTRIES, True)
    assert payload["more"] == 1
    shutil.rmtree(reader.place / "many")


def test_odd_names(reader: Reader) -> None:
    """Each can be read under the name that is listed, but the one that is no UTF-8."""
    names = [" ", 'quote"', "new\nline", "tab\t", "ümläut 会", "-rf", "*", "\\", "~", "a" * 255]
    for name in names:
        reader.write(name, name.encode())
    reader.write(os.fsdecode(b"bad\xff"), b"x")
    entries = reader.list(".")
    assert set(names) < set(entries) and len(entries) == len(names) + 1
    for name in names:
        assert reader.read(name)["content"] == name


@pytest.mark.spec("ws.file_read", "ws.file_read_response")
def test_a_text(reader: Reader) -> None:
    """D11: size is the file's bytes; a line ends with a newline and with nothing else."""
    texts = {b"": 0, b"one line\n": 1, b"no end": 1, b"\n\n\n": 3, b"a\r\nb\rc\n": 2}
    texts |= {"ü\u2028会\x0b\x85\n🎉".encode(): 2, b"\xef\xbb\xbfmark\n": 1}
    # characters and line ends that lie across the edges of what is read at once
    texts |= {("x" + "ä\r\n" * 600_000).encode(): 600_000}
    for data, lines in texts.items():
        reader.write("a", data)
        payload = reader.read("a")
        assert payload["content"].encode() == data
        about = (payload["size"], payload["lines"], payload["encoding"])
        assert about == (len(data), lines, "utf-8")


@pytest.mark.spec("file.read.default")
def test_offset_and_limit_count_lines(reader: Reader) -> None:
    """D11: the first line is 0; size and lines are the whole file's."""
    wanted: dict[Any, str] = {(0, 2): "x\nx\n", (2498, 5): "x\ny", (0, 2500): "x\n" * 2499 + "y"}
    wanted |= dict.fromkeys([(..., ...), (None, None)], "x\n" * 2000)
    reader.write("a", b"x\n" * 2499 + b"y")
    for (offset, limit), expected in (wanted | dict.fromkeys([(2500, 5), (9999, 1)], "")).items():
        payload = reader.read("a", offset=offset, limit=limit)
        assert (payload["content"], payload["size"], payload["lines"]) == (expected, 4999, 2500)


@pytest.mark.spec("versioning.wire_types", "limit.binary")
def test_a_binary_file_comes_whole_as_base64(reader: Reader) -> None:
    """D11: up to 5 MB, whatever lines were asked for; also a text but for its last byte."""
    text, most = b"text\n" * 50_000, os.urandom(5 * MIB - 2) + b"\xff\x00"
    for data in (bytes(range(256)), b"caf\xe9\n", text + b"\xff", text + b"\x00", most):
        reader.write("blob", data)
        payload = reader.read("blob", offset=0, limit=1)
        assert (payload["size"], payload["encoding"]) == (len(data), "base64")
        assert base64.b64decode(payload["content"], validate=True) == data
    reader.write("blob", most + b"\x00")
    reader.refused("file_read", "blob", "FILE_TOO_LARGE")


@pytest.mark.spec("file.read.charset")
def test_a_text_in_another_encoding(reader: Reader) -> None:
    """D11: whole as base64, and beside it decoded, with the encoding's name; where that is sure."""
    for name, text in {"shift_jis": "設定を読み込む\n\nエラー", "iso-8859-1": "Höhe\n"}.items():
        reader.write("blob", text.encode(name))
        payload = reader.read("blob", offset=1, limit=1)
        assert base64.b64decode(payload["content"]) == text.encode(name)
        assert (payload["text"], payload["charset"]) == (text, name)
        assert (payload["encoding"], payload["lines"]) == ("base64", len(text.splitlines()))
    for data in ("naïve é".encode() + b" caf\xe9", b"\xff\xfe\x00\xd8", b"\xff\x00"):
        reader.write("blob", data)
        assert {"text", "charset"}.isdisjoint(reader.read("blob"))


@pytest.mark.spec("limit.max_message_size_mb")
def test_a_text_that_is_too_large(reader: Reader) -> None:
    """D12: FILE_TOO_LARGE, or the lines that were asked for where they fit. What counts is their
    JSON, in which control characters are six times as long.
    """
    reader.write("large", b"x" * 99 + b"\n" + b"y\n" * (6 * MIB))
    reader.refused("file_read", "large", "FILE_TOO_LARGE")
    assert reader.read("large", offset=0, limit=1)["content"] == "x" * 99 + "\n"
    for size, most in ((MIB, None), (2 * MIB, "FILE_TOO_LARGE")):
        reader.write("grows", b"\x1b" * size)
        assert reader.ask("file_read", "grows")["payload"].get("code") == most
