"""GET /files/tree, file_list and file_read (D11, D12): what is shown, in which order and bounds."""

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
from files_app.content import modified_at, read_lines
from files_app.tree import listing, tree
from tests.files.conftest import House, as_nobody, messages_of, no_leak, refused

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
    shown = names(tree(house.jail, str(house.second))["entries"])
    assert list(shown) == ["B", "a", "z", "A.txt", "b.txt", "c.txt", "é.txt"]


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

    first = {"deep": {"f": 5}, "f1": 5, "f2": 5}
    files = {"c.txt": 18, "e.txt": 5}
    whole = {"d1": first, "d2": {"f1": 5}, "d3": {"f1": 5}} | files
    shut = dict.fromkeys(("d1", "d2", "d3"))
    assert cut(11) == (whole, None)
    assert cut(10) == (whole | {"d1": first | {"deep": None}}, True)
    assert cut(7) == (shut | files | {"d1": {"deep": None, "f1": 5}}, True)
    assert cut(5) == (shut | files, True)
    assert cut(2) == (dict.fromkeys(("d1", "d2")), True)


def test_a_long_listing_is_cut(house: House) -> None:
    make(house.second, "1", "2", "3")
    with entries_of(2):
        answer = listing(house.jail, str(house.second))
    shown = [{"name": name, "type": "file", "size": 5} for name in "12"]
    assert answer == {"path": str(house.second), "entries": shown, "truncated": True}
    assert FileListResponse(session_id="s", **answer).wire() == answer | {"session_id": "s"}


# -- content ---------------------------------------------------------------------------------------


def test_the_whole_message_fits_not_only_the_bytes(house: House) -> None:
    """Control characters grow sixfold in JSON. Over HTTP: tests/attack/test_large_files.py."""
    file = house.root / "file"
    with messages_of(limits.MB):
        file.write_bytes(b"\x1b" * 300_000)
        with no_leak(), refused("FILE_TOO_LARGE"):
            read_lines(house.jail, "file")
        file.write_bytes(b"\x1b" * 150_000)
        assert len(json.dumps(read_lines(house.jail, "file"))) < limits.MB


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "1969-12-31T23:59:59.000Z"),
        (-(10**12), "0001-01-01T00:00:00.000Z"),
        (10**12, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_times_that_no_calendar_holds(seconds: int, text: str) -> None:
    assert modified_at(os.stat_result([0] * 10, {"st_mtime_ns": seconds * 10**9})) == text
