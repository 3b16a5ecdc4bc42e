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
    """Issue: commit of named files: modified, untracked, deleted and in a directory; what else is
    staged stays staged.
    """
    repository.commit_files({"modified": "1\n", "deleted": "1\n", "other": "1\n", "staged": "1\n"})
    for name in ("modified", "other", "staged", "sub/untracked"):
        repository.write(name, "2\n")
    repository.git("add", "staged")
    (repository.path / "deleted").unlink()
    sid = session_in(shared, phone, repository.path)
    summary = committed(commit(phone, sid, "Some", ["modified", "deleted", "sub/untracked"]), sid)
    assert (summary["files_changed"], summary["additions"], summary["deletions"]) == (3, 2, 2)
    assert sorted(repository.git("show", "--name-only", "--format=").split()) == [
        "deleted",
        "modified",
        "sub/untracked",
    ]
    assert repository.staged() == ["staged"] and repository.git("diff", "--name-only").split() == [
        "other"
    ]


def test_the_first_commit(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """Issue: no commit yet."""
    repository.write("a", "1\n")
    repository.write("b", "1\n")
    repository.git("add", "a")
    sid = session_in(shared, phone, repository.path)
    summary = committed(commit(phone, sid, "First"), sid)
    assert (
        summary["hash"] == repository.head()
        and summary["files_changed"] == 1
        and summary["additions"] == 1
    )


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
    "-F /etc/passwd",
    "--",
    "# no comment",
    "ümläut 会 🎉",
    "two\n\nparagraphs\n# and a comment",
    "%s %n $(id) `id` \\",
    "x" * 20_000,
    "@{-1}",
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


@pytest.mark.parametrize("message", ["", " \n\t", "a\x00b"], ids=repr)
def test_messages_that_are_none(
    shared: Bridge, repository: Repository, phone: Phone, message: str
) -> None:
    """Issue, bad input: refused, the repository as it was."""
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    repository.git("add", "a")
    before = state(repository)
    sid = session_in(shared, phone, repository.path)
    assert_as_it_was(commit(phone, sid, message), repository, before)
    assert_as_it_was(commit(phone, sid, message, ["a"]), repository, before)


@pytest.mark.spec("wscode.GIT_ERROR")
@pytest.mark.parametrize("files", [None, ["a"], []], ids=str)
def test_nothing_to_commit(
    shared: Bridge, repository: Repository, phone: Phone, files: list[str] | None
) -> None:
    """D10: GIT_ERROR, the reason in message; an empty list of files is not `all`."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.write("b", "2\n")
    if files is not None:
        repository.git("add", "b")
    before = state(repository)
    answer = commit(phone, session_in(shared, phone, repository.path), "Nothing", files)
    payload = assert_as_it_was(answer, repository, before)
    assert "commit" in payload["message"].lower() or "file" in payload["message"].lower()


def hook_file(repository: Repository, name: str, text: str) -> None:
    path = repository.write(f".git/hooks/{name}", f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("name", ["pre-commit", "commit-msg", "prepare-commit-msg"])
@pytest.mark.parametrize("files", [None, ["a", "untracked"]], ids=["staged", "named"])
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


def test_commit_hooks_run(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """Issue: a commit runs the commit hooks of a repository inside the roots, because that is what
    a commit is.
    """
    repository.commit_files({"a": "1\n"})
    ran = repository.path.with_name(f"{repository.path.name} ran")
    ran.mkdir()
    for name in ("pre-commit", "commit-msg", "post-commit"):
        hook_file(repository, name, f"touch '{ran}/{name}'")
    repository.write("a", "2\n")
    sid = session_in(shared, phone, repository.path)
    committed(commit(phone, sid, "With hooks", ["a"]), sid)
    assert sorted(path.name for path in ran.iterdir()) == [
        "commit-msg",
        "post-commit",
        "pre-commit",
    ]


def test_a_hook_that_asks_a_terminal(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """Issue: a hook that reads its standard input gets nothing, and holds nobody up."""
    repository.commit_files({"a": "1\n"})
    hook_file(repository, "pre-commit", "read answer && exit 1\nexit 0")
    repository.write("a", "2\n")
    sid = session_in(shared, phone, repository.path)
    committed(commit(phone, sid, "Asked", ["a"]), sid)


@pytest.mark.parametrize("files", [None, ["a"], ["b"]], ids=str)
def test_a_conflict(
    shared: Bridge, repository: Repository, phone: Phone, files: list[str] | None
) -> None:
    """D10: a conflict: GIT_ERROR, and it is still the same conflict."""
    repository.commit_files({"a": "base\n", "b": "1\n"})
    repository.git("checkout", "-q", "-b", "other")
    repository.commit_files({"a": "theirs\n"})
    repository.git("checkout", "-q", "main")
    repository.commit_files({"a": "ours\n"})
    repository.git("merge", "-q", "other", check=False)
    repository.write("b", "2\n")
    before = state(repository)
    assert_as_it_was(
        commit(phone, session_in(shared, phone, repository.path), "Conflict", files),
        repository,
        before,
    )
    assert (repository.path / ".git" / "MERGE_HEAD").exists()


def test_somebody_else_holds_the_index(
    shared: Bridge, repository: Repository, phone: Phone
) -> None:
    """D10: git's lock is respected: GIT_ERROR, recoverable; the lock stays with its owner, and
    later it works.
    """
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    lock = repository.write(".git/index.lock", "")
    before = state(repository)
    sid = session_in(shared, phone, repository.path)
    assert_as_it_was(commit(phone, sid, "Locked", ["a"]), repository, before)
    assert lock.exists()
    lock.unlink()
    committed(commit(phone, sid, "Free", ["a"]), sid)


NOT_COMMITTED = {
    "../outside": "FILE_ACCESS_DENIED",
    "/etc/passwd": "FILE_ACCESS_DENIED",
    "sub/../../x": "FILE_ACCESS_DENIED",
    "no such file": "GIT_ERROR",
    "a\x00b": "FILE_INVALID_PATH",
    "": "FILE_INVALID_PATH",
    ".git/config": "GIT_ERROR",
}


@pytest.mark.parametrize("path", NOT_COMMITTED)
def test_paths_that_cannot_be_committed(
    shared: Bridge, repository: Repository, phone: Phone, path: str
) -> None:
    """Issue, bad input; D10, D12: one bad path among good ones: refused as a whole, the repository
    as it was.
    """
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    before = state(repository)
    answer = commit(phone, session_in(shared, phone, repository.path), "Outside", ["a", path])
    assert_as_it_was(answer, repository, before, NOT_COMMITTED[path])
    phone.ping()


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
