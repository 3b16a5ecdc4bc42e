"""What git writes, as text: patches and states (STACK 13; D10)."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge_project.protocol.jsontext import dumps_unicode
from bridge_project.protocol.resources import DiffLine
from files_app.git import patch
from files_app.git.patch import Budget, Change, Lists
from tests.conformance.repositories import Repository

# What breaks readers of diffs: their own marks, other ends of lines, bytes that are no text.
LINES = some.lists(
    some.one_of(
        some.sampled_from(
            [
                b"",
                b"-- a/x",
                b"++ b/x",
                b"@@ -1 +1 @@",
                b"diff --git a/x b/x",
                b"\\ No newline",
                b"rename to x",
                b"\r",
                b"\xe2\x80\xa8",
                b"\xff",
            ]
        ),
        some.binary(max_size=6).map(lambda data: data.replace(b"\n", b"").replace(b"\0", b"")),
    ),
    max_size=12,
)


LISTED = ("diff", "--raw", "--numstat", "-z", "--patch", "--no-abbrev", "--find-renames")


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("repository"))


def read(data: bytes, budget: Budget | None = None, *, cut: bool = False) -> dict[str, Change]:
    lists = Lists(data, cut=cut)
    patch.read_lines(lists, lists.by_name, budget or Budget(10**9, 10**9), cut=cut)
    return lists.by_name


def said(change: Change, *kinds: str) -> list[DiffLine]:
    return [line for hunk in change.hunks for line in hunk.lines if line.type in kinds]


# -- patches ---------------------------------------------------------------------------------------


@given(old=LINES, new=LINES, old_ends=some.booleans(), new_ends=some.booleans())
def test_a_diff_of_anything_gives_back_both_files(
    lonely: Repository, old: list[bytes], new: list[bytes], old_ends: bool, new_ends: bool
) -> None:
    """Context and removed lines are the old file, context and added ones the new; counts and the
    missing newline are right.
    """
    before, after = (
        b"\n".join(lines) + b"\n" * (ends and bool(lines))
        for lines, ends in ((old, old_ends), (new, new_ends))
    )
    lonely.write("f", before)
    lonely.git("add", "f")
    lonely.write("f", after)
    data = os.fsencode(lonely.git(*LISTED, "--text", "--unified=1000"))
    if before == after:
        assert data == b""
        return
    change = read(data)["f"]
    assert not change.cut
    assert change.additions == len(said(change, "added"))
    assert change.deletions == len(said(change, "removed"))
    for kind, content in (("removed", before), ("added", after)):
        lines = said(change, "context", kind)
        assert [line.content for line in lines] == [
            line.decode("utf-8", "replace")
            for line in content.split(b"\n")[: None if content[-1:] not in (b"\n", b"") else -1]
        ]
        if lines:
            assert bool(lines[-1].no_newline) == (not content.endswith(b"\n"))
            assert not any(line.no_newline for line in lines[:-1] if line.type == "context")
    for hunk in change.hunks:
        kinds = [line.type for line in hunk.lines]
        assert hunk.old_lines == len(kinds) - kinds.count("added")
        assert hunk.new_lines == len(kinds) - kinds.count("removed")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What git says of files of every kind: ones that have no lines, one that is now another kind
    of thing, one in conflict, and names that it would put into quotes.
    """
    repository = Repository(tmp_path_factory.mktemp("repository"))
    text = "".join(f"{number}\n" for number in range(9))
    repository.commit_files(
        {"script": "1\n", "gone": "", "image": b"\0", "x": text, "link": "a\nb\n", "z": "0\n"}
    )
    repository.git("checkout", "-q", "-b", "other")
    repository.commit_files({"conflict": "1\n"})
    repository.git("checkout", "-q", "main")
    repository.commit_files({"conflict": "2\n"})
    repository.git("merge", "-q", "other", check=False)
    (repository.path / "script").chmod(0o755)
    (repository.path / "gone").unlink()
    repository.write("image", b"\0\1")
    (repository.path / "x").unlink()
    repository.write("x b/x b", f"new\n{text}")
    repository.git("add", "-N", "x b/x b")
    (repository.path / "link").unlink()
    (repository.path / "link").symlink_to("z")
    repository.write('tab\t"ü', "--- a/x\n+++ b/x\ndiff --git a/z b/z\n@@ -1 +1 @@\n")
    repository.git("add", "-N", 'tab\t"ü')
    repository.write("z", "1\n")
    return os.fsencode(repository.git(*LISTED, "--ours"))


def test_the_kinds_of_changes(kinds: bytes) -> None:
    found = {
        name: [[line.content for line in hunk.lines] for hunk in change.hunks]
        for name, change in read(kinds).items()
    }
    conflict = found.pop("conflict")
    assert found == {
        "gone": [],
        "image": [],
        "link": [["a", "b"], ["z"]],
        "script": [],
        'tab\t"ü': [["--- a/x", "+++ b/x", "diff --git a/z b/z", "@@ -1 +1 @@"]],
        "x b/x b": [["new", "0", "1", "2"]],
        "z": [["0", "1"]],
    }
    assert conflict and not any(change.cut for change in read(kinds).values())


@given(data=some.data())
def test_a_patch_without_its_end(kinds: bytes, data: some.DataObject) -> None:
    """Whatever is missing, what is there is right, and what lacks lines says so."""
    end = data.draw(some.integers(0, len(kinds)))
    whole = read(kinds)
    for name, change in read(kinds[:end], cut=True).items():
        assert change.cut or change == whole[name]


@given(
    lines=some.lists(some.text(alphabet='a"\\\x01ü\t😀', max_size=30), min_size=1, max_size=30),
    room=some.integers(0, 3000),
    most=some.integers(0, 40),
)
def test_what_is_said_stays_in_the_budget(lines: list[str], room: int, most: int) -> None:
    """Bytes of JSON, and lines; the cut is where it ends, and never in a line."""
    data = (
        f":100644 100644 1 1 M\0f\0{len(lines)}\t0\tf\0\0diff --git a/f b/f\n--- a/f\n+++ b/f\n"
        f"@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)
    )
    change = read(data.encode(), Budget(room, most))["f"]
    added = said(change, "added")
    assert len(dumps_unicode([hunk.wire() for hunk in change.hunks]).encode()) <= max(room, 2)
    assert len(added) <= most
    assert [line.content for line in added] == lines[: len(added)]
    assert change.cut == (len(added) < len(lines))
