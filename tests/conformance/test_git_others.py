"""A commit's hooks, others who work in the repository at the same time, what the bridge's user has
set, and what git may not see of the bridge (D10, D31, D45).
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail
from files_app.git import commit
from files_app.git.repository import repository_of
from files_app.git.sandbox import config
from files_app.git.sandbox.error_text import reason
from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work
from tests.files.repositories import committed, hook, index
from tests.servers import wait_until


@pytest.fixture(scope="module")
def bridge(make_bridge: Callable[..., Bridge]) -> Bridge:
    """Its data directory lies in its root, and its user has a home of his own."""
    bridge = make_bridge("git", start=False)
    home = bridge.directory / "home"
    bridge.settings |= {"HOME": str(home), "XDG_CONFIG_HOME": f"{home}/.config"}
    bridge.settings["BRIDGE_ALLOWED_ROOTS"] = str(bridge.directory)
    return bridge.start()


@pytest.fixture
def home(bridge: Bridge) -> Iterator[Path]:
    """The home of the bridge's user, empty."""
    home = bridge.directory / "home"
    home.mkdir()
    yield home
    shutil.rmtree(home)


@pytest.fixture
def changed(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Two files, one of them changed since and staged."""
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(repository.path))  # of this process: see `commit_here`
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.write("a", "2\n")
    repository.git("add", "a")
    return repository


def commit_here(repository: Repository, message: str, *, begun: datetime | None = None) -> str:
    """Commit `a` in this process, whose limits a test can set; the commit."""
    place = repository_of(str(repository.path), Jail([str(repository.path)]))
    return commit.commit(place, message, ["a"], begun=begun).hash


# -- hooks -----------------------------------------------------------------------------------------


def test_a_hook_sees_what_it_sees_at_the_machine(repository: Repository, work: Work) -> None:
    """The repository itself, and what is being committed; it runs by its own path, and where
    core.hooksPath is set no other does. Its environment: tests/attack/test_environments.py.
    """
    repository.commit_files({"a": "1\n", "b": "1\n"})
    look = "env; pwd; git config test.key; git diff --cached --name-only"
    own = f'{{ echo "$0"; {look}; git rev-parse --absolute-git-dir; }} >.git/seen 2>&1'
    repository.write("hooks/pre-commit", f"#!/bin/sh\n{own}\n").chmod(0o755)
    hook(repository, "pre-commit", "exit 1")
    repository.write("hooks/commit-msg", "#!/bin/sh\nexit 1\n")  # git runs no such file
    (repository.path / "hooks/prepare-commit-msg").mkdir()
    for name, value in {"test.key": "the repository's own", "core.hooksPath": "hooks"}.items():
        repository.git("config", name, value)
    for name in ("a", "b"):
        repository.write(name, "2\n")
    repository.git("add", "b")
    work.committed("Look", ["a"])
    shown = set((repository.path / ".git/seen").read_text().splitlines())
    places = (repository.path / name for name in ("", ".git", "hooks/pre-commit"))
    assert {"the repository's own", "a", *map(str, places)} <= shown and "b" not in shown
    assert not any(line.startswith(("GIT_DIR=", "GIT_CONFIG", "GIT_COMMON_DIR=")) for line in shown)


def test_a_hook_may_change_what_is_committed(repository: Repository, work: Work) -> None:
    """A formatter, a message with a ticket's number: the answer says what was committed. One after
    the commit may fail or commit again: the answer names the commit that HEAD is at.
    """
    repository.commit_files({"a": "1\n", "version": "1\n", "other": "1\n"})
    hook(repository, "pre-commit", "echo formatted > a; echo 2 > version; git add a version")
    hook(repository, "prepare-commit-msg", 'echo "T-1: $(cat "$1")" > "$1"')
    hook(repository, "commit-msg", 'grep -q T-1 "$1"')
    amend = "{ touch .git/amended; git commit -q --amend -m Amended; }"
    hook(repository, "post-commit", f"[ -e .git/amended ] || {amend}; exit 1")
    for name in ("other", "a"):
        repository.write(name, "2\n")
    repository.git("add", "other")
    summary = work.committed("Change", ["a"])
    said = (summary["hash"], summary["summary"], summary["files_changed"])
    assert said == (repository.head(), "T-1: Amended", 2)
    assert repository.git("show", "HEAD:a") == "formatted\n"
    assert repository.staged() == ["other"]
    assert repository.git("diff", "--name-only") == ""


@pytest.mark.parametrize("name", ["pre-commit", "post-commit"])
def test_a_hook_that_takes_too_long(
    changed: Repository, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is ended with its children; before the commit nothing is changed, after it all is."""
    monkeypatch.setattr(limits, "GIT_COMMIT_SECONDS", 4.0)
    first, before, pids = changed.head(), index(changed), changed.path / ".git/pids"
    hook(changed, name, f"(trap '' TERM; sleep 600; :) & echo $! $$ > '{pids}'; wait")
    if name == "pre-commit":
        with pytest.raises(BridgeError, match="longer than 4 seconds"):
            commit_here(changed, "Slow")
        assert changed.head() == first and index(changed) == before
    else:
        assert commit_here(changed, "Slow") == changed.head() != first
        assert changed.porcelain() == ""
    wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()),
        "the hook's children end",
    )
    assert not list(changed.path.glob(".git/**/*.lock"))


# -- others at the same time -----------------------------------------------------------------------

both_ways = pytest.mark.parametrize("files", [None, ["a"]], ids=["staged", "named"])


@both_ways
def test_what_somebody_stages_meanwhile_stays(
    changed: Repository, work: Work, files: list[str] | None
) -> None:
    """The coding agent works while the phone commits and the hooks run: both find what they did."""
    changed.write("b", "2\n")
    hook(changed, "pre-commit", "env -u GIT_INDEX_FILE git add b; echo hook > c; git add c")
    work.committed("Meanwhile", files)
    assert committed(changed) == ["a", "c"]
    assert changed.staged() == ["b"] and changed.git("diff", "--name-only") == ""


# What somebody at the machine does while the bridge commits: in the repository and its own index.
THEIR_GIT = "env -u GIT_DIR -u GIT_COMMON_DIR -u GIT_INDEX_FILE -u GIT_WORK_TREE git"
COMMIT_B = f"echo 2 > b; {THEIR_GIT} add b; {THEIR_GIT} commit -q --no-verify -m Theirs -- b"


@both_ways
@pytest.mark.parametrize("code", [0, 1], ids=["accepts", "refuses"])
def test_a_commit_that_somebody_makes_while_a_hook_runs(
    changed: Repository, work: Work, code: int, files: list[str] | None
) -> None:
    """It is not taken for the phone's, and what was staged for that stays staged."""
    hook(changed, "pre-commit", f"{COMMIT_B}; exit {code}")
    said = assert_refused(work.commit("Mine", files), "GIT_ERROR", True)["message"]
    assert said.startswith("Somebody else committed")
    assert changed.git("log", "-1", "--format=%s") == "Theirs\n"
    assert changed.staged() == ["a"] and changed.git("show", ":a") == "2\n"


@both_ways
def test_a_commit_that_somebody_makes_on_top(
    changed: Repository, work: Work, files: list[str] | None
) -> None:
    """The answer is the phone's commit; what they have staged since stays staged, and of a file
    that both have committed the index has theirs: the phone's would look staged, and undo it.
    """
    both = f"{COMMIT_B}; echo 3 > a; {THEIR_GIT} commit -q -a -m Theirs"
    then = f"{both}; echo 3 > b; {THEIR_GIT} add b"
    hook(changed, "post-commit", f"[ -e .git/once ] || {{ touch .git/once; {then}; }}")
    summary = work.committed("Mine", files)
    mine = (changed.git("rev-parse", "HEAD~2").strip(), "Mine", 1)
    assert (summary["hash"], summary["summary"], summary["files_changed"]) == mine
    assert changed.staged() == ["b"]
    assert (changed.git("show", ":a"), changed.git("show", ":b")) == ("3\n", "3\n")


@pytest.mark.parametrize(
    ("theirs", "first"),
    [
        *((COMMIT_B, False), (COMMIT_B, True)),
        (f"{THEIR_GIT} checkout -q -b other", False),
        (f"{THEIR_GIT} checkout -q --detach", False),
    ],
    ids=["commit", "first commit", "branch", "detached"],
)
def test_head_moves_before_git_commits(
    home: Path, repository: Repository, work: Work, theirs: str, first: bool
) -> None:
    """Git itself would commit the former files on top of their commit, and so undo that."""
    if not first:
        repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.write("a", "3\n")
    repository.write(".git/info/attributes", "a filter=meanwhile\n")
    once = home / "once"  # the user's filter runs once the index is copied
    script = f"#!/bin/sh\n[ -e '{once}' ] || {{ touch '{once}'; {theirs}; }} >&2\ncat\n"
    (home / "clean").write_text(script)
    (home / "clean").chmod(0o755)
    (home / ".gitconfig").write_text('[filter "meanwhile"]\n\tclean = ~/clean\n')
    said = assert_refused(work.commit("Mine", ["a"]), "GIT_ERROR", True)["message"]
    assert said.startswith("Somebody else committed or switched")
    assert "Mine" not in repository.git("log", "--all", "--format=%s")
    assert repository.staged() == []


def test_a_commit_that_is_not_in_the_index_yet(changed: Repository, work: Work) -> None:
    """Another git moves HEAD first; while it holds the index, the bridge does not copy it."""
    before = index(changed)
    changed.write("b", "2\n")
    changed.git("commit", "-q", "-m", "Theirs", "--", "b")
    lock = changed.write(".git/index.lock", index(changed))
    changed.write(".git/index", before)
    threading.Timer(0.5, lock.replace, [changed.path / ".git/index"]).start()
    work.committed("Mine")
    assert committed(changed) == ["a"] and changed.porcelain() == ""


def test_four_commits_at_once(bridge: Bridge, repository: Repository) -> None:
    """One after the other; all are there, and nothing is left over."""
    repository.commit_files(dict.fromkeys("abcd", "1\n"))
    hook(repository, "pre-commit", "sleep 0.2")
    for name in "abcd":
        repository.write(name, "2\n")
    with bridge.phones(4) as phones, ThreadPoolExecutor(4) as pool:
        works = [Work(bridge, phone, repository.path) for phone in phones]
        summaries = list(pool.map(lambda work, name: work.committed(name, [name]), works, "abcd"))
    assert len({summary["hash"] for summary in summaries}) == 4
    assert all(summary["files_changed"] == 1 for summary in summaries)
    assert repository.git("rev-list", "--count", "HEAD").strip() == "5"
    assert repository.porcelain() == ""


def test_another_git_that_holds_the_index(
    changed: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, but not for ever; its lock is never touched. A commit that is made stays,
    also when the index cannot be updated.
    """
    lock = changed.write(".git/index.lock", "theirs")
    threading.Timer(0.5, lock.unlink).start()
    commit_here(changed, "Waited")
    monkeypatch.setattr(limits, "GIT_LOCK_SECONDS", 0.1)
    hook(changed, "post-commit", "echo theirs >.git/index.lock")
    changed.write("a", "3\n")
    assert commit_here(changed, "Made") == changed.head()
    with pytest.raises(BridgeError, match=r"\.git/index\.lock is there"):
        commit_here(changed, "In vain")
    assert lock.read_text() == "theirs\n"
    lock.unlink()
    assert changed.git("show", "HEAD:a") == "3\n" and changed.staged() == ["a"]


@pytest.mark.parametrize("updated", [True, False], ids=["index updated", "index not updated"])
def test_a_commit_that_a_killed_process_had_begun(changed: Repository, updated: bool) -> None:
    """D31: what was committed is answered, what was not is committed."""
    before, begun = index(changed), datetime.now(UTC) - timedelta(seconds=1)
    first = commit_here(changed, "Once", begun=begun)
    if not updated:
        (changed.path / ".git/index").write_bytes(before)
    assert commit_here(changed, "Once", begun=begun) == first and changed.porcelain() == ""
    for message, since in (("Other", begun), ("Once", datetime.now(UTC) + timedelta(seconds=5))):
        with pytest.raises(BridgeError, match="Nothing to commit"):
            commit_here(changed, message, begun=since)


# -- the user, and the bridge ----------------------------------------------------------------------


def test_the_users_name_as_his_configuration_says_here(
    home: Path, bridge: Bridge, repository: Repository, work: Work
) -> None:
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
        "[user]\n\tname = Grace\n\temail = grace@home.example\n"
        f'[includeIf "gitdir:{bridge.root}/"]\n\tpath = ~/work\n'
    )
    authors = {"a": "Grace grace@work.example Grace", "b": "Ada grace@work.example Ada"}
    for name, author in authors.items():
        repository.write(name, "1\n")
        work.committed(name, [name])
        assert repository.git("log", "-1", "--format=%an %ae %cn").strip() == author
        repository.git("config", "user.name", "Ada")


def test_the_users_own_filters_do_not_run_in_reading(
    home: Path, repository: Repository, work: Work
) -> None:
    """In a commit they do."""
    (home / ".gitconfig").write_text('[filter "own"]\n\tclean = touch ~/ran; cat\n')
    repository.commit_files({".gitattributes": "* filter=own\n", "a": "1\n"})
    repository.write("a", "2\n")
    assert work.changes() and work.diff("a")
    assert not (home / "ran").exists()
    work.committed("Filtered", ["a"])
    assert (home / "ran").exists()


def test_the_users_own_ignores_count(home: Path, repository: Repository, work: Work) -> None:
    """As at the machine: in the usual place, or where his configuration says."""
    repository.write("a.tmp", "")
    repository.write("b.bak", "")
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/ignore").write_text("*.tmp\n")
    assert set(work.changes()) == {"b.bak"}
    (home / "ignored").write_text("*.bak\n")
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/ignored\n")
    assert set(work.changes()) == {"a.tmp"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository away")
def test_somebody_elses_repository(home: Path, changed: Repository, work: Work) -> None:
    """As git does it: refused, unless the user has called it safe."""
    os.chown(changed.path / ".git", 65534, 65534)
    own = str(changed.path)
    for safe, shown in (("/elsewhere", False), (own, True), ("", False), ("*", True)):
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
    for new in (name, "bridge data/secrets/new"):
        around.write(new, "the secret, changed\n")
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


PIECES = ["/", "/etc", "etc", "'", " ", ":", "\n", "…", ".", "x", "https://", "file:"]


@given(said=some.lists(some.sampled_from(PIECES), max_size=30).map("".join))
def test_no_reason_names_an_absolute_path(said: str) -> None:
    cleaned = reason(said.encode(), Jail(["/allowed"]), "/allowed/top")
    parts = " ".join(part for part in cleaned.split() if "://" not in part)
    words = parts.replace("'", " ").replace(":", " ").split()
    assert not any(word.startswith("/") for word in words), cleaned


VALUES = some.text(alphabet='a "\\\n\t#;=ü[]', max_size=12)
SUBSECTIONS = some.text(alphabet='aB.ü "\\]=', min_size=1, max_size=8)


@given(pairs=some.lists(some.tuples(SUBSECTIONS, VALUES), max_size=5))
def test_git_reads_what_is_written(pairs: list[tuple[str, str]]) -> None:
    branches = [(f"branch.{subsection}.merge", value) for subsection, value in pairs]
    written = [("core.eol", "lf"), *branches]
    assert config.read_file("config", config.text(written), "/") == written
