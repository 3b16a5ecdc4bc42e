"""session_start with a work tree of its own (D64)."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.phone import Message, Phone
from tests.conformance.repositories import Repository
from tests.conformance.samples import new_id
from tests.faults.quick import QuickBridge
from tests.servers import wait_until
from tests.short import short

pytestmark = pytest.mark.spec("git.work_trees")


def about(directory: Path, branch: str) -> dict[str, Any]:
    asked = {"agent": "demo", "session_id": None, "resume": False}
    return asked | {"working_directory": str(directory), "worktree": branch}


def start(phone: Phone, directory: Path, branch: str, **more: Any) -> Message:
    return phone.request("session_start", about(directory, branch) | more)


def begun(phone: Phone, directory: Path, branch: str, **more: Any) -> dict[str, Any]:
    answer = start(phone, directory, branch, **more)
    assert answer["type"] == "session_ready", answer
    return dict(answer["payload"])


def end(phone: Phone, session_id: str) -> str:
    """The title of the notification that follows."""
    phone.send("session_end", {"session_id": session_id, "reason": "user_request"})
    told = phone.expect("notification", session_id=session_id)
    while "work tree" not in told["payload"]["title"]:
        told = phone.expect("notification", session_id=session_id)
    return str(told["payload"]["title"] + ": " + told["payload"]["body"])


def test_a_session_begins_in_a_new_work_tree(repository: Repository, phone: Phone) -> None:
    """Of a new branch, or of one that is there; git at the top shows nothing of it."""
    head = repository.commit_files({"a": "1\n", "in/b": "1\n"})
    repository.git("branch", "there")
    for branch in ("feature/x", "there"):
        ready = begun(phone, repository.path / "in", branch)
        path = repository.path / ".worktrees" / branch
        assert (ready["working_directory"], ready["branch"]) == (str(path), branch)
        assert repository.git("rev-parse", "HEAD", cwd=path).strip() == head
        assert (path / "a").read_text() == "1\n"
        end(phone, ready["session_id"])
    assert repository.porcelain() == ""
    assert (repository.path / ".git/info/exclude").read_text().count("/.worktrees/") == 1


@pytest.mark.parametrize("left", ["nothing", "untracked", "ignored", "commit"])
def test_an_end_removes_it_when_nothing_is_lost(
    repository: Repository, phone: Phone, left: str
) -> None:
    repository.commit_files({"a": "1\n", ".gitignore": "*.log\n"})
    ready = begun(phone, repository.path, "mine")
    path = Path(ready["working_directory"])
    if left in ("untracked", "ignored"):
        (path / {"untracked": "new", "ignored": "x.log"}[left]).write_text("1\n")
    elif left == "commit":
        repository.git("commit", "-q", "--allow-empty", "-m", "Own", cwd=path)
    said = end(phone, ready["session_id"])
    assert said.startswith("The work tree was removed" if left == "nothing" else "The work tree st")
    assert path.exists() == (left != "nothing")
    assert repository.git("rev-parse", "--verify", "mine")


NAMES = ("", "-f", "--orphan", "a..b", "@{-1}", "a b", "x.lock", "../out", "HEAD", "a\0b", "/a")


def test_what_cannot_be_is_refused(repository: Repository, phone: Phone) -> None:
    """No branch, no work tree and no session is left of it."""
    repository.commit_files({"a": "1\n"})
    before = repository.git("for-each-ref")
    for name in NAMES:
        assert_refused(start(phone, repository.path, name), "GIT_ERROR", True)
    repository.write(".worktrees/taken/file", "1\n")
    said = assert_refused(start(phone, repository.path, "taken"), "GIT_ERROR", True)["message"]
    assert "exists already" in said
    assert_refused(start(phone, repository.path, "main"), "GIT_ERROR", True)
    (repository.path / ".worktrees/out").symlink_to("/tmp")
    assert_refused(start(phone, repository.path, "out/x"), "FILE_ACCESS_DENIED", True)
    assert repository.git("for-each-ref") == before
    assert len(repository.git("worktree", "list").splitlines()) == 1


def test_its_programs_need_trust(repository: Repository, phone: Phone) -> None:
    """A hook that runs after the check-out."""
    repository.commit_files({"a": "1\n"})
    mark = repository.path / ".git/ran"
    repository.hook("post-checkout", f"touch '{mark}'")
    refused = start(phone, repository.path, "mine")
    details = assert_refused(refused, "GIT_TRUST_REQUIRED", True)["details"]
    assert [one["name"] for one in details["programs"]] == ["post-checkout"]
    assert not mark.exists() and not (repository.path / ".worktrees").exists()
    begun(phone, repository.path, "mine", trust=details["digest"])
    assert mark.exists()


def test_one_that_somebody_has_removed(repository: Repository, phone: Phone) -> None:
    """Its directory alone, as with `rm -r`: the end says so, and it can be made again."""
    repository.commit_files({"a": "1\n"})
    for _ in range(2):
        ready = begun(phone, repository.path, "mine")
        shutil.rmtree(ready["working_directory"])
        assert end(phone, ready["session_id"]).startswith("The work tree was removed")


def test_a_start_that_fails_leaves_none(repository: Repository, phone: Phone) -> None:
    """An agent that is not there; then another is asked."""
    repository.commit_files({"a": "1\n"})
    failed = start(phone, repository.path, "mine", agent="nobody")
    assert_refused(failed, "AGENT_UNAVAILABLE", True)
    assert len(repository.git("worktree", "list").splitlines()) == 1
    begun(phone, repository.path, "mine")


def test_a_repeated_start_is_answered_again(repository: Repository, phone: Phone) -> None:
    """By the session that the first one made, in the work tree that it made."""
    repository.commit_files({"a": "1\n"})
    asked = about(repository.path, "mine")
    sent = phone.send("session_start", asked)
    first = phone.answer_to(sent)["payload"]
    assert phone.answer_to(phone.send("session_start", asked, id=sent))["payload"] == first
    own = about(repository.path, "own") | {"session_id": new_id()}
    one, two = (phone.request("session_start", own)["payload"] for _ in range(2))
    assert one == two and one["branch"] == "own"


@pytest.mark.parametrize("way", ["..", "link"])
def test_what_only_says_that_it_was_left_half_made(
    repository: Repository, phone: Phone, tmp_path: Path, way: str
) -> None:
    """A repository can name any directory as one that a crash has left: it stays."""
    repository.commit_files({"a": "1\n"})
    place, entry = repository.path / ".worktrees", repository.path / ".git/worktrees/x"
    place.mkdir()
    (place / "link").symlink_to("/")
    to = "../" * len(place.parts) if way == ".." else "link/"
    (tmp_path / "kept").mkdir()
    for name, text in {
        "HEAD": "ref: refs/heads/main",
        "commondir": "../..",
        "gitdir": f"{place}/{to}{str(tmp_path)[1:]}/kept/.git",
        "locked": "the bridge is making this work tree",
    }.items():
        repository.write(f".git/worktrees/x/{name}", f"{text}\n")
    begun(phone, repository.path, "feature")
    assert (tmp_path / "kept").is_dir() and entry.is_dir()


def test_a_submodule_runs_nothing_at_its_end(
    repository: Repository, phone: Phone, tmp_path: Path
) -> None:
    """Git does not remove such a work tree, so nobody has to look into it."""
    repository.commit_files({"a": "1\n"})
    repository.add_submodule("sub")
    ready = begun(phone, repository.path, "feature")
    path, mark = repository.path / ".worktrees/feature", tmp_path / "ran"
    repository.git("submodule", "--quiet", "update", "--init", cwd=path)
    repository.git("config", "core.fsmonitor", f"touch '{mark}'; false", cwd=path / "sub")
    assert "submodules" in end(phone, ready["session_id"])
    assert path.is_dir() and not mark.exists()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["checks out", "has checked out"])
@pytest.mark.parametrize("again", [True, False], ids=["the same request", "another"])
def test_a_bridge_that_is_killed_meanwhile(tmp_path: Path, when: str, again: bool) -> None:
    """What it left is ended and removed, and the second try has all files."""
    home, mark = tmp_path / "home", tmp_path / "hangs"
    home.mkdir()
    with QuickBridge(tmp_path, HOME=str(home)) as bridge:
        repository = Repository(bridge.root / "repository")
        repository.commit_files({".gitattributes": "b filter=slow\n", **dict.fromkeys("abc", "1")})
        hang = f"[ -e '{mark}' ] || {{ echo $$ > '{mark}'; sleep 600; }}"
        if when == "checks out":
            (home / ".gitconfig").write_text('[filter "slow"]\n\tsmudge = ~/smudge\n')
            program = home / "smudge"
        else:
            (home / ".gitconfig").write_text("[core]\n\thooksPath = ~/hooks\n")
            program = home / "hooks/post-checkout"
            program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{hang}\nexec cat\n")
        program.chmod(0o755)
        phone = bridge.phone().ready()
        asked = about(repository.path, "mine")
        sent = phone.send("session_start", asked)
        wait_until(lambda: mark.exists() and mark.read_text(), "git hangs")
        bridge.kill()
        bridge.start()
        left = Path("/proc", mark.read_text().strip())
        wait_until(lambda: not left.exists(), "what hung has ended")
        phone = Phone(bridge.port, phone.token).ready()
        repeated = phone.send("session_start", asked, **({"id": sent} if again else {}))
        ready = phone.answer_to(repeated)
        assert ready["type"] == "session_ready", ready
        path = Path(ready["payload"]["working_directory"])
        assert (path.name, ready["payload"]["branch"]) == ("mine", "mine")
        assert sorted(one.name for one in path.iterdir()) == [".git", ".gitattributes", *"abc"]
        assert repository.git("status", "--porcelain", cwd=path) == ""
        assert "locked" not in repository.git("worktree", "list", "--porcelain")
        assert end(phone, ready["payload"]["session_id"]).startswith("The work tree was removed")


def test_another_bridge_while_its_git_goes_on(tmp_path: Path) -> None:
    """Two on one repository, of which one is killed: what its git still fills is not cleared."""
    home, go, mark = (tmp_path / name for name in ("home", "go", "hangs"))
    repository = Repository(tmp_path / "repository")
    repository.commit_files({".gitattributes": "b filter=slow\n", **dict.fromkeys("abc", "1")})
    home.mkdir()
    (home / ".gitconfig").write_text('[filter "slow"]\n\tsmudge = ~/smudge\n')
    wait = f"echo $$ > '{mark}'; while [ ! -e '{go}' ]; do sleep 0.05; done"
    (home / "smudge").write_text(f"#!/bin/sh\n{wait}\nexec cat\n")
    (home / "smudge").chmod(0o755)
    own = {"HOME": str(home), "BRIDGE_ALLOWED_ROOTS": str(tmp_path)} | short("GIT_COMMIT_SECONDS")
    for name in "12":
        (tmp_path / name).mkdir()
    with QuickBridge(tmp_path / "1", **own) as one, QuickBridge(tmp_path / "2", **own) as two:
        one.phone().ready().send("session_start", about(repository.path, "mine"))
        wait_until(lambda: mark.exists() and mark.read_text(), "git hangs")
        one.kill()
        phone = two.phone().ready()
        refused = assert_refused(start(phone, repository.path, "mine"), "GIT_ERROR", True)
        assert "takes too long" in refused["message"]
        assert (repository.path / ".worktrees/mine/.git").exists()
        go.touch()
        path = Path(begun(phone, repository.path, "mine")["working_directory"])
        assert sorted(each.name for each in path.iterdir()) == [".git", ".gitattributes", *"abc"]
