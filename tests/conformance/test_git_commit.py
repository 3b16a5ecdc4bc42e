"""git_commit (spec, WebSocket operations; D10): what is committed, what is answered, and that a
refusal leaves the repository as it was.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.repositories import Repository, changes, commit, committed, session_in
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


def test_all_that_is_staged(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """D10: files null: all staged, nothing else; answered by the fresh status plus commit {hash,
    summary, files_changed, additions, deletions}.
    """
    first = repository.commit_files({"a": "1\n2\n", "b": "1\n"})
    repository.write("a", "one\ntwo\n2\n")
    repository.write("new", "1\n2\n3\n")
    repository.git("add", "a", "new")
    repository.write("b", "2\n")
    repository.write("untracked", "1\n")
    sid = session_in(shared, phone, repository.path)
    answer = commit(phone, sid, "Change a\n\nAnd add one.")
    summary = committed(answer, sid)
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
def test_named_files(shared: Bridge, repository: Repository, phone: Phone) -> None:
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
    sid = session_in(shared, phone, repository.path)
    summary = committed(commit(phone, sid, "Some", ["a", "gone", "removed", "d"]), sid)
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


def test_a_detached_head(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """D10: a commit there is a commit."""
    first = repository.commit_files({"a": "1\n"})
    repository.git("checkout", "-q", "--detach")
    repository.write("a", "2\n")
    sid = session_in(shared, phone, repository.path)
    summary = committed(commit(phone, sid, "Detached", ["a"]), sid)
    assert (
        summary["hash"] == repository.head()
        and repository.git("rev-parse", "main").strip() == first
    )


MESSAGES = (
    "-m",
    "--amend",
    "# no comment",
    "two\n\nparagraphs\n# and a comment",
    "ümläut 会 🎉 %s %n $(id) `id` \\",
    "x" * 20_000,
)


def test_messages(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """Issue, bad input: messages beginning with `-`: a message is a message, as it was sent."""
    parent = repository.commit_files({"a": "0\n"})
    sid = session_in(shared, phone, repository.path)
    for number, message in enumerate(MESSAGES, 1):
        repository.write("a", f"{number}\n")
        summary = committed(commit(phone, sid, message, ["a"]), sid)
        assert repository.git("log", "-1", "--format=%B").strip() == message.strip()
        assert repository.git("rev-parse", "HEAD^").strip() == parent, (
            "one more commit, no other one changed"
        )
        assert summary["summary"][:100] == message.splitlines()[0][:100]
        parent = repository.head()


@pytest.mark.spec("wscode.GIT_ERROR")
def test_nothing_to_commit(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """D10: GIT_ERROR, the reason in message; what is changed and not staged is not meant."""
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    before = state(repository)
    answer = commit(phone, session_in(shared, phone, repository.path), "Nothing")
    assert "commit" in assert_as_it_was(answer, repository, before)["message"].lower()


def hook_file(repository: Repository, name: str, text: str) -> None:
    path = repository.write(f".git/hooks/{name}", f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "files"), [("pre-commit", None), ("commit-msg", ["a", "untracked"])]
)
def test_a_hook_that_refuses(
    shared: Bridge, repository: Repository, phone: Phone, name: str, files: list[str] | None
) -> None:
    """D10: GIT_ERROR with the hook's own words; nothing staged that was not staged before."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    hook_file(repository, name, "echo 'the tests fail: seven of nine' >&2\nexit 1")
    for path in ("a", "b", "untracked"):
        repository.write(path, "2\n")
    repository.git("add", "b")
    before = state(repository)
    payload = assert_as_it_was(
        commit(phone, session_in(shared, phone, repository.path), "Refused", files),
        repository,
        before,
    )
    assert "seven of nine" in payload["message"]


def test_a_hook_that_asks_a_terminal(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """Issue: a hook that reads its standard input gets nothing, and holds nobody up."""
    repository.commit_files({"a": "1\n"})
    hook_file(repository, "pre-commit", "read answer && exit 1\nexit 0")
    repository.write("a", "2\n")
    sid = session_in(shared, phone, repository.path)
    committed(commit(phone, sid, "Asked", ["a"]), sid)


def test_a_conflict(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """D10: a conflict: GIT_ERROR, and it is still the same conflict."""
    repository.commit_files({"a": "base\n", "b": "1\n"})
    repository.git("checkout", "-q", "-b", "other")
    repository.commit_files({"a": "theirs\n"})
    repository.git("checkout", "-q", "main")
    repository.commit_files({"a": "ours\n"})
    repository.git("merge", "-q", "other", check=False)
    repository.write("b", "2\n")
    before = state(repository)
    sid = session_in(shared, phone, repository.path)
    for files in (None, ["a"], ["b"]):
        assert_as_it_was(commit(phone, sid, "Conflict", files), repository, before)
    assert (repository.path / ".git" / "MERGE_HEAD").exists()


def test_names_that_are_options_or_patterns(
    shared: Bridge, repository: Repository, phone: Phone
) -> None:
    """Issue, bad input: names that are options: each is a name, and means itself alone."""
    repository.commit_files({"a": "1\n", "b.star": "1\n"})
    for name in ("a", "b.star", *ODD_NAMES):
        repository.write(name, "2\n")
    sid = session_in(shared, phone, repository.path)
    summary = committed(commit(phone, sid, "Odd", ODD_NAMES), sid)
    assert summary["files_changed"] == len(ODD_NAMES)
    assert sorted(
        repository.git("show", "--name-only", "--format=", "-z").strip("\0\n").split("\0")
    ) == sorted(ODD_NAMES)
    assert sorted(repository.git("diff", "--name-only").split()) == ["a", "b.star"]


def test_a_directory_inside_a_repository(
    shared: Bridge, repository: Repository, phone: Phone
) -> None:
    """D10: paths are relative to the session's working_directory."""
    repository.commit_files({"sub/a": "1\n", "a": "1\n"})
    for name in ("sub/a", "a"):
        repository.write(name, "2\n")
    sid = session_in(shared, phone, repository.path / "sub")
    committed(commit(phone, sid, "Inner", ["a"]), sid)
    assert repository.git("show", "--name-only", "--format=").split() == ["sub/a"]


def test_ten_thousand_files(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """Issue, bad input: 10,000 files in one commit, each named: more than a command line holds."""
    repository.commit_files({"a": "1\n"})
    names = [
        f"{'a long directory name ' * 8}/{number // 500}/file number {number}"
        for number in range(10_000)
    ]
    for name in names:
        repository.write(name, "1\n")
    sid = session_in(shared, phone, repository.path)
    answer = commit(phone, sid, "Many", names)
    summary = committed(answer, sid)
    assert (summary["files_changed"], summary["additions"]) == (10_000, 10_000) and answer[
        "payload"
    ]["is_clean"] is True


def test_a_closed_session(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """D7: git requests work in a closed observed session that is joined."""
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    sid = session_in(shared, phone, repository.path)
    shared.accept(hook("SessionEnd", sid))
    assert committed(commit(phone, sid, "Late", ["a"]), sid)["hash"] == repository.head()
