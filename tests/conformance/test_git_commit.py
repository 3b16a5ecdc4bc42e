"""git_commit (spec, WebSocket operations; D10): a refusal leaves the repository as it was."""

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.phone import Message
from tests.conformance.repositories import Repository, Work, changes, committed
from tests.conformance.test_git_status import ODD_NAMES
from tests.faults.quick import QuickBridge
from tests.files.repositories import committed as names_in_head
from tests.files.repositories import hook
from tests.servers import wait_until

pytestmark = pytest.mark.spec("ws.git_commit")


def state(repository: Repository) -> tuple[str, str, list[str]]:
    """HEAD, what git status says of index and work tree, and what is staged."""
    head = repository.git("rev-parse", "--verify", "-q", "HEAD", check=False)
    return head, repository.porcelain(), repository.staged()


def assert_as_it_was(
    answer: Message, repository: Repository, before: tuple[str, str, list[str]]
) -> dict[str, Any]:
    """GIT_ERROR, recoverable, and nothing staged that was not staged before (D10)."""
    payload = assert_refused(answer, "GIT_ERROR", True)
    assert state(repository) == before
    return payload


def test_all_that_is_staged(repository: Repository, work: Work) -> None:
    """D10: files null: all staged, nothing else; answered by the fresh status and the commit."""
    first = repository.commit_files({"a": "1\n2\n", "b": "1\n"})
    repository.write("a", "one\ntwo\n2\n")
    repository.write("new", "1\n2\n3\n")
    repository.git("add", "a", "new")
    repository.write("b", "2\n")
    repository.write("untracked", "1\n")
    answer = work.commit("Change a\n\nAnd add one.")
    counts = {"files_changed": 2, "additions": 5, "deletions": 1}
    made = {"hash": repository.head(), "summary": "Change a"}
    assert committed(answer, work.sid) == made | counts
    fresh = answer["payload"]
    kinds = {path: kind for path, (kind, _, _) in changes(fresh).items()}
    assert kinds == {"b": "modified", "untracked": "untracked"}
    assert (fresh["branch"], fresh["is_clean"]) == ("main", False)
    log = repository.git("log", "-1", "--format=%P %an%n%B").strip()
    assert log == f"{first} Ada\nChange a\n\nAnd add one."


@pytest.mark.spec("git.commit.files")
def test_named_files_as_they_are_in_the_work_tree(repository: Repository, work: Work) -> None:
    """What is staged of them does not count; what is staged of others stays."""
    tracked = ("a", "staged", "gone", "removed", "d/x", "d/y")
    repository.commit_files(dict.fromkeys(tracked, "1\n"))
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
    assert names_in_head(repository) == ["a", "d/new/z", "d/x", "d/y", "gone", "removed"]
    assert repository.git("show", "HEAD:a") == "work tree\n"
    assert sorted(repository.staged()) == ["added", "staged"]
    assert repository.git("show", ":staged") == "staged\n"
    assert repository.git("diff", "--name-only").split() == ["staged"]


MESSAGES = (
    *("-m", "--amend", "# no comment", "two\n\nparagraphs\n# and a comment", "x" * 20_000),
    "ümläut 会 🎉 %s %n $(id) `id` \\",
)


def test_a_message_is_a_message_as_it_was_sent(repository: Repository, work: Work) -> None:
    parent = repository.commit_files({"a": "0\n"})
    for number, message in enumerate(MESSAGES, 1):
        repository.write("a", f"{number}\n")
        summary = work.committed(message, ["a"])
        assert repository.git("log", "-1", "--format=%B").strip() == message.strip()
        assert repository.git("rev-parse", "HEAD^").strip() == parent, "one more, no other changed"
        assert summary["summary"][:100] == message.splitlines()[0][:100]
        parent = repository.head()


@pytest.mark.spec("wscode.GIT_ERROR")
def test_nothing_to_commit(repository: Repository, work: Work) -> None:
    """What is changed and not staged is not meant."""
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    before = state(repository)
    said = assert_as_it_was(work.commit("Nothing"), repository, before)["message"]
    assert "commit" in said.lower()


@pytest.mark.parametrize(
    ("name", "files"), [("pre-commit", None), ("commit-msg", ["a", "untracked"])]
)
def test_a_hook_that_refuses(
    repository: Repository, work: Work, name: str, files: list[str] | None
) -> None:
    """D10: GIT_ERROR with the hook's own words."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    hook(repository, name, "echo 'the tests fail: seven of nine' >&2\nexit 1")
    for path in ("a", "b", "untracked"):
        repository.write(path, "2\n")
    repository.git("add", "b")
    before = state(repository)
    payload = assert_as_it_was(work.commit("Refused", files), repository, before)
    assert "seven of nine" in payload["message"]


def test_a_hook_that_asks_a_terminal_holds_nobody_up(repository: Repository, work: Work) -> None:
    repository.commit_files({"a": "1\n"})
    hook(repository, "pre-commit", "read answer && exit 1\nexit 0")
    repository.write("a", "2\n")
    work.committed("Asked", ["a"])


def test_a_bridge_that_stops_does_not_wait_for_hooks(tmp_path: Path) -> None:
    """Nor for those of the commit whose turn comes when the first one has been ended."""
    with QuickBridge(tmp_path) as bridge:
        repository, begun = Repository(bridge.root / "repository"), bridge.root / "begun"
        first = repository.commit_files({"a": "1\n"})
        hook(repository, "pre-commit", "touch ../begun; sleep 600")
        repository.write("a", "2\n")
        phones = [bridge.phone().ready() for _ in range(2)]
        for phone in phones:
            session = Work(bridge, phone, repository.path).sid
            phone.send("git_commit", {"session_id": session, "message": "Late", "files": ["a"]})
        wait_until(begun.exists, "a hook has begun")
        for phone in phones:
            phone.ping()
        bridge.terminate()
        assert bridge.ended(100) == 0  # the hook would have 120 seconds
        assert (repository.head(), repository.staged()) == (first, [])


def test_a_conflict_stays_the_same_conflict(repository: Repository, work: Work) -> None:
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
    """Each is a name, and means itself alone."""
    repository.commit_files({"a": "1\n", "b.star": "1\n"})
    for name in ("a", "b.star", *ODD_NAMES):
        repository.write(name, "2\n")
    assert work.committed("Odd", ODD_NAMES)["files_changed"] == len(ODD_NAMES)
    assert names_in_head(repository) == sorted(ODD_NAMES) and repository.staged() == []
    assert sorted(repository.git("diff", "--name-only").split()) == ["a", "b.star"]


def test_ten_thousand_named_files(repository: Repository, work: Work) -> None:
    """More than a command line holds."""
    repository.commit_files({"a": "1\n"})
    directory = "a long directory name " * 8
    names = [f"{directory}/{number // 500}/file number {number}" for number in range(10_000)]
    for name in names:
        repository.write(name, "1\n")
    answer = work.commit("Many", names)
    summary = committed(answer, work.sid)
    assert (summary["files_changed"], summary["additions"]) == (10_000, 10_000)
    assert answer["payload"]["is_clean"] is True
