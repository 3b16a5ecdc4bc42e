"""GET /files/tree and file_list: what is shown of a directory, and in which order and bounds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import limits
from bridge_project.protocol.http import FileTree
from bridge_project.protocol.repository_messages import FileListResponse
from files_app.tree import listing, tree
from tests.files.conftest import House, as_nobody, messages_of, no_leak

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


@contextmanager
def entries_of(most: int) -> Iterator[None]:
    """An answer has so many entries at most."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "FILE_TREE_MAX_ENTRIES", most)
        yield


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
        with entries_of(most), no_leak():
            answer = tree(house.jail, path, 20)
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


def test_a_long_listing_is_cut(house: House) -> None:
    make(house.second, "1", "2", "3")
    with entries_of(2):
        answer = listing(house.jail, str(house.second))
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
    with messages_of(40_000):
        answer = listing(house.jail, str(house.second))
    assert answer["truncated"] and 5 < len(answer["entries"]) < 100
    assert len(json.dumps(answer)) < 40_000
    assert len(listing(house.jail, str(house.second))["entries"]) == 101
