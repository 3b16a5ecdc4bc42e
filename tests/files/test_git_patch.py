"""A patch that git writes, of whatever is in the files (D10)."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as some

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


def read(data: bytes) -> dict[str, Change]:
    lists = Lists(data, cut=False)
    patch.read_lines(lists, lists.by_name, Budget(10**9, 10**9), cut=False)
    return lists.by_name


def said(change: Change, *kinds: str) -> list[DiffLine]:
    return [line for hunk in change.hunks for line in hunk.lines if line.type in kinds]


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
