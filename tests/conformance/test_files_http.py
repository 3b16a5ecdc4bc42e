"""GET /files/tree and GET /files/content (spec, Endpoints and File resources; D12, D14, D45)."""

import base64
import os
import shutil
import stat
import subprocess
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import Response, assert_error, assert_now


@pytest.fixture
def place(shared: Bridge) -> Path:
    """A directory of this test alone, inside the first allowed root."""
    directory = shared.root / f"place-{uuid.uuid4().hex[:8]}"
    directory.mkdir()
    return directory


def ask(bridge: Bridge, what: str, path: object = None, **query: object) -> Response:
    given = {name: value for name, value in ({"path": path} | query).items() if value is not None}
    quoted = {name: quote(os.fsencode(str(value)), safe="") for name, value in given.items()}
    query_string = "&".join(f"{name}={value}" for name, value in quoted.items())
    return bridge.get(f"/api/v1/files/{what}?{query_string}", bridge.admin_token)


def content(bridge: Bridge, path: object) -> dict[str, Any]:
    answer = ask(bridge, "content", path)
    assert answer.status == 200, answer
    return dict(answer.json())


def tree(bridge: Bridge, path: object, **query: object) -> dict[str, dict[str, Any]]:
    answer = ask(bridge, "tree", path, **query)
    assert answer.status == 200, answer
    assert isinstance(answer.json()["path"], str)
    return named(answer.json()["entries"])


def named(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {entry["name"]: entry for entry in entries}
    assert len(found) == len(entries)
    return found


@pytest.mark.spec("http.files.tree", "file.tree.*")
def test_a_tree(shared: Bridge, place: Path) -> None:
    """Size and modified_at for files, children for directories, which come first; `.git` is shown
    but not entered, unless it is asked for.
    """
    for name in ("src", "Z", ".git", "A.git"):
        (place / name).mkdir()
    (place / "src" / "main.py").write_text("print(1)\n")
    (place / ".git" / "HEAD").write_text("x")
    for name in ("ünïcode.txt", "B.txt"):
        (place / name).write_text("x")
    entries = tree(shared, place)
    kinds = [(name, entry["type"], entry.get("size")) for name, entry in entries.items()]
    directories = [(name, "directory", None) for name in (".git", "A.git", "Z", "src")]
    assert kinds == [*directories, ("B.txt", "file", 1), ("ünïcode.txt", "file", 1)]
    assert [entry.get("children") for entry in entries.values()][:3] == [None, [], []]
    assert "children" not in entries["B.txt"] and set(tree(shared, place / ".git")) == {"HEAD"}
    (child,) = entries["src"]["children"]
    assert (child["name"], child["type"], child["size"]) == ("main.py", "file", 9)
    assert_now(child["modified_at"], 600)


@pytest.mark.spec("limit.tree_depth")
def test_depth(shared: Bridge, place: Path) -> None:
    (place / "d/d/d/d/d/d").mkdir(parents=True)
    for depth, levels in {None: 3, 1: 1, 20: 6}.items():
        assert ask(shared, "tree", place, depth=depth).body.count(b'"d"') == levels


@pytest.mark.spec("file.tree.cut")
def test_a_tree_that_is_too_large_is_cut_from_below(shared: Bridge, place: Path) -> None:
    """At 20,000 entries, with a fair share for each directory of a level; what git ignores is last.
    Where it was cut it says so, and how much is missing.
    """
    for number in range(1300):
        fill(place / f"node_modules/{number}", 16)
    fill(place / "src/app", 1)
    fill(place / "zoo", 3000)
    entries = tree(shared, place)
    packages = entries["node_modules"]["children"]
    shown = {len(one["children"]) for one in packages}
    assert len(packages) == 1300 and shown <= {12, 13}, "a share that fits"
    assert {one["more"] for one in packages} == {16 - count for count in shown}
    assert all(one["truncated"] for one in packages)
    assert len(entries["zoo"]["children"]) == 3000 and "truncated" not in entries["zoo"]
    assert [one["name"] for one in entries["src"]["children"][0]["children"]] == ["0"]
    assert ask(shared, "tree", place).json()["truncated"] is True
    # of what git ignores, what is left of the room
    fill(place / "data/b", 10_000)
    subprocess.run(["git", "init", "-q", place], check=True)
    (place / ".gitignore").write_text("node_modules\n")
    entries = tree(shared, place)
    assert len(entries["data"]["children"][0]["children"]) == 10_000
    shown = {len(one["children"]) for one in entries["node_modules"]["children"]}
    assert shown <= {4, 5}
    shutil.rmtree(place)  # or it would be in every tree of the root


def test_a_directory_of_100000_names(shared: Bridge, place: Path) -> None:
    """It leaves room for what is below the others, and it is known how many there are."""
    fill(place / "many", 100_000)
    fill(place / "src/app", 1)
    entries = tree(shared, place)
    assert [one["name"] for one in entries["src"]["children"][0]["children"]] == ["0"]
    many = entries["many"]
    assert many["truncated"] is True and len(many["children"]) > 19_000
    body = ask(shared, "tree", place / "many", depth=1).json()
    assert (len(body["entries"]), body["more"]) == (20_000, 80_000)
    shutil.rmtree(place)


def fill(directory: Path, count: int) -> None:
    directory.mkdir(parents=True)
    for name in range(count):
        os.mknod(directory / str(name))


@pytest.mark.spec("filecode.FILE_INVALID_PATH")
def test_what_is_no_depth_or_path(shared: Bridge, place: Path) -> None:
    for depth in ("-1", "0", "21", "3.0", "x", "٣", "3\n", "9" * 5000, "\x00"):
        assert_error(ask(shared, "tree", place, depth=depth), 400, "FILE_INVALID_PATH")
    for path in (None, "", "a\x00b", "\x00"):
        for what in ("tree", "content"):
            assert_error(ask(shared, what, path), 400, "FILE_INVALID_PATH")


@pytest.mark.spec("http.files.content versioning.wire_types filecode.FILE_TOO_LARGE")
def test_content(shared: Bridge, place: Path) -> None:
    """What is no text is base64. D12: up to 10 MB; as it is sent: attack/test_large_files.py."""
    text = "línea 1\r\nline 2\n\ttab\u2028end".encode()
    kinds = {text: "utf-8", b"": "utf-8", bytes(range(256)): "base64", b"caf\xe9": "base64"}
    for data, encoding in kinds.items():
        (place / "a.md").write_bytes(data)
        body = content(shared, place / "a.md")
        assert (body["size"], body["encoding"]) == (len(data), encoding)
        shown = body["content"]
        assert data == (shown.encode() if encoding == "utf-8" else base64.b64decode(shown))
        assert body["path"].endswith("a.md")
        assert_now(body["modified_at"], 600)
    os.truncate(place / "a.md", 10 * 2**20 + 1)
    assert_error(ask(shared, "content", place / "a.md"), 413, "FILE_TOO_LARGE")


def assert_denied(bridge: Bridge, *paths: object) -> None:
    for path in paths:
        for what in ("tree", "content"):
            assert_error(ask(bridge, what, path), 403, "FILE_ACCESS_DENIED")


@pytest.mark.spec("filecode.FILE_ACCESS_DENIED", "file.jail")
def test_outside(shared: Bridge) -> None:
    """D12: whether it exists or not. A root is a directory, not a prefix of names."""
    neighbour = shared.root.with_name(shared.root.name + "-private")
    neighbour.mkdir(exist_ok=True)
    (neighbour / "secret").write_text("s")
    absolute = ("/", "/etc", "/etc/passwd", "//etc/passwd", "/proc/self/environ", "/nonexistent/x")
    above = ("../outside", "../nothing/../allowed root", "../" * 500 + "etc/passwd")
    assert_denied(shared, *absolute, *above, neighbour / "secret", f"../{neighbour.name}/secret")


@pytest.mark.spec("filecode.FILE_NOT_FOUND")
def test_what_is_no_file_or_not_there(shared: Bridge, place: Path) -> None:
    """What is no file is denied, and nobody waits for it."""
    os.mkfifo(place / "fifo")
    (place / "link").symlink_to("fifo")
    os.mknod(place / "socket", stat.S_IFSOCK | 0o600)
    (place / "file").touch()
    for name in ("fifo", "link", "socket"):
        assert_error(ask(shared, "content", place / name), 403, "FILE_ACCESS_DENIED")
        assert_error(ask(shared, "tree", place / name), 400, "FILE_INVALID_PATH")
    assert set(tree(shared, place)) == {"file"}
    for what in ("tree", "content"):
        assert_error(ask(shared, what, place / "missing"), 404, "FILE_NOT_FOUND")
        for path in ("file/below", "n" * 5000, "d/" * 3000):
            assert_error(ask(shared, what, f"{place}/{path}"), (400, 404))


@pytest.mark.spec("file.jail")
def test_links_that_stay_inside(shared: Bridge, place: Path, tmp_path: Path) -> None:
    """D12: they are followed, and shown in a tree as what they lead to; a loop ends."""
    (tmp_path / "secret-name").write_text("1234567")
    (place / "docs").mkdir()
    (place / "docs" / "b.txt").write_text("12345")
    inside = {"here": Path("."), "to-directory": Path("docs"), "to-file": Path("docs/b.txt")}
    outside = {"out": tmp_path, "out-file": tmp_path / "secret-name", "chain": Path("out-file")}
    nowhere = {"broken": Path("nothing"), "self": Path("self")}
    for name, target in (inside | outside | nowhere).items():
        (place / name).symlink_to(target)
    for path in ("to-file", "to-directory/b.txt", "here/here/to-file"):
        assert content(shared, place / path)["content"] == "12345"
    for path in ("out-file", "out/secret-name", "chain"):
        assert_error(ask(shared, "content", place / path), 403, "FILE_ACCESS_DENIED")
    assert_error(ask(shared, "tree", place / "out"), 403, "FILE_ACCESS_DENIED")
    assert_error(ask(shared, "content", place / "self"), (400, 403, 404))
    assert_error(ask(shared, "content", place / "broken"), 404, "FILE_NOT_FOUND")
    answer = ask(shared, "tree", place, depth=15)
    assert answer.status == 200 and b"secret-name" not in answer.body
    entries = named(answer.json()["entries"])
    assert set(entries) == {"docs", *inside}
    assert entries["to-file"]["size"] == 5 == named(entries["docs"]["children"])["b.txt"]["size"]
    assert len(answer.body) < 10_000


def test_several_roots(two_roots: tuple[Bridge, Path]) -> None:
    """D12: a relative path starts at the first one, an absolute path may lie in any. D45: the data
    directory, which is one here, is never served: neither by name, nor by link, nor in a tree.
    """
    bridge, second = two_roots
    (bridge.root / "place").mkdir()
    for name in (bridge.root / "place/a.txt", second / "b.txt"):
        name.write_text(name.name)
    assert set(tree(bridge, "place")) == {"a.txt"} and "place" in tree(bridge, ".", depth=1)
    for path in ("place/a.txt", second / "b.txt"):
        assert content(bridge, path)["content"] == str(path)[-5:]
    assert_error(ask(bridge, "content", "b.txt"), 404, "FILE_NOT_FOUND")
    assert_denied(bridge, second.parent / "x")
    inside = list(bridge.data.rglob("*"))[:10]
    assert inside
    link = bridge.root / "link"
    link.symlink_to(bridge.data)
    linked = [link / path.relative_to(bridge.data) for path in inside]
    assert_denied(bridge, bridge.data, link, *inside, *linked)
    assert "link" not in tree(bridge, ".")
