"""git_commit (spec, WebSocket operations; D10): a refusal leaves the repository as it was."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.repositories import Repository, Work, changes, committed, lines
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

pytestmark = pytest.mark.spec("ws.git_commit")


def state(repository: Repository) -> tuple[str, str, bytes]:
    """HEAD, what git status says of index and work tree, and the index to the byte."""
    porcelain = repository.porcelain()  # git refreshes its index now, not later
    return repository.head(), porcelain, repository.index()


def assert_as_it_was(
    answer: Message, repository: Repository, before: tuple[str, str, bytes]
) -> dict[str, Any]:
    """GIT_ERROR, recoverable, and nothing staged that was not staged before (D10)."""
    payload = assert_refused(answer, "GIT_ERROR", True)
    assert state(repository) == before
    return payload


@pytest.mark.spec("wscode.GIT_ERROR")
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
    assert changes(answer["payload"]) == {"b": ("modified", 1, 1), "untracked": ("untracked", 1, 0)}
    assert (answer["payload"]["branch"], answer["payload"]["is_clean"]) == ("main", False)
    log = repository.git("log", "-1", "--format=%P %an%n%B").strip()
    assert log == f"{first} Ada\nChange a\n\nAnd add one."
    before = state(repository)
    said = assert_as_it_was(work.commit("Nothing"), repository, before)["message"]
    assert said.startswith("Nothing to commit"), "what is changed and not staged is not meant"


@pytest.mark.spec("git.commit.files")
def test_named_files_as_they_are_in_the_work_tree(repository: Repository, work: Work) -> None:
    """What is staged of them does not count; what is staged of others stays. A file may have become
    a directory, of which some is named or all: all but what is ignored or a repository of its own.
    """
    tracked = ("a", "staged", "gone", "removed", "d/x", "d/y", "kind", "t", "back", "again")
    repository.commit_files(dict.fromkeys(tracked, "1\n") | {".gitignore": "*.log\n"})
    Repository(repository.path / "d/inner").commit_files({"c": "1\n"})
    for name in ("gone", "kind", "t"):
        (repository.path / name).unlink()
    staged = ("a", "staged", "added", "t/b", "t/c", "back")
    repository.write_files(dict.fromkeys(staged, "staged\n"))
    repository.git("add", "a", "staged", "added", "t", "back")
    repository.write("back", "1\n")
    repository.git("rm", "-q", "removed")
    repository.git("rm", "-q", "--cached", "again")
    repository.git("add", "-N", "again")
    repository.write_files(dict.fromkeys(("a", "staged"), "work tree\n"))
    new = ("kind/inner", "d/x", "d/new/z", "d/b.log")
    repository.write_files(dict.fromkeys(new, "something new\n"))
    (repository.path / "d/y").chmod(0o755)
    named = ["a", "gone", "removed", "d", "kind", "t/b", "back", "again"]
    summary = work.committed("Some", named)
    assert (summary["files_changed"], summary["additions"], summary["deletions"]) == (10, 5, 6)
    names = ["a", "d/new/z", "d/x", "d/y", "gone", "kind", "kind/inner", "removed", "t", "t/b"]
    assert repository.committed() == names  # not those that are as they were
    assert repository.git("show", "HEAD:a") == "work tree\n"
    assert sorted(repository.staged()) == ["added", "staged", "t/c"]
    assert repository.git("show", ":staged") == "staged\n"
    assert repository.git("diff", "--name-only").split() == ["staged"]
    for name in ("d/b.log", "d/inner", "d/inner/c"):
        assert_refused(work.commit("None", [name]), "GIT_ERROR", True)


def test_a_file_that_git_is_to_forget(repository: Repository, work: Work) -> None:
    """It is still there, and ignored now: shown as deleted, and committed so."""
    repository.commit_files({".env": "secret\n", ".gitignore": ""})
    repository.git("rm", "-q", "--cached", ".env")
    repository.write(".gitignore", ".env\n")
    assert work.changes()[".env"][0] == "deleted"
    work.committed("Forget", [".env", ".gitignore"])
    assert repository.git("ls-tree", "-r", "--name-only", "HEAD") == ".gitignore\n"
    assert repository.porcelain() == "" and (repository.path / ".env").exists()


def test_a_renamed_file_is_committed_as_one(repository: Repository, work: Work) -> None:
    """A status names it by its new name alone, so that name means both."""
    repository.commit_files({"old": "".join(f"{number}\n" for number in range(20)), "other": "1\n"})
    repository.git("mv", "old", "new")
    repository.git("mv", "other", "another")
    assert set(work.changes()) == {"new", "another"}
    assert work.committed("Rename", ["new"])["files_changed"] == 1
    assert repository.committed() == ["new", "old"] and set(work.changes()) == {"another"}


@pytest.mark.parametrize(
    "files", [None, ["."], ["b", "d"], ["a"]], ids=["staged", "all", "named", "other"]
)
def test_a_merge_is_concluded_with_all_that_is_staged(
    repository: Repository, work: Work, files: list[str] | None
) -> None:
    """The summary compares it with what was there before; what went in unnamed is told (D63)."""
    repository.commit_files({"a": "1\n", "d": "other\n"})
    repository.git("checkout", "-q", "-b", "other")
    repository.git("rm", "-q", "d")
    repository.commit_files({"b": "1\n2\n"})
    repository.git("checkout", "-q", "main")
    repository.commit_files({"c": "1\n"})
    repository.git("merge", "-q", "--no-commit", "--no-ff", "other")
    repository.write("a", "2\n")
    summary = work.committed("Merge", files)
    others = {"a"} if files in (["."], ["a"]) else set()
    assert summary.get("also") == (["b", "d"] if files == ["a"] else None)
    assert (summary["files_changed"], summary["additions"]) == (2 + len(others), 2 + len(others))
    assert set(work.changes()) == {"a"} - others
    assert len(repository.git("log", "-1", "--format=%P").split()) == 2


def test_a_merge_keeps_what_is_not_in_the_work_tree(repository: Repository, work: Work) -> None:
    """Git merges what a sparse checkout leaves out, and a submodule that it does not update."""
    inner = Repository(repository.path / "in/sub")
    first = inner.commit_files({"c": "1\n"})
    repository.commit_files({"in/a": "1\n", "out/b": "1\n"})
    repository.git("checkout", "-q", "-b", "other")
    inner.commit_files({"c": "2\n"})
    repository.commit_files({"out/b": "2\n", "out/new": "1\n"})
    repository.git("checkout", "-q", "main")
    inner.git("checkout", "-q", first)
    repository.commit_files({"in/a": "2\n"})
    repository.git("sparse-checkout", "set", "in")
    repository.git("merge", "-q", "--no-commit", "--no-ff", "other")
    assert work.committed("Merge", list(work.changes()))["files_changed"] == 3
    assert not repository.git("diff", "other", "HEAD", "--", "out", "in/sub")
    assert set(work.changes()) == {"in/sub"}


def test_a_linked_work_tree(shared: Bridge, repository: Repository, phone: Phone) -> None:
    """Of a clone that shares its objects, and with the other hash."""
    places = [repository.path.with_name(f"{repository.path.name} {n}") for n in range(3)]
    Repository(places[0], "--object-format=sha256").commit_files({"a": "1\n"})
    repository.git("clone", "-q", "--shared", str(places[0]), str(places[1]))
    repository.git("worktree", "add", "-q", "-b", "beside", str(places[2]), cwd=places[1])
    (places[2] / "a").write_text("2\n")
    summary = Work(shared, phone, places[2]).committed("Beside", ["a"])
    assert repository.git("rev-parse", "beside", cwd=places[1]).strip() == summary["hash"]
    assert len(summary["hash"]) == 64
    assert repository.git("status", "--porcelain", cwd=places[2]) == ""


MESSAGES = (
    *("-m", "--amend", "# no comment", "two\n\nparagraphs\n# and a comment", "x" * 20_000),
    "ümläut 会 🎉 %s %n $(id) `id` \\",
)


def test_a_message_is_a_message_as_it_was_sent(repository: Repository, work: Work) -> None:
    """Also where a hook asks a terminal: there is none, and it holds nobody up."""
    parent = repository.commit_files({"a": "0\n"})
    repository.hook("pre-commit", "read answer && exit 1\nexit 0")
    for number, message in enumerate(MESSAGES, 1):
        repository.write("a", f"{number}\n")
        summary = work.committed(message, ["a"])
        assert repository.git("log", "-1", "--format=%B").strip() == message.strip()
        assert repository.git("rev-parse", "HEAD^").strip() == parent, "one more, no other changed"
        assert summary["summary"][:100] == message.splitlines()[0][:100]
        parent = repository.head()


def test_a_hook_that_refuses(repository: Repository, work: Work) -> None:
    """D10: GIT_ERROR with the hook's own words, but for places outside; what it staged is not."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    said = r"error: \033[31mseven\033[0m of nine in $PWD/a and /etc/passwd:3 (//proc/1), "
    said += r"$GIT_INDEX_FILE\nhint: no\n"
    repository.write_files(dict.fromkeys(("a", "b", "untracked"), "2\n"))
    repository.git("add", "b")
    before = state(repository)
    for name, files in {"pre-commit": None, "commit-msg": ["a", "untracked"]}.items():
        refusing = repository.hook(name, f'git add -A\nprintf "{said}" >&2\nexit 1')
        payload = assert_as_it_was(work.commit("Refused", files), repository, before)
        words = re.sub(r"\.git/index\.bridge-[\w-]+", "…", payload["message"])
        assert words == "seven of nine in a and …:3 (…), …", name
        refusing.unlink()


def test_a_bridge_that_stops_does_not_wait_for_hooks(tmp_path: Path) -> None:
    """Nor for those of the commit whose turn comes when the first one has been ended."""
    with QuickBridge(tmp_path) as bridge:
        repository, begun = Repository(bridge.root / "repository"), bridge.root / "begun"
        first = repository.commit_files({"a": "1\n"})
        repository.hook("pre-commit", "touch ../begun; sleep 600")
        repository.write("a", "2\n")
        phones = [bridge.phone().ready() for _ in range(2)]
        asked = {"message": "Late", "files": ["a"]}
        refused = Work(bridge, phones[0], repository.path).ask("git_commit", **asked)
        asked["trust"] = refused["payload"]["details"]["digest"]
        for phone in phones:
            session = Work(bridge, phone, repository.path).sid
            phone.send("git_commit", {"session_id": session, **asked})
        wait_until(begun.exists, "a hook has begun")
        for phone in phones:
            phone.ping()
        bridge.terminate()
        assert bridge.ended(100) == 0  # the hook would have 120 seconds
        assert (repository.head(), repository.staged()) == (first, [])


def test_a_conflict_stays_the_same_conflict(repository: Repository, work: Work) -> None:
    """Shown against our side; a file in conflict that we have deleted has no lines."""
    repository.commit_files({"a": "base\n", "b": "1\n", "gone": "base\n"})
    repository.git("checkout", "-q", "-b", "other")
    repository.commit_files({"a": "theirs\n", "gone": "theirs\n"})
    repository.git("checkout", "-q", "main")
    repository.git("rm", "-q", "gone")
    repository.commit_files({"a": "ours\n"})
    repository.git("merge", "-q", "other", check=False)
    a, gone = work.diff("a", "gone")
    assert (a["status"], gone["status"], gone["hunks"]) == ("modified", "modified", [])
    assert lines(a, "context") == ["ours"] and "theirs" in lines(a, "added")
    assert [file["hunks"] for file in work.diff(cached=True)] == [[], []]
    assert work.changes()["a"][0] == "modified"
    repository.write("b", "2\n")
    before = state(repository)
    for files in (None, ["a"], ["b"]):
        assert_as_it_was(work.commit("Conflict", files), repository, before)
    assert (repository.path / ".git" / "MERGE_HEAD").exists()


def test_a_conflict_without_a_merge(repository: Repository, work: Work) -> None:
    """As after a stash: what is not in conflict can be committed."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.write("a", "2\n")
    repository.git("stash", "-q")
    repository.commit_files({"a": "3\n"})
    repository.git("stash", "pop", "-q", check=False)
    repository.write("b", "2\n")
    before = state(repository)
    for files in (["a"], ["."]):
        assert_as_it_was(work.commit("Conflict", files), repository, before)
    work.committed("The other", ["b"])
    assert repository.committed() == ["b"] and repository.git("ls-files", "-u") != ""


ODD_NAMES = [
    *("with space.txt", 'quote".txt', "it's.txt", "new\nline.txt", "tab\t.txt", "ümläut 会.txt"),
    *("-n.txt", "--all", ":(top)magic.txt", "*.star", "back\\slash", "dir ü/a b", "HEAD"),
]


def test_odd_names_mean_themselves_alone(repository: Repository, work: Work) -> None:
    """Options and patterns too, in all requests. One that is no text is found as it is shown."""
    names = ["a", "b.star", *ODD_NAMES]
    repository.commit_files(dict.fromkeys(names, "1\n"))
    repository.write_files(dict.fromkeys(names, "2\n"))
    assert work.changes() == dict.fromkeys(names, ("modified", 1, 1))
    for name in ODD_NAMES:
        (file,) = work.diff(name)
        assert (file["path"], file["old_path"], file["new_path"]) == (name, name, name)
    assert work.committed("Odd", ODD_NAMES)["files_changed"] == len(ODD_NAMES)
    assert repository.committed() == sorted(ODD_NAMES) and repository.staged() == []
    repository.write(b"bad \xff.txt", "3\n")
    assert set(work.changes()) == {"a", "b.star", "bad \ufffd.txt"}
    assert lines(work.diff("bad \ufffd.txt")[0], "added") == ["3"]
    assert work.committed("No text", ["bad \ufffd.txt"])["additions"] == 1


@pytest.mark.slow
def test_ten_thousand_named_files(repository: Repository, work: Work) -> None:
    """More than a command line holds, and with what is said of each more than a message."""
    repository.commit_files({"a": "1\n"})
    directory = "a long directory name " * 8
    names = [f"{directory}/{number // 500}/file number {number}" for number in range(10_000)]
    repository.write_files(dict.fromkeys(names, "1\n"))
    repository.git("add", ".")
    status = work.status()
    assert status["truncated"] is True and status["is_clean"] is False
    answer = work.commit("Many", names)
    summary = committed(answer, work.sid)
    assert (summary["files_changed"], summary["additions"]) == (10_000, 10_000)
    assert answer["payload"]["is_clean"] is True
