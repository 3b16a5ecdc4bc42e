"""GET /files/tree and file_list (D12): what is left out of an answer that would be too large."""

from typing import Any

import pytest

from bridge_project.kernel import limits
from bridge_project.protocol.http import FileTree
from files_app.tree import listing, tree
from tests.files.conftest import House


def names(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """{name: size of a file, children of a directory or None when it was not looked into}."""
    found = {}
    for entry in entries:
        below = names(entry["children"]) if "children" in entry else None
        found[entry["name"]] = entry["size"] if entry["type"] == "file" else below
    return found


def test_too_many_entries_are_cut_from_below(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("d1/deep/f", "d1/f1", "d1/f2", "d2/f1", "d3/f1"):
        (house.second / path).parent.mkdir(parents=True, exist_ok=True)
        (house.second / path).write_bytes(b"12345")
    path = str(house.second)

    def cut(most: int) -> tuple[Any, Any]:
        monkeypatch.setattr(limits, "FILE_TREE_MAX_ENTRIES", most)
        answer = tree(house.jail, path, 20)
        assert FileTree.model_validate(answer).wire() == answer
        return names(answer["entries"]), answer.get("truncated")

    first, files = {"deep": {"f": 5}, "f1": 5, "f2": 5}, {"c.txt": 18}
    whole = {"d1": first, "d2": {"f1": 5}, "d3": {"f1": 5}} | files
    shut = dict.fromkeys(("d1", "d2", "d3"))
    assert cut(10) == (whole, None)
    assert cut(9) == (whole | {"d1": first | {"deep": None}}, True)
    assert cut(6) == (shut | files | {"d1": {"deep": None, "f1": 5}}, True)
    assert cut(4) == (shut | files, True)
    assert cut(2) == (dict.fromkeys(("d1", "d2")), True)
    assert [entry["name"] for entry in listing(house.jail, path)["entries"]] == ["d1", "d2"]
