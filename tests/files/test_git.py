"""A commit's hooks, others who work in the repository at the same time, what the bridge's user has
set, and what git may not see of the bridge (D10, D31, D45).
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.catalogue import encode
from files_app.git.sandbox import config
from tests.conformance.repositories import Repository
from tests.files.conftest import House, refused
from tests.files.repositories import Seen, change, committed, hook, index
from tests.servers import wait_until

# -- hooks -----------------------------------------------------------------------------------------


def test_a_hook_sees_what_it_sees_at_the_machine(repository: Repository, seen: Seen) -> None:
    """The repository itself, and what is being committed; it runs by its own path, and where
    core.hooksPath is set no other does. Its environment: tests/attack/test_environments.py.
    """
    repository.commit_files({"a": "1\n", "b": "1\n"})
    look = "env; pwd; git config test.key; git diff --cached --name-only"
    own = f'{{ echo "$0"; {look}; git rev-parse --absolute-git-dir; }} >.git/seen 2>&1'
    repository.write("hooks/pre-commit", f"#!/bin/sh\n{own}\n").chmod(0o755)
    hook(repository, "pre-commit", "exit 1")
    for name, value in {"test.key": "the repository's own", "core.hooksPath": "hooks"}.items():
        repository.git("config", name, value)
    for name in ("a", "b"):
        repository.write(name, "2\n")
    repository.git("add", "b")
    seen.commit("Look", "a")
    shown = set((repository.path / ".git/seen").read_text().splitlines())
    places = (repository.path / name for name in ("", ".git", "hooks/pre-commit"))
    assert {"the repository's own", "a", *map(str, places)} <= shown and "b" not in shown
    assert not any(line.startswith(("GIT_DIR=", "GIT_CONFIG", "GIT_COMMON_DIR=")) for line in shown)


def test_a_hook_may_change_what_is_committed(repository: Repository, seen: Seen) -> None:
    """A formatter, a message with a ticket's number: the answer says what was committed. One after
    the commit may fail or commit again: the answer names the commit that HEAD is at.
    """
    repository.commit_files({"a": "1\n", "version": "1\n", "other": "1\n"})
    hook(repository, "pre-commit", "echo formatted > a; echo 2 > version; git add a version")
    hook(repository, "prepare-commit-msg", 'echo "T-1: $(cat "$1")" > "$1"')
    hook(repository, "commit-msg", 'grep -q T-1 "$1"')
    amend = "{ touch ../amended; git commit -q --amend -m Amended; }"
    hook(repository, "post-commit", f"[ -e ../amended ] || {amend}; exit 1")
    for name in ("other", "a"):
        repository.write(name, "2\n")
    repository.git("add", "other")
    summary = seen.commit("Change", "a")
    said = (summary.hash, summary.summary, summary.files_changed)
    assert said == (repository.head(), "T-1: Amended", 2)
    assert repository.git("show", "HEAD:a") == "formatted\n"
    assert repository.staged() == ["other"]
    assert repository.git("diff", "--name-only") == ""


@pytest.mark.parametrize("name", ["pre-commit", "post-commit"])
def test_a_hook_that_takes_too_long(
    repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is ended with its children; before the commit nothing is changed, after it all is."""
    monkeypatch.setattr(limits, "GIT_COMMIT_SECONDS", 1.0)
    change(repository)
    first, pids = repository.head(), repository.path / ".git/pids"
    hook(repository, name, f"(trap '' TERM; sleep 600; :) & echo $! $$ > '{pids}'; wait")
    if name == "pre-commit":
        with pytest.raises(BridgeError, match="longer than 1 seconds"):
            seen.commit("Slow", "a")
        assert repository.head() == first and repository.staged() == []
    else:
        assert seen.commit("Slow", "a").hash == repository.head() != first
        assert repository.porcelain() == ""
    wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()),
        "the hook's children end",
    )
    assert not list(repository.path.glob(".git/**/*.lock"))


# -- others at the same time -----------------------------------------------------------------------


@pytest.mark.parametrize("files", [(), ("a",)], ids=["staged", "named"])
def test_what_somebody_stages_meanwhile_stays(
    repository: Repository, seen: Seen, files: tuple[str, ...]
) -> None:
    """The coding agent works while the phone commits and the hooks run: both find what they did."""
    repository.commit_files(dict.fromkeys("abc", "1\n"))
    for name in "abc":
        repository.write(name, "2\n")
    repository.git("add", "a")
    hook(repository, "pre-commit", "env -u GIT_INDEX_FILE git add b; echo hook > c; git add c")
    seen.commit("Meanwhile", *files)
    assert committed(repository) == ["a", "c"]
    assert repository.staged() == ["b"] and repository.git("diff", "--name-only") == ""


# What somebody at the machine does while the bridge commits: in the repository and its own index.
THEIR_GIT = "env -u GIT_DIR -u GIT_COMMON_DIR -u GIT_INDEX_FILE -u GIT_WORK_TREE git"
COMMIT_B = f"echo 2 > b; {THEIR_GIT} add b; {THEIR_GIT} commit -q --no-verify -m Theirs -- b"


@pytest.mark.parametrize("files", [(), ("a",)], ids=["staged", "named"])
@pytest.mark.parametrize("code", [0, 1], ids=["accepts", "refuses"])
def test_a_commit_that_somebody_makes_while_a_hook_runs(
    repository: Repository, seen: Seen, code: int, files: tuple[str, ...]
) -> None:
    """It is not taken for the phone's, and what was staged for that stays staged."""
    change(repository)
    repository.git("add", "a")
    hook(repository, "pre-commit", f"{COMMIT_B}; exit {code}")
    with pytest.raises(BridgeError, match="Somebody else committed"):
        seen.commit("Mine", *files)
    assert repository.git("log", "-1", "--format=%s") == "Theirs\n"
    assert repository.staged() == ["a"] and repository.git("show", ":a") == "2\n"


@pytest.mark.parametrize("files", [(), ("a",)], ids=["staged", "named"])
def test_a_commit_that_somebody_makes_on_top(
    repository: Repository, seen: Seen, files: tuple[str, ...]
) -> None:
    """The answer is the phone's commit; what they have staged since stays staged, and of a file
    that both have committed the index has theirs: the phone's would look staged, and undo it.
    """
    change(repository)
    repository.git("add", "a")
    both = f"{COMMIT_B}; echo 3 > a; {THEIR_GIT} commit -q -a -m Theirs"
    then = f"{both}; echo 3 > b; {THEIR_GIT} add b"
    hook(repository, "post-commit", f"[ -e ../once ] || {{ touch ../once; {then}; }}")
    summary = seen.commit("Mine", *files)
    mine = (repository.git("rev-parse", "HEAD~2").strip(), "Mine", 1)
    assert (summary.hash, summary.summary, summary.files_changed) == mine
    assert repository.staged() == ["b"]
    assert (repository.git("show", ":a"), repository.git("show", ":b")) == ("3\n", "3\n")


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
    house: House, repository: Repository, seen: Seen, theirs: str, first: bool
) -> None:
    """Git itself would commit the former files on top of their commit, and so undo that."""
    if not first:
        change(repository)
    repository.write("a", "3\n")
    repository.write(".git/info/attributes", "a filter=meanwhile\n")
    once = house.top / "once"  # the user's filter runs once the index is copied
    script = f"#!/bin/sh\n[ -e '{once}' ] || {{ touch '{once}'; {theirs}; }} >&2\ncat\n"
    (house.top / "home/clean").write_text(script)
    (house.top / "home/clean").chmod(0o755)
    (house.top / "home/.gitconfig").write_text('[filter "meanwhile"]\n\tclean = ~/clean\n')
    with pytest.raises(BridgeError, match="Somebody else committed or switched"):
        seen.commit("Mine", "a")
    assert "Mine" not in repository.git("log", "--all", "--format=%s")
    assert repository.staged() == []


def test_a_commit_that_is_not_in_the_index_yet(repository: Repository, seen: Seen) -> None:
    """Another git moves HEAD first; while it holds the index, the bridge does not copy it."""
    change(repository)
    repository.git("add", "a")
    before = index(repository)
    repository.write("b", "2\n")
    repository.git("commit", "-q", "-m", "Theirs", "--", "b")
    lock = repository.write(".git/index.lock", index(repository))
    repository.write(".git/index", before)
    threading.Timer(0.5, lock.replace, [repository.path / ".git/index"]).start()
    seen.commit("Mine")
    assert committed(repository) == ["a"] and repository.porcelain() == ""


def test_four_commits_at_once(repository: Repository, seen: Seen) -> None:
    """One after the other; all are there, and nothing is left over."""
    repository.commit_files(dict.fromkeys("abcd", "1\n"))
    hook(repository, "pre-commit", "sleep 0.2")
    for name in "abcd":
        repository.write(name, "2\n")
    with ThreadPoolExecutor(4) as pool:
        summaries = list(pool.map(lambda name: seen.commit(name, name), "abcd"))
    assert len({summary.hash for summary in summaries}) == 4
    assert all(summary.files_changed == 1 for summary in summaries)
    assert repository.git("rev-list", "--count", "HEAD").strip() == "5"
    assert repository.porcelain() == ""


def test_another_git_that_holds_the_index(
    repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, but not for ever; its lock is never touched. A commit that is made stays,
    also when the index cannot be updated.
    """
    change(repository)
    lock = repository.write(".git/index.lock", "theirs")
    threading.Timer(0.5, lock.unlink).start()
    seen.commit("Waited", "a")
    monkeypatch.setattr(limits, "GIT_LOCK_SECONDS", 0.1)
    hook(repository, "post-commit", "echo theirs >.git/index.lock")
    repository.write("a", "3\n")
    assert seen.commit("Made", "a").hash == repository.head()
    with refused("GIT_ERROR"):
        seen.commit("In vain", "a")
    assert lock.read_text() == "theirs\n"
    lock.unlink()
    assert repository.git("show", "HEAD:a") == "3\n" and repository.staged() == ["a"]


@pytest.mark.parametrize("updated", [True, False], ids=["index updated", "index not updated"])
def test_a_commit_that_a_killed_process_had_begun(
    repository: Repository, seen: Seen, updated: bool
) -> None:
    """D31: what was committed is answered, what was not is committed."""
    change(repository)
    before, begun = index(repository), datetime.now(UTC) - timedelta(seconds=1)
    first = seen.commit("Once", "a", begun=begun)
    if not updated:
        (repository.path / ".git/index").write_bytes(before)
    assert seen.commit("Once", "a", begun=begun) == first and repository.porcelain() == ""
    for message, since in (("Other", begun), ("Once", datetime.now(UTC) + timedelta(seconds=5))):
        with refused("GIT_ERROR"):  # nothing to commit any more
            seen.commit(message, "a", begun=since)


# -- the user, and the bridge ----------------------------------------------------------------------


def test_the_users_name_as_his_configuration_says_here(
    house: House, repository: Repository, seen: Seen
) -> None:
    """Includes count, the repository's own goes before it, nobody is an error."""
    for key in ("user.name", "user.email"):
        repository.git("config", "--unset", key)
    repository.write("a", "1\n")
    home = house.top / "home"
    (home / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    with pytest.raises(BridgeError, match="identity"):
        seen.commit("Nobody", "a")
    assert repository.git("log", "--all") == "" and repository.staged() == []
    (home / "work").write_text("[user]\n\temail = grace@work.example\n")
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Grace\n\temail = grace@home.example\n"
        f'[includeIf "gitdir:{house.root}/"]\n\tpath = ~/work\n'
    )
    authors = {"a": "Grace grace@work.example Grace", "b": "Ada grace@work.example Ada"}
    for name, author in authors.items():
        repository.write(name, "1\n")
        seen.commit(name, name)
        assert repository.git("log", "-1", "--format=%an %ae %cn").strip() == author
        repository.git("config", "user.name", "Ada")


def test_the_users_own_filters_do_not_run_in_reading(
    house: House, repository: Repository, seen: Seen
) -> None:
    """In a commit they do: tests/attack/test_environments.py."""
    clean = '[filter "own"]\n\tclean = touch ~/ran; cat\n'
    (house.top / "home/.gitconfig").write_text(clean)
    repository.commit_files({".gitattributes": "* filter=own\n", "a": "1\n"})
    repository.write("a", "2\n")
    seen.changes(), seen.diff("a")
    assert not (house.top / "home/ran").exists()
    seen.commit("Filtered", "a")
    assert (house.top / "home/ran").exists()


def test_the_users_own_ignores_count(house: House, repository: Repository, seen: Seen) -> None:
    """As at the machine: in the usual place, or where his configuration says."""
    repository.write("a.tmp", "")
    repository.write("b.bak", "")
    (house.top / "home/.config/git").mkdir(parents=True)
    (house.top / "home/.config/git/ignore").write_text("*.tmp\n")
    assert seen.changes() == {"b.bak"}
    (house.top / "home/ignored").write_text("*.bak\n")
    (house.top / "home/.gitconfig").write_text("[core]\n\texcludesFile = ~/ignored\n")
    assert seen.changes() == {"a.tmp"}


def test_somebody_elses_repository(house: House, repository: Repository, seen: Seen) -> None:
    """As git does it: refused, unless the user has called it safe."""
    change(repository)
    if os.geteuid() != 0:
        pytest.skip("only root can give a repository away")
    os.chown(repository.path / ".git", 65534, 65534)
    with refused("GIT_ERROR"):
        seen.changes()
    own, no = str(repository.path), "GIT_ERROR"
    for safe, code in (("/elsewhere", no), (own, None), ("", no), ("*", None)):
        with (house.top / "home/.gitconfig").open("a") as file:
            file.write(f'[safe]\n\tdirectory = "{safe}"\n')
        with refused(code) if code else nullcontext():
            assert seen.changes() == {"a"}


def test_the_data_directory_in_a_repository_is_not_shown(house: House, seen: Seen) -> None:
    """D45: never, whatever the roots, and also when somebody has added it."""
    around = Repository(house.root)
    around.git("add", "-f", "var/secrets/hook_token")
    (house.data / "secrets/hook_token").write_text("SECRET changed\n")
    (house.data / "secrets/new").write_text("SECRET\n")
    looks = Seen(house.jail, house.root)
    for cached in (False, True):
        for files in ((), (".",)):
            assert "SECRET" not in encode(looks.diff(*files, cached=cached)).text
    assert not any(name.startswith("var/s") for name in looks.changes())
    for name in ("var", "var/secrets/hook_token"):
        for way in (looks.diff, partial(looks.commit, "Secrets")):
            with refused("FILE_ACCESS_DENIED"):
                way(name)
    looks.commit("All but those", ".")
    assert "var/" not in around.git("show", "--name-only", "--format=")


VALUES = some.text(alphabet='a "\\\n\t#;=ü[]', max_size=12)
SUBSECTIONS = some.text(alphabet='aB.ü "\\]=', min_size=1, max_size=8)


@given(pairs=some.lists(some.tuples(SUBSECTIONS, VALUES), max_size=5))
def test_git_reads_what_is_written(pairs: list[tuple[str, str]]) -> None:
    branches = [(f"branch.{subsection}.merge", value) for subsection, value in pairs]
    written = [("core.eol", "lf"), *branches]
    assert config.read_file("config", config.text(written), "/") == written
