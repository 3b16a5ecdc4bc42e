"""Paths over the socket (D12; issue, Build 4): the same jail as over HTTP, proof against links
swapped meanwhile; what is unreadable or vanishes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.reader import Reader
from tests.conformance.repositories import session_in
from tests.conformance.samples import prompt

pytestmark = pytest.mark.spec("file.jail")
BOTH = pytest.mark.parametrize("type_", ["file_read", "file_list"])


@BOTH
def test_bad_paths(reader: Reader, type_: str) -> None:
    """D12: bad path: FILE_INVALID_PATH."""
    for path in ("", "a\x00b", "\x00"):
        reader.refused(type_, path, "FILE_INVALID_PATH")


@BOTH
def test_not_there(reader: Reader, type_: str) -> None:
    """D12: FILE_NOT_FOUND, or FILE_INVALID_PATH where no file could be."""
    reader.write("a.txt", b"1")
    for path in (
        "missing",
        "missing/below",
        "a.txt/below",
        "n" * 5000,
        "d/" * 3000,
        "~/x",
        "$HOME",
        "file:///etc/passwd",
    ):
        reader.refused(type_, path, "FILE_NOT_FOUND", "FILE_INVALID_PATH")


OUTSIDE = "/ /etc /etc/passwd /proc/self/environ /nonexistent/x ../../outside ../../../../../../etc/passwd //etc/passwd ./../../x"


@BOTH
def test_outside(reader: Reader, type_: str) -> None:
    """D12: FILE_ACCESS_DENIED, whether it exists or not."""
    for path in OUTSIDE.split():
        reader.refused(type_, path, "FILE_ACCESS_DENIED")


def test_elsewhere_inside_the_roots(shared: Bridge, reader: Reader) -> None:
    """D12: relative paths start at the session's directory; up and out of it is inside while it is
    inside a root.
    """
    (shared.root / "top.txt").write_text("top")
    assert (
        reader.read("../top.txt")["content"]
        == "top"
        == reader.read(shared.root / "top.txt")["content"]
    )
    assert reader.place.name in reader.list("..")


def test_directories_and_files_are_not_each_other(reader: Reader) -> None:
    """Issue, bad input: files that are directories, and the other way round; a pipe hangs
    nobody.
    """
    reader.write("a.txt", b"1")
    os.mkfifo(reader.place / "pipe")
    reader.refused("file_read", ".", "FILE_INVALID_PATH", "FILE_NOT_FOUND")
    reader.refused("file_list", "a.txt", "FILE_INVALID_PATH", "FILE_NOT_FOUND")
    reader.refused("file_read", "pipe", "FILE_INVALID_PATH", "FILE_ACCESS_DENIED", "FILE_NOT_FOUND")
    assert "a.txt" in reader.list(".")


def test_links(reader: Reader, tmp_path: Path) -> None:
    """D12: links are followed only while they stay inside."""
    (tmp_path / "secret").write_text("the secret, 22 bytes..")
    reader.write("real/inside.txt", b"inside")
    links: dict[str, str | Path] = {
        "good": "real/inside.txt",
        "good dir": "real",
        "out": tmp_path / "secret",
        "out dir": tmp_path,
        "chain": "out",
        "loop": "loop",
        "dangling": "nowhere",
    }
    for name, target in links.items():
        (reader.place / name).symlink_to(target)
    assert (
        reader.read("good")["content"] == "inside" == reader.read("good dir/inside.txt")["content"]
    )
    for path in ("out", "out dir/secret", "chain"):
        reader.refused("file_read", path, "FILE_ACCESS_DENIED")
    reader.refused("file_list", "out dir", "FILE_ACCESS_DENIED")
    reader.refused("file_read", "loop", "FILE_ACCESS_DENIED", "FILE_INVALID_PATH", "FILE_NOT_FOUND")
    reader.refused("file_read", "dangling", "FILE_NOT_FOUND")
    entries = reader.list(".")
    assert entries["real"]["type"] == "directory" and entries.get("out", {}).get("size") != 22


def test_unreadable_files(reader: Reader) -> None:
    """Issue: unreadable files: FILE_ACCESS_DENIED (root may read all there is); the others in the
    directory are there.
    """
    reader.write("closed", b"1").chmod(0)
    assert "closed" in reader.list(".")
    if os.geteuid() == 0:
        assert reader.read("closed")["content"] == "1"
    else:
        reader.refused("file_read", "closed", "FILE_ACCESS_DENIED")


class Flicker(threading.Thread):
    """Does and undoes something as fast as it can."""

    def __init__(self, place: Path, target: Path) -> None:
        super().__init__(daemon=True)
        self.place, self.target, self.ended = place, target, threading.Event()

    def run(self) -> None:
        inside, current, link = self.place / "inside", self.place / "current", self.place / "link"
        while not self.ended.is_set():
            for target in (inside, self.target):
                link.symlink_to(target)
                os.replace(link, current)
            (self.place / "vanishing").write_bytes(b"x" * 100_000)
            (self.place / "vanishing").unlink()


@pytest.fixture
def flicker(reader: Reader, tmp_path: Path) -> Iterator[Flicker]:
    """`current` is a link that leads now inside, now outside; `vanishing` is there and gone."""
    (tmp_path / "name.txt").write_text("the secret")
    reader.write("inside/name.txt", b"inside")
    (reader.place / "current").symlink_to("inside")
    flicker = Flicker(reader.place, tmp_path)
    flicker.start()
    yield flicker
    flicker.ended.set()
    flicker.join(180)


def test_links_swapped_meanwhile(reader: Reader, flicker: Flicker) -> None:
    """D12: nothing swapped meanwhile leads out; vanishing files are there or not, and break
    nothing.
    """
    for _ in range(100):
        for path, expected in (("current/name.txt", "inside"), ("vanishing", "x" * 100_000)):
            answer = reader.ask("file_read", path)
            if answer["type"] == "error":
                assert answer["payload"]["code"] in (
                    "FILE_ACCESS_DENIED",
                    "FILE_NOT_FOUND",
                    "FILE_INVALID_PATH",
                ), answer
            else:
                assert expected.startswith(answer["payload"]["content"]), (
                    "the secret, or half of something else"
                )
    assert flicker.is_alive()


def test_other_sessions_directories(shared: Bridge, sid: str, phone: Phone, tmp_path: Path) -> None:
    """D12: a session without a directory, and one that works outside the roots, read nothing by
    relative paths, and inside the roots by absolute ones.
    """
    (shared.root / "top.txt").write_text("top")
    shared.accept(prompt(sid, 1))
    phone.join(sid)
    for session_id in (sid, session_in(shared, phone, tmp_path)):
        (tmp_path / "name.txt").write_text("the secret")
        answer = phone.request(
            "file_read", {"session_id": session_id, "path": "name.txt", "offset": 0, "limit": 1}
        )
        assert answer["type"] == "error" and answer["payload"]["code"] in (
            "FILE_ACCESS_DENIED",
            "FILE_NOT_FOUND",
            "FILE_INVALID_PATH",
        ), answer
        answer = phone.request(
            "file_read",
            {
                "session_id": session_id,
                "path": str(shared.root / "top.txt"),
                "offset": 0,
                "limit": 1,
            },
        )
        assert (
            answer["payload"].get("content") == "top"
            or answer["payload"]["code"] == "FILE_ACCESS_DENIED"
        ), answer
