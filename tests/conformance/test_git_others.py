"""A commit's hooks, others who work in the repository at the same time, what the bridge's user has
set, and what git may not see of the bridge (D10, D31, D45).
"""

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail
from files_app.git import commit
from files_app.git.repository import repository_of
from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work, committed


@pytest.fixture(scope="module")
def bridge(make_bridge: Callable[..., Bridge]) -> Bridge:
    """Its data directory lies in its root, and its user has a home of his own."""
    bridge = make_bridge("git", start=False)
    home = bridge.directory / "home"
    bridge.settings |= {"HOME": str(home), "XDG_CONFIG_HOME": f"{home}/.config"}
    bridge.settings["BRIDGE_ALLOWED_ROOTS"] = str(bridge.directory)
    return bridge.start()


@pytest.fixture
def changed(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Two files, one of them changed since and staged."""
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(repository.path))  # of this process: see `commit_here`
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.write("a", "2\n")
    repository.git("add", "a")
    return repository


def commit_here(repository: Repository, message: str, **more: Any) -> str:
    """Commit `a` in this process, whose limits a test can set; the commit."""
    place = repository_of(str(repository.path), Jail([str(repository.path)]))
    return commit.commit(place, message, ["a"], **more).hash


def test_a_hook_sees_what_it_sees_at_the_machine(repository: Repository, work: Work) -> None:
    """The repository itself, and what is being committed; it runs by its own path, and where
    core.hooksPath is set no other does. Its environment: tests/attack/test_environments.py.
    """
    repository.commit_files({"a": "1\n", "b": "1\n"})
    look = "env; pwd; git config test.key; git diff --cached --name-only"
    own = f'{{ echo "$0"; {look}; git rev-parse --absolute-git-dir; }} >.git/seen 2>&1'
    repository.write("hooks/pre-commit", f"#!/bin/sh\n{own}\n").chmod(0o755)
    repository.hook("pre-commit", "exit 1")
    repository.write("hooks/commit-msg", "#!/bin/sh\nexit 1\n")  # git runs no such file
    for name, value in {"test.key": "the repository's own", "core.hooksPath": "hooks"}.items():
        repository.git("config", name, value)
    repository.write_files(dict.fromkeys("ab", "2\n"))
    repository.git("add", "b")
    work.committed("Look", ["a"])
    shown = set((repository.path / ".git/seen").read_text().splitlines())
    places = ("hooks/pre-commit", *(repository.path / name for name in ("", ".git")))
    assert {"the repository's own", "a", *map(str, places)} <= shown and "b" not in shown
    assert not any(line.startswith(("GIT_DIR=", "GIT_CONFIG", "GIT_COMMON_DIR=")) for line in shown)


def test_a_hook_may_change_what_is_committed(repository: Repository, work: Work) -> None:
    """A formatter, a message with a ticket's number: the answer says what was committed. One after
    the commit may fail or commit again: the answer names the commit that HEAD is at. An
    amend takes none of what was staged and not named, and nothing that a hook has mended stays
    staged as it was.
    """
    repository.commit_files({"a": "1\n", "version": "1\n", "other": "1\n"})
    repository.hook("pre-commit", "echo formatted > a; echo 2 > version; git add a version")
    repository.hook("prepare-commit-msg", 'echo "T-1: $(cat "$1")" > "$1"')
    repository.hook("commit-msg", 'grep -q T-1 "$1"')
    amend = "{ touch .git/amended; git commit -q --amend -m Amended; }"
    repository.hook("post-commit", f"[ -e .git/amended ] || {amend}; exit 1")
    repository.write_files(dict.fromkeys(("other", "a"), "2\n"))
    repository.git("add", "other")
    summary = work.committed("Change", ["a"])
    said = (summary["hash"], summary["summary"], summary["files_changed"])
    assert said == (repository.head(), "T-1: Amended", 2)
    assert repository.git("show", "HEAD:a") == "formatted\n"
    assert repository.staged() == ["other"]
    assert repository.git("diff", "--name-only") == ""


Files = list[str] | None
# as a suite of tests does, which the hook runs
ELSEWHERE = """
cd "$(mktemp -d)" && git init -q . && echo theirs > a && git add a &&
git -c user.name=t -c user.email=t@example.com commit -qm Theirs && git show HEAD:a
"""


@pytest.fixture(params=[None, ["a"]], ids=["staged", "named"])
def files(request: pytest.FixtureRequest) -> Files:
    return request.param  # type: ignore[no-any-return]


def test_a_hook_that_works_in_another_repository(
    changed: Repository, work: Work, files: Files
) -> None:
    """What it adds there is not committed here, and the other way round."""
    changed.hook("pre-commit", f"({ELSEWHERE}) > .git/there")
    work.committed("Mine", files)
    assert (changed.path / ".git/there").read_text() == "theirs\n"
    assert changed.git("ls-tree", "-r", "--name-only", "HEAD").split() == ["a", "b"]
    assert (changed.committed(), changed.git("show", "HEAD:a")) == (["a"], "2\n")
    assert changed.porcelain() == "" and not list((changed.path / ".git").glob("index?*"))


def test_what_somebody_stages_meanwhile(changed: Repository, work: Work, files: Files) -> None:
    """It stays staged, though the agent works while the phone commits and the hooks run."""
    changed.write("b", "2\n")
    changed.hook("pre-commit", "env -u GIT_INDEX_FILE git add b; echo hook > c; git add c")
    work.committed("Meanwhile", files)
    assert changed.committed() == ["a", "c"]
    assert changed.staged() == ["b"] and changed.git("diff", "--name-only") == ""


# What somebody at the machine does while the bridge commits: in the repository and its own index.
THEIR_GIT = "env -u GIT_DIR -u GIT_COMMON_DIR -u GIT_INDEX_FILE -u GIT_WORK_TREE git"
COMMIT_B = f"echo 2 > b; {THEIR_GIT} add b; {THEIR_GIT} commit -q --no-verify -m Theirs -- b"


@pytest.mark.parametrize("code", [0, 1], ids=["accepts", "refuses"])
def test_a_commit_during_a_hook(changed: Repository, work: Work, code: int, files: Files) -> None:
    """Somebody else's is not taken for the phone's, and what was staged for that stays staged."""
    changed.hook("pre-commit", f"{COMMIT_B}; exit {code}")
    said = assert_refused(work.commit("Mine", files), "GIT_ERROR", True)["message"]
    assert said.startswith("The repository has moved on")
    assert changed.git("log", "-1", "--format=%s") == "Theirs\n"
    assert changed.staged() == ["a"] and changed.git("show", ":a") == "2\n"


def test_a_commit_that_somebody_makes_on_top(changed: Repository, work: Work, files: Files) -> None:
    """The answer is the phone's commit; what they have staged since stays staged, and of a file
    that both have committed the index has theirs: the phone's would look staged, and undo it.
    """
    both = f"{COMMIT_B}; echo 3 > a; {THEIR_GIT} commit -q -a -m Theirs"
    then = f"{both}; echo 3 > b; {THEIR_GIT} add b"
    changed.hook("post-commit", f"[ -e .git/once ] || {{ touch .git/once; {then}; }}")
    summary = work.committed("Mine", files)
    mine = (changed.git("rev-parse", "HEAD~2").strip(), "Mine", 1)
    assert (summary["hash"], summary["summary"], summary["files_changed"]) == mine
    assert changed.staged() == ["b"]
    assert (changed.git("show", ":a"), changed.git("show", ":b")) == ("3\n", "3\n")


SWITCHES = {way: f"{THEIR_GIT} checkout -q {way}" for way in ("-b other", "--detach", "old")}
THEIRS = {"commit": COMMIT_B, "first commit": COMMIT_B, **SWITCHES}


def begin(repository: Repository, what: str, name: str) -> None:
    if what != "first commit":
        repository.commit_files({"a": "1\n", "b": "0\n"})
        repository.git("branch", "old")
        repository.commit_files({"b": "1\n"})
    repository.write(name, "3\n")


@pytest.mark.parametrize("name", ["a", "new"])
@pytest.mark.parametrize("what", THEIRS)
def test_head_moves_before_git_commits(
    home: Path, repository: Repository, work: Work, what: str, name: str
) -> None:
    """A file is added first. What is committed then would be on another branch, or undo their
    commit; so nothing is done.
    """
    begin(repository, what, name)
    repository.write(".git/info/attributes", f"{name} filter=meanwhile\n")
    once = home / "once"  # the user's filter runs once the index is copied
    script = f"#!/bin/sh\n[ -e '{once}' ] || {{ touch '{once}'; {THEIRS[what]}; }} >&2\ncat\n"
    (home / "clean").write_text(script)
    (home / "clean").chmod(0o755)
    (home / ".gitconfig").write_text('[filter "meanwhile"]\n\tclean = ~/clean\n')
    said = assert_refused(work.commit("Mine", [name]), "GIT_ERROR", True)["message"]
    assert said.startswith("The repository has moved on")
    assert "Mine" not in repository.git("log", "--all", "--format=%s")
    assert repository.staged() == []


@pytest.mark.parametrize("what", THEIRS)
def test_head_moves_while_git_commits(repository: Repository, work: Work, what: str) -> None:
    """Git refuses, unless the other branch is at the same commit: then the answer names it."""
    begin(repository, what, "a")
    own = f"[ -e .git/once ] || {{ touch .git/once; {THEIRS[what]}; }}"
    repository.hook("pre-commit", own)
    answer = work.commit("Mine", ["a"])
    if what in ("-b other", "--detach"):
        where = "other" if what == "-b other" else "no branch"
        note = committed(answer, work.sid)["note"]
        assert note == f"Somebody switched branches meanwhile: this was committed on {where}."
        assert repository.git("log", "-1", "--format=%s") == "Mine\n"
    else:
        said = assert_refused(answer, "GIT_ERROR", True)["message"]
        assert said.startswith("The repository has moved on")
        assert "Mine" not in repository.git("log", "--all", "--format=%s")
    assert repository.git("log", "-1", "--format=%s", "main") != "Mine\n"
    assert repository.staged() == []


def test_four_commits_at_once(bridge: Bridge, repository: Repository) -> None:
    """One after the other; all are there, and nothing is left over."""
    repository.commit_files(dict.fromkeys("abcd", "1\n"))
    repository.hook("pre-commit", "sleep 0.2")
    repository.write_files(dict.fromkeys("abcd", "2\n"))
    with bridge.phones(4) as phones, ThreadPoolExecutor(4) as pool:
        works = [Work(bridge, phone, repository.path) for phone in phones]
        summaries = list(pool.map(lambda work, name: work.committed(name, [name]), works, "abcd"))
    assert all(summary["files_changed"] == 1 for summary in summaries)
    assert len({summary["hash"] for summary in summaries}) == 4
    assert repository.git("rev-list", "--count", "HEAD") == "5\n"
    assert repository.porcelain() == ""


def test_another_git_holds_the_index(changed: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for, but not for ever; its lock is never touched. It moves HEAD first: while it
    holds the index, that is not copied. A commit that is made stays, also when the index cannot
    be updated.
    """
    before = changed.index()
    changed.write("b", "2\n")
    changed.git("commit", "-q", "-m", "Theirs", "--", "b")
    lock = changed.write(".git/index.lock", changed.index())
    changed.write(".git/index", before)
    threading.Timer(0.5, lock.replace, [changed.path / ".git/index"]).start()
    commit_here(changed, "Waited")
    assert changed.committed() == ["a"] and changed.porcelain() == ""
    monkeypatch.setattr(limits, "GIT_LOCK_SECONDS", 0.1)
    changed.hook("post-commit", "echo theirs >.git/index.lock")
    changed.write("a", "3\n")
    assert commit_here(changed, "Made") == changed.head()
    with pytest.raises(BridgeError, match=r"\.git/index\.lock is there"):
        commit_here(changed, "In vain")
    assert lock.read_text() == "theirs\n"
    lock.unlink()
    assert changed.git("show", "HEAD:a") == "3\n" and changed.staged() == ["a"]


def test_a_commit_whose_hook_breaks_the_repository(repository: Repository, work: Work) -> None:
    """D10: it is answered with the commit, and an empty status that says that it is not all."""
    repository.write("a", "1\n")
    repository.hook("post-commit", f"ln -s /etc '{repository.path}/.git/refs/out'")
    answer = work.commit("Made", ["a"])
    assert answer["type"] == "git_status_response", answer
    assert answer["payload"]["commit"]["hash"] == repository.head()
    assert (answer["payload"]["changes"], answer["payload"]["truncated"]) == ([], True)


@pytest.mark.parametrize("reflog", [True, False])
def test_a_commit_that_a_killed_process_had_begun(changed: Repository, reflog: bool) -> None:
    """D31: what was committed is answered, whether or not the index had been updated."""
    if reflog:
        changed.hook("commit-msg", 'echo Rewritten > "$1"')
    else:
        shutil.rmtree(changed.path / ".git/logs")
        changed.git("config", "core.logAllRefUpdates", "false")
    before, begun = changed.index(), datetime.now(UTC) - timedelta(seconds=1)
    first = commit_here(changed, "Once", begun=begun, request_id="1")
    for left in (changed.index(), before):
        changed.write(".git/index", left)
        assert commit_here(changed, "Once", begun=begun, request_id="1") == first
        assert changed.porcelain() == ""
    later = datetime.now(UTC) + timedelta(seconds=5)
    for message, since, number in (("Other", begun, "2"), ("Once", later, "3")):
        with pytest.raises(BridgeError, match="Nothing to commit"):
            commit_here(changed, message, begun=since, request_id=number)


def test_the_users_name(home: Path, bridge: Bridge, repository: Repository, work: Work) -> None:
    """Includes count, the repository's own goes before it, nobody is an error."""
    for key in ("user.name", "user.email"):
        repository.git("config", "--unset", key)
    repository.write("a", "1\n")
    (home / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    said = assert_refused(work.commit("Nobody", ["a"]), "GIT_ERROR", True)["message"]
    assert "identity" in said
    assert repository.git("log", "--all") == "" and repository.staged() == []
    (home / "work").write_text("[user]\n\temail = grace@work.example\n")
    (home / ".gitconfig").write_text(
        '[user]\n\tname = "G. \\"#\\\\;\\tHopper"\n\temail = grace@home.example\n'
        f'[includeIf "gitdir:{bridge.root}/"]\n\tpath = ~/work\n'
    )
    for name, author in {"a": 'G. "#\\;\tHopper', "b": "Ada"}.items():
        repository.write(name, "1\n")
        work.committed(name, [name])
        shown = repository.git("log", "-1", "--format=%an %ae %cn").strip()
        assert shown == f"{author} grace@work.example {author}"
        repository.git("config", "user.name", "Ada")


def test_the_users_ignores_and_filters(home: Path, repository: Repository, work: Work) -> None:
    """Ignores count as at the machine: in the usual place, or where his configuration says. Filters
    do not run in reading, but in a commit.
    """
    repository.write("a.tmp", "")
    repository.write("b.bak", "")
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/ignore").write_text("*.tmp\n")
    assert set(work.changes()) == {"b.bak"}
    (home / "ignored").write_text("*.bak\n")
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/ignored\n")
    assert set(work.changes()) == {"a.tmp"}
    (home / ".gitconfig").write_text('[filter "own"]\n\tclean = touch ~/ran; cat\n')
    repository.commit_files({".gitattributes": "* filter=own\n", "a": "1\n"})
    repository.write("a", "2\n")
    assert work.changes() and work.diff("a")
    assert not (home / "ran").exists()
    work.committed("Filtered", ["a"])
    assert (home / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository away")
def test_somebody_elses_repository(home: Path, changed: Repository, work: Work) -> None:
    """As git does it: refused, unless the user has called it safe."""
    os.chown(changed.path / ".git", 65534, 65534)
    own, above = str(changed.path), f"{changed.path.parent}/*"
    safes = (("/elsewhere/*", False), (own, True), ("", False), (above, True), ("", False))
    for safe, shown in (*safes, ("*", True)):
        with (home / ".gitconfig").open("a") as file:
            file.write(f'[safe]\n\tdirectory = "{safe}"\n')
        if shown:
            assert work.changes() == {"a": ("modified", 1, 1)}
        else:
            assert_refused(work.ask("git_status_request"), "GIT_ERROR", True)


def test_the_data_directory_in_a_repository_is_not_shown(bridge: Bridge, phone: Phone) -> None:
    """D45: never, whatever the roots, and also when somebody has added it."""
    around, name = Repository(bridge.directory), "bridge data/secrets/added"
    around.write(name, "the secret\n")
    around.git("add", "-f", name)
    around.write_files(dict.fromkeys((name, "bridge data/secrets/new"), "the secret, changed\n"))
    work = Work(bridge, phone, bridge.directory)
    for cached in (False, True):
        for files in ((), (".",)):
            assert "the secret" not in str(work.ask_diff(*files, cached=cached))
    assert not any(path.startswith("bridge data/") for path in work.changes())
    for hidden in ("bridge data", name):
        for answer in (work.ask_diff(hidden), work.commit("Secrets", [hidden])):
            assert_refused(answer, "FILE_ACCESS_DENIED", True)
    inside = Work(bridge, phone, bridge.data)
    assert_refused(inside.ask("git_status_request"), "FILE_ACCESS_DENIED", True)
    work.committed("All but those", ["."])
    assert "bridge data" not in around.git("show", "--name-only", "--format=")
