"""git_commit (spec, WebSocket operations; D10): what is committed, what is answered, and that a
refusal leaves the repository as it was.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message
from tests.conformance.repositories import Repository, Work, changes, committed
from tests.conformance.samples import hook
from tests.conformance.test_git_status import ODD_NAMES

pytestmark = pytest.mark.spec("ws.git_commit")


def state(repository: Repository) -> tuple[str, str, list[str]]:
    """HEAD, what git status says of index and work tree, and what is staged."""
    return (
        repository.git("rev-parse", "--verify", "-q", "HEAD", check=False),
        repository.porcelain(),
        repository.staged(),
    )


def assert_as_it_was(
    answer: Message,
    repository: Repository,
    before: tuple[str, str, list[str]],
    code: str = "GIT_ERROR",
) -> dict[str, Any]:
    """D10: `error` with the code, recoverable, and nothing staged that was not staged before."""
    payload = assert_refused(answer, code, True)
    assert state(repository) == before
    return payload


def test_all_that_is_staged(repository: Repository, work: Work) -> None:
    """D10: files null: all staged, nothing else; answered by the fresh status plus commit {hash,
    summary, files_changed, additions, deletions}.
    """
    first = repository.commit_files({"a": "1\n2\n", "b": "1\n"})
    repository.write("a", "one\ntwo\n2\n")
    repository.write("new", "1\n2\n3\n")
    repository.git("add", "a", "new")
    repository.write("b", "2\n")
    repository.write("untracked", "1\n")
    answer = work.commit("Change a\n\nAnd add one.")
    summary = committed(answer, work.sid)
    assert summary == {
        "hash": repository.head(),
        "summary": "Change a",
        "files_changed": 2,
        "additions": 5,
        "deletions": 1,
    }
    assert {path: kind for path, (kind, _, _) in changes(dict(answer["payload"])).items()} == {
        "b": "modified",
        "untracked": "untracked",
    }
    assert answer["payload"]["branch"] == "main" and answer["payload"]["is_clean"] is False
    assert repository.git("log", "-1", "--format=%P %an %B").split() == [
        first,
        "Ada",
        "Change",
        "a",
        "And",
        "add",
        "one.",
    ]


@pytest.mark.spec("git.commit.files")
def test_named_files(repository: Repository, work: Work) -> None:
    """Issue, D10: as they are in the work tree: modified, untracked, deleted, in a directory. What
    is staged of them does not count; what is staged of others stays.
    """
    repository.commit_files(
        {"a": "1\n", "staged": "1\n", "gone": "1\n", "removed": "1\n", "d/x": "1\n", "d/y": "1\n"}
    )
    for name in ("a", "staged", "added"):
        repository.write(name, "staged\n")
    repository.git("add", "a", "staged", "added")
    repository.git("rm", "-q", "removed")
    for name in ("a", "staged"):
        repository.write(name, "work tree\n")
    (repository.path / "gone").unlink()
    repository.write("d/x", "2\n")
    repository.write("d/new/z", "something new\n")
    (repository.path / "d/y").chmod(0o755)
    summary = work.committed("Some", ["a", "gone", "removed", "d"])
    assert (summary["files_changed"], summary["additions"], summary["deletions"]) == (6, 3, 4)
    assert sorted(repository.git("show", "--name-only", "--format=").split()) == [
        "a",
        "d/new/z",
        "d/x",
        "d/y",
        "gone",
        "removed",
    ]
    assert repository.git("show", "HEAD:a") == "work tree\n"
    assert sorted(repository.staged()) == ["added", "staged"]
    assert repository.git("show", ":staged") == "staged\n"
    assert repository.git("diff", "--name-only").split() == ["staged"]


def test_a_detached_head(repository: Repository, work: Work) -> None:
    """D10: a commit there is a commit."""
    first = repository.commit_files({"a": "1\n"})
    repository.git("checkout", "-q", "--detach")
    repository.write("a", "2\n")
    summary = work.committed("Detached", ["a"])
    assert summary["hash"] == repository.head()
    assert repository.git("rev-parse", "main").strip() == first


MESSAGES = (
    "-m",
    "--amend",
    "# no comment",
    "two\n\nparagraphs\n# and a comment",
    "ümläut 会 🎉 %s %n $(id) `id` \\",
    "x" * 20_000,
)


def test_messages(repository: Repository, work: Work) -> None:
    """Issue, bad input: messages beginning with `-`: a message is a message, as it was sent."""
    parent = repository.commit_files({"a": "0\n"})
    for number, message in enumerate(MESSAGES, 1):
        repository.write("a", f"{number}\n")
        summary = work.committed(message, ["a"])
        assert repository.git("log", "-1", "--format=%B").strip() == message.strip()
        assert repository.git("rev-parse", "HEAD^").strip() == parent, (
            "one more commit, no other one changed"
        )
        assert summary["summary"][:100] == message.splitlines()[0][:100]
        parent = repository.head()


@pytest.mark.spec("wscode.GIT_ERROR")
def test_nothing_to_commit(repository: Repository, work: Work) -> None:
    """D10: GIT_ERROR, the reason in message; what is changed and not staged is not meant."""
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    before = state(repository)
    answer = work.commit("Nothing")
    assert "commit" in assert_as_it_was(answer, repository, before)["message"].lower()


def hook_file(repository: Repository, name: str, text: str) -> None:
    path = repository.write(f".git/hooks/{name}", f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "files"), [("pre-commit", None), ("commit-msg", ["a", "untracked"])]
)
def test_a_hook_that_refuses(
    repository: Repository, work: Work, name: str, files: list[str] | None
) -> None:
    """D10: GIT_ERROR with the hook's own words; nothing staged that was not staged before."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    hook_file(repository, name, "echo 'the tests fail: seven of nine' >&2\nexit 1")
    for path in ("a", "b", "untracked"):
        repository.write(path, "2\n")
    repository.git("add", "b")
    before = state(repository)
    payload = assert_as_it_was(work.commit("Refused", files), repository, before)
    assert "seven of nine" in payload["message"]


def test_a_hook_that_asks_a_terminal(repository: Repository, work: Work) -> None:
    """Issue: a hook that reads its standard input gets nothing, and holds nobody up."""
    repository.commit_files({"a": "1\n"})
    hook_file(repository, "pre-commit", "read answer && exit 1\nexit 0")
    repository.write("a", "2\n")
    work.committed("Asked", ["a"])


def test_a_conflict(repository: Repository, work: Work) -> None:
    """D10: a conflict: GIT_ERROR, and it is still the same conflict."""
    repository.commit_files({"a": "base\n", "b": "1\n"})
    repository.git("checkout", "-q", "-b", "other")
    repository.commit_files({"a": "theirs\n"})
    repository.git("checkout", "-q", "main")
    repository.commit_files({"a": "ours\n"})
    repository.git("merge", "-q", "other", check=False)
    repository.write("b", "2\n")
    before = state(repository)
    for files in (None, ["a"], ["b"]):
        assert_as_it_was(work.commit("Conflict", files), repository, before)
    assert (repository.path / ".git" / "MERGE_HEAD").exists()


def test_names_that_are_options_or_patterns(repository: Repository, work: Work) -> None:
    """Issue, bad input: names that are options: each is a name, and means itself alone."""
    repository.commit_files({"a": "1\n", "b.star": "1\n"})
    for name in ("a", "b.star", *ODD_NAMES):
        repository.write(name, "2\n")
    summary = work.committed("Odd", ODD_NAMES)
    assert summary["files_changed"] == len(ODD_NAMES)
    assert sorted(
        repository.git("show", "--name-only", "--format=", "-z").strip("\0\n").split("\0")
    ) == sorted(ODD_NAMES)
    assert sorted(repository.git("diff", "--name-only").split()) == ["a", "b.star"]


def test_ten_thousand_files(repository: Repository, work: Work) -> None:
    """Issue, bad input: 10,000 files in one commit, each named: more than a command line holds."""
    repository.commit_files({"a": "1\n"})
    names = [
        f"{'a long directory name ' * 8}/{number // 500}/file number {number}"
        for number in range(10_000)
    ]
    for name in names:
        repository.write(name, "1\n")
    answer = work.commit("Many", names)
    summary = committed(answer, work.sid)
    assert (summary["files_changed"], summary["additions"]) == (10_000, 10_000)
    assert answer["payload"]["is_clean"] is True


def test_a_closed_session(shared: Bridge, repository: Repository, work: Work) -> None:
    """D7: git requests work in a closed observed session that is joined."""
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    shared.accept(hook("SessionEnd", work.sid))
    assert work.committed("Late", ["a"])["hash"] == repository.head()
