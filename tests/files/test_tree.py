"""GET /files/tree and file_list: what is shown of a directory, and in which order and bounds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.path_jail import Jail
from bridge_project.protocol.http import FileTree
from bridge_project.protocol.repository_messages import FileListResponse
from files_app.tree import listing, tree
from tests.files.conftest import House, as_nobody, no_leak, refused

Entries = list[dict[str, Any]]


def names(entries: Entries) -> dict[str, Any]:
    """{name: size of a file, children of a directory or None when it was not looked into}."""
    return {
        e["name"]: e["size"]
        if e["type"] == "file"
        else names(e["children"])
        if "children" in e
        else None
        for e in entries
    }


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            (root / path).mkdir()
        else:
            (root / path).write_bytes(b"12345")


BAD_DEPTHS = [
    0,
    -1,
    21,
    3.0,
    True,
    None,
    [3],
    "9" * 5000,
    "",
    "0",
    "-1",
    "21",
    "3.0",
    " 3",
    "٣",
    "3\n",
]


@pytest.mark.parametrize("depth", BAD_DEPTHS)
def test_a_bad_depth(house: House, depth: object) -> None:
    with refused("FILE_INVALID_PATH"):
        tree(house.jail, ".", depth)


def test_directories_come_first_then_names(house: House) -> None:
    make(house.second, "z/", "B/", "a/", "b.txt", "A.txt", "é.txt")
    assert list(names(tree(house.jail, str(house.second))["entries"])) == [
        "B",
        "a",
        "z",
        "A.txt",
        "b.txt",
        "c.txt",
        "é.txt",
    ]


def test_links_are_shown_as_what_they_lead_to(house: House) -> None:
    os.symlink("../second", house.root / "to-directory")
    os.symlink("docs/b.txt", house.root / "to-file")
    for name, target in {
        "out": str(house.outside),
        "out-file": "../outside/secret.txt",
        "out-nothing": "../nothing",
        "broken": "nothing",
        "self": "self",
        "data": "var",
    }.items():
        os.symlink(target, house.root / name)
    with no_leak():
        answer = tree(house.jail, ".", 3)
    assert names(answer["entries"]) == {
        "docs": {"b.txt": 11},
        "to-directory": {"c.txt": 18},
        "a.txt": 7,
        "to-file": 11,
    }


def test_link_loops_end(house: House) -> None:
    os.symlink(".", house.root / "docs" / "here")
    os.symlink("..", house.root / "docs" / "up")
    os.symlink(house.second, house.root / "docs" / "other")
    os.symlink(house.root / "docs", house.second / "back")
    with no_leak():
        answer = tree(house.jail, ".", 20)
    assert names(answer["entries"]) == {
        "docs": {"here": None, "other": {"back": None, "c.txt": 18}, "up": None, "b.txt": 11},
        "a.txt": 7,
    }


def test_git_is_shown_but_not_entered(house: House) -> None:
    make(house.second, ".git/HEAD", "sub/.git/HEAD", ".github/f")
    os.symlink(".git", house.second / "link")
    answer = tree(house.jail, str(house.second), 20)
    assert names(answer["entries"]) == {
        ".git": None,
        ".github": {"f": 5},
        "link": None,
        "sub": {".git": None},
        "c.txt": 18,
    }
    assert names(tree(house.jail, f"{house.second}/.git")["entries"]) == {"HEAD": 5}


def test_the_data_directory_does_not_appear(house: House) -> None:
    assert "var" not in json.dumps(tree(house.jail, ".", 20))
    assert "var" not in json.dumps(listing(house.jail, "."))
    alias = house.root / "docs" / "alias"
    house.data.rename(alias)
    house.data.symlink_to(alias)
    assert "alias" not in json.dumps(tree(house.jail, ".", 20))


def test_a_data_directory_that_is_made_meanwhile_does_not_appear(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Jail, "forbidden_identities", lambda _: frozenset())
    assert "var" not in json.dumps(tree(house.jail, ".", 20))


def test_an_unreadable_directory_is_shown_empty(house: House) -> None:
    make(house.second, "shut/f", "listed/f", "entered/f")
    for name, mode in {"shut": 0, "listed": 0o444, "entered": 0o111}.items():
        (house.second / name).chmod(mode)
    with as_nobody(), no_leak():
        answer = tree(house.jail, str(house.second))
    assert names(answer["entries"]) == {"entered": {}, "listed": {}, "shut": {}, "c.txt": 18}


def test_too_many_entries_are_cut_from_below(house: House) -> None:
    make(house.second, "d1/deep/f", "d1/f1", "d1/f2", "d2/f1", "d3/f1", "e.txt")
    path = str(house.second)

    def cut(most: int) -> tuple[Any, Any]:
        with no_leak():
            answer = tree(house.jail, path, 20, max_entries=most)
        assert FileTree.model_validate(answer).wire() == answer
        return names(answer["entries"]), answer.get("truncated")

    whole = {
        "d1": {"deep": {"f": 5}, "f1": 5, "f2": 5},
        "d2": {"f1": 5},
        "d3": {"f1": 5},
        "c.txt": 18,
        "e.txt": 5,
    }
    assert cut(11) == (whole, None)
    assert cut(10) == (whole | {"d1": {"deep": None, "f1": 5, "f2": 5}}, True)
    assert cut(7) == (
        {"d1": {"deep": None, "f1": 5}, "d2": None, "d3": None, "c.txt": 18, "e.txt": 5},
        True,
    )
    assert cut(5) == ({"d1": None, "d2": None, "d3": None, "c.txt": 18, "e.txt": 5}, True)
    assert cut(2) == ({"d1": None, "d2": None}, True)


def test_a_directory_of_millions_is_not_looked_through(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(house.second, "full/x", *(f"full/{n:03}" for n in range(50)))
    monkeypatch.setattr(limits, "FILE_SCAN_MAX_ENTRIES", 10)
    looked: list[str] = []
    scan = os.scandir

    @contextmanager
    def counting(fd: int) -> Iterator[Iterator[os.DirEntry[str]]]:
        def each(entries: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
            for entry in entries:
                if isinstance(fd, int):  # not a look for secrets, which is by path
                    looked.append(entry.name)
                yield entry

        with scan(fd) as entries:
            yield each(entries)

    monkeypatch.setattr(os, "scandir", counting)
    answer = tree(house.jail, f"{house.second}/full", max_entries=10)
    assert answer["truncated"] is True
    assert len(answer["entries"]) == 10
    assert len(looked) == 11


def test_two_descriptors_are_enough_for_any_tree(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(house.second, *(f"{a}/{b}/{c}/f" for a in "abc" for b in "abc" for c in "abc"))
    most = 0
    before = len(os.listdir("/proc/self/fd"))
    scan = os.scandir

    def counting(fd: int) -> Any:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")) - before)
        return scan(fd)

    monkeypatch.setattr(os, "scandir", counting)
    with no_leak():
        tree(house.jail, str(house.second), 20)
    assert most == 2


def after_a_look_at(
    monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[], object]
) -> None:
    """Let something happen between the walk's look at a name and what it does next."""
    stat = os.stat

    def looking(path: Any, **more: Any) -> os.stat_result:
        found = stat(path, **more)
        if path == name and "dir_fd" in more:
            change()
        return found

    monkeypatch.setattr(os, "stat", looking)


def test_what_vanishes_meanwhile_is_skipped(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    make(house.second, "d/f")
    with monkeypatch.context() as patched:
        after_a_look_at(patched, "d", lambda: (house.second / "d").rename(house.top / "moved"))
        with no_leak():
            answer = tree(house.jail, str(house.second))
    assert names(answer["entries"]) == {"d": {}, "c.txt": 18}


def test_a_directory_swapped_for_a_link_outside_is_not_entered(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(house.second, "d/f")

    def swap() -> None:
        (house.second / "d").rename(house.top / "moved")
        os.symlink(house.outside, house.second / "d")

    with monkeypatch.context() as patched:
        after_a_look_at(patched, "d", swap)
        answer = tree(house.jail, str(house.second))
    assert names(answer["entries"]) == {"d": {}, "c.txt": 18}


def test_the_whole_disk_as_root(house: House) -> None:
    os.symlink("/", house.second / "all")
    jail = Jail(["/"], [str(house.data), "/proc", "/sys"])
    with no_leak():
        answer = tree(jail, str(house.second), 2)
        top = tree(jail, "/", 1)
    assert "tmp" in names(answer["entries"])["all"]
    assert "tmp" in names(top["entries"])
    assert "proc" not in names(top["entries"])


def test_a_long_listing_is_cut(house: House) -> None:
    make(house.second, "1", "2", "3")
    answer = listing(house.jail, str(house.second), max_entries=2)
    assert answer == {
        "path": str(house.second),
        "entries": [
            {"name": "1", "type": "file", "size": 5},
            {"name": "2", "type": "file", "size": 5},
        ],
        "truncated": True,
    }
    assert FileListResponse(session_id="s", **answer).wire() == answer | {"session_id": "s"}


def test_a_listing_fits_in_a_message(house: House) -> None:
    """max_message_size_mb, also where names grow in JSON."""
    make(house.second, *(f"{number:03}" + "\x01" * 200 for number in range(100)))
    answer = listing(house.jail, str(house.second), max_bytes=40_000)
    assert answer["truncated"] and 5 < len(answer["entries"]) < 100
    assert len(json.dumps(answer)) < 40_000
    assert len(listing(house.jail, str(house.second))["entries"]) == 101
