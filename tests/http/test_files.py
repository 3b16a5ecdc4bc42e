"""GET /files/tree and GET /files/content over HTTP (D12, D45); what is in the answers is tested in
the files room.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest

from bridge_project.composition.system_views import document
from bridge_project.kernel.path_jail import Jail
from bridge_project.protocol.http import FileContent, FileTree
from files_app import views
from files_app.tree import tree
from tests.http.conftest import Api, check_error

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    inside = tmp_path / "inside"
    (inside / "a" / "b" / "c" / "d").mkdir(parents=True)
    (inside / "note.txt").write_text("hello\n")
    (inside / "naïve 名.txt").write_text("ü")
    (tmp_path / "outside.txt").write_text("no")
    (inside / "data").mkdir()
    (inside / "data" / "secret").write_text("no")
    (inside / "link").symlink_to("../outside.txt")
    jail = Jail([str(inside)], forbidden=[str(inside / "data")])
    monkeypatch.setattr(views, "default_jail", lambda: jail)
    return inside


def test_tree(device: Api, root: Path) -> None:
    body = device.get(f"/api/v1/files/tree?path={quote(str(root))}").json()
    FileTree.model_validate(body)
    assert body["path"] == os.path.realpath(root)
    assert [entry["name"] for entry in body["entries"]] == ["a", "naïve 名.txt", "note.txt"]
    assert body["entries"][0]["children"][0]["children"] == [{"name": "c", "type": "directory"}], (
        "three levels by default"
    )


def test_a_tree_that_is_cut_says_so(
    device: Api, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the code answers, the model of the OpenAPI document has."""
    monkeypatch.setattr(views, "tree", partial(tree, max_entries=2))
    body = device.get("/api/v1/files/tree?path=.").json()
    assert body["truncated"] is True and len(body["entries"]) == 2
    assert FileTree.model_validate(body).wire() == body
    assert "truncated" in json.loads(document())["components"]["schemas"]["FileTree"]["properties"]


def test_depth(device: Api, root: Path) -> None:
    body = device.get("/api/v1/files/tree?path=.&depth=1").json()
    assert body["entries"][0] == {"name": "a", "type": "directory"}


def test_content(device: Api, root: Path) -> None:
    body = device.get("/api/v1/files/content?path=note.txt").json()
    FileContent.model_validate(body)
    assert (body["content"], body["size"], body["encoding"]) == ("hello\n", 6, "utf-8")
    assert (
        device.get(f"/api/v1/files/content?path={quote('naïve 名.txt')}").json()["content"] == "ü"
    )


@pytest.mark.parametrize("endpoint", ["tree", "content"])
@pytest.mark.parametrize(
    ("query", "code", "status"),
    [
        ("", "FILE_INVALID_PATH", 400),
        ("?path=", "FILE_INVALID_PATH", 400),
        ("?path=a%00b", "FILE_INVALID_PATH", 400),
        ("?path=" + "x" * 5000, "FILE_INVALID_PATH", 400),
        ("?path=none", "FILE_NOT_FOUND", 404),
        ("?path=../outside.txt", "FILE_ACCESS_DENIED", 403),
        ("?path=%2e%2e/outside.txt", "FILE_ACCESS_DENIED", 403),
        ("?path=/etc/passwd", "FILE_ACCESS_DENIED", 403),
        ("?path=link", "FILE_ACCESS_DENIED", 403),
        ("?path=data", "FILE_ACCESS_DENIED", 403),
        ("?path=data/secret", "FILE_ACCESS_DENIED", 403),
    ],
)
def test_a_path_that_is_not_answered(
    device: Api, root: Path, endpoint: str, query: str, code: str, status: int
) -> None:
    check_error(device.get(f"/api/v1/files/{endpoint}{query}"), code, status)


@pytest.mark.parametrize("depth", ["0", "-1", "21", "abc", "", "1.5", "٣", "1e3"])
def test_a_depth_that_is_none(device: Api, root: Path, depth: str) -> None:
    check_error(
        device.get(f"/api/v1/files/tree?path=.&depth={quote(depth)}"), "FILE_INVALID_PATH", 400
    )
