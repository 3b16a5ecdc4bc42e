"""The hooks of a commit, and others who work in the repository at the same time (D10, D31)."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bridge_project.kernel import child_process, limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from tests.conformance.repositories import Repository
from tests.files.conftest import House, no_leak, refused
from tests.files.repositories import Seen, committed, hook, index, leftovers
from tests.servers import wait_until

# -- hooks -----------------------------------------------------------------------------------------


def test_a_hook_sees_what_it_sees_at_the_machine(
    house: House, repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user's environment without the bridge's secrets; git in it works on the repository
    itself, and on what is being committed.
    """
    monkeypatch.setenv("BRIDGE_HOOK_TOKEN", "SECRET" * 8)
    monkeypatch.setenv("DATABASE_URL", "postgres://u:SECRET@h/d")
    monkeypatch.setenv("JAVA_HOME", "/a java")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    repository.commit_files({"a": "1\n", "b": "1\n"})
    hook(
        repository,
        "pre-commit",
        "{ env; pwd; git config test.key; git diff --cached --name-only; git rev-parse --absolute-git-dir; } > ../seen 2>&1",
    )
    repository.git("config", "test.key", "the repository's own")
    repository.write("a", "2\n")
    repository.write("b", "2\n")
    repository.git("add", "b")
    seen.commit("Look", "a")
    said = (house.root / "seen").read_text()
    shown = set(said.splitlines())
    assert "SECRET" not in said
    assert {
        f"HOME={house.top}/home",
        "JAVA_HOME=/a java",
        "LC_ALL=C.UTF-8",
        "GIT_EDITOR=:",
        str(repository.path),
        "the repository's own",
        "a",
    } <= shown
    assert str(repository.path / ".git") in shown and "b" not in shown
    assert not any(
        line.startswith(
            ("GIT_DIR=", "GIT_CONFIG", "GIT_COMMON_DIR=", "GIT_LITERAL", "XDG_CONFIG_HOME=")
        )
        for line in shown
    )


def test_a_hook_may_change_what_is_committed(repository: Repository, seen: Seen) -> None:
    """A formatter, a message with a ticket's number: the answer says what was committed, and
    nothing is left over.
    """
    repository.commit_files({"a": "1\n", "version": "1\n", "other": "1\n"})
    hook(repository, "pre-commit", "echo formatted > a; echo 2 > version; git add a version")
    hook(repository, "prepare-commit-msg", 'echo "T-1: $(cat "$1")" > "$1"')
    hook(repository, "commit-msg", 'grep -q T-1 "$1"')
    repository.write("other", "2\n")
    repository.git("add", "other")
    repository.write("a", "2\n")
    summary = seen.commit("Change", "a")
    assert summary.hash == repository.head()
    assert summary.summary == "T-1: Change"
    assert summary.files_changed == 2
    assert repository.git("show", "HEAD:a") == "formatted\n"
    assert repository.staged() == ["other"]
    assert repository.git("diff", "--name-only") == ""
    repository.write("version", "3\n")
    repository.git("add", "version")
    seen.commit("The rest")
    assert seen.status().is_clean and repository.porcelain() == ""


def test_a_hook_that_refuses_after_it_has_staged(repository: Repository, seen: Seen) -> None:
    """D10: nothing staged that was not staged before: the index is the same to the byte."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.write("a", "2\n")
    repository.write("b", "2\n")
    repository.git("add", "b")
    hook(repository, "pre-commit", "git add -A; echo no >&2; exit 1")
    before = index(repository)
    for files in ((), ("a",)):
        with no_leak(), pytest.raises(BridgeError, match=r"\AGIT_ERROR: no\Z"):
            seen.commit("Refused", *files)
        assert index(repository) == before
    assert leftovers(conf.bridge_data_dir) == []


def test_a_hook_after_the_commit_may_fail_or_commit_again(
    repository: Repository, seen: Seen
) -> None:
    """The commit is made; the answer names the one that HEAD is at."""
    repository.commit_files({"a": "1\n"})
    hook(
        repository,
        "post-commit",
        "[ -e ../amended ] || { touch ../amended; git commit -q --amend -m Amended; }; exit 1",
    )
    repository.write("a", "2\n")
    summary = seen.commit("First", "a")
    assert (summary.hash, summary.summary) == (
        repository.head(),
        "Amended",
    ) and seen.status().is_clean


@pytest.mark.parametrize("name", ["pre-commit", "post-commit"])
def test_a_hook_that_takes_too_long(
    repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is ended with its children, also such as ignore SIGTERM. Before the commit: nothing is changed, no lock is left; after
    it: the commit is made.
    """
    monkeypatch.setattr(limits, "GIT_COMMIT_SECONDS", 1.0)
    first = repository.commit_files({"a": "1\n"})
    pids = repository.path / ".git/pids"
    hook(repository, name, f"(trap '' TERM; sleep 600; :) & echo $! $$ > '{pids}'; wait")
    repository.write("a", "2\n")
    if name == "pre-commit":
        with pytest.raises(BridgeError, match="longer than 1 seconds"):
            seen.commit("Slow", "a")
        assert repository.head() == first and repository.staged() == []
    else:
        assert seen.commit("Slow", "a").hash == repository.head() != first
        assert seen.status().is_clean
    wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()),
        "the hook's children end",
    )
    assert not list(repository.path.glob(".git/**/*.lock"))


def test_what_a_hook_leaves_running_is_not_waited_for(repository: Repository, seen: Seen) -> None:
    repository.commit_files({"a": "1\n"})
    hook(repository, "post-commit", "sleep 600 &")
    repository.write("a", "2\n")
    started = time.monotonic()
    seen.commit("Quick", "a")
    assert time.monotonic() - started < 300


def test_a_bridge_that_stops_does_not_wait_for_hooks(repository: Repository, seen: Seen) -> None:
    """The commit is refused, the repository as it was."""
    first = repository.commit_files({"a": "1\n"})
    hook(repository, "pre-commit", "touch ../begun; sleep 600")
    repository.write("a", "2\n")
    errors: list[str] = []

    def commit() -> None:
        try:
            seen.commit("Stopped", "a")
        except BridgeError as error:
            errors.append(error.code)

    thread = threading.Thread(target=commit)
    thread.start()
    wait_until((repository.path.parent / "begun").exists, "the hook has begun")
    child_process.end_all()
    thread.join(180)
    assert (errors, repository.head(), repository.staged()) == (["GIT_ERROR"], first, [])


@pytest.mark.parametrize("where", ["hooks", "~/hooks"])
def test_hooks_where_the_configuration_says(
    house: House, repository: Repository, seen: Seen, where: str
) -> None:
    """core.hooksPath: in the work tree they run, by their own path; outside the roots they do not,
    and no others instead.
    """
    directory = repository.path / "hooks" if where == "hooks" else house.top / "home/hooks"
    directory.mkdir()
    (directory / "pre-commit").write_text(f'#!/bin/sh\necho "$0" > "{house.root}/ran"\n')
    (directory / "pre-commit").chmod(0o755)
    hook(repository, "pre-commit", f'touch "{house.root}/ran otherwise"')
    repository.git("config", "core.hooksPath", where)
    repository.commit_files({"a": "1\n"})
    (house.root / "ran").unlink(missing_ok=True)
    repository.write("a", "2\n")
    seen.commit("Elsewhere", "a")
    assert (house.root / "ran").exists() == (where == "hooks")
    assert not (house.root / "ran otherwise").exists()
    if where == "hooks":
        assert (house.root / "ran").read_text() == f"{directory}/pre-commit\n"


def test_hooks_that_are_none(house: House, repository: Repository, seen: Seen) -> None:
    """Not to be run, a sample, a link that leads out of the roots, a directory."""
    repository.commit_files({"a": "1\n"})
    script = f"#!/bin/sh\ntouch '{house.root}/ran'\nexit 1\n"
    (house.outside / "script").write_text(script)
    (house.outside / "script").chmod(0o755)
    (repository.path / ".git/hooks").mkdir(exist_ok=True)
    (repository.path / ".git/hooks/pre-commit").symlink_to(house.outside / "script")
    repository.write(".git/hooks/commit-msg", script)
    repository.write(".git/hooks/post-commit.sample", script).chmod(0o755)
    (repository.path / ".git/hooks/prepare-commit-msg").mkdir()
    repository.write("a", "2\n")
    seen.commit("Without", "a")
    assert not (house.root / "ran").exists()


def test_hooks_that_cannot_be_run_refuse_the_commit(
    repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the data directory is mounted noexec git would go on without them."""
    repository.commit_files({"a": "1\n"})
    hook(repository, "pre-commit", "exit 1")
    repository.write("a", "2\n")
    access = os.access
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: (
            access(path, mode) and not str(path).startswith(str(conf.bridge_data_dir))
        ),
    )
    with pytest.raises(BridgeError, match="nothing can be run"):
        seen.commit("No exec", "a")


# -- others at the same time -----------------------------------------------------------------------


@pytest.mark.parametrize("files", [(), ("a",)], ids=["staged", "named"])
def test_what_somebody_stages_meanwhile_stays(
    repository: Repository, seen: Seen, files: tuple[str, ...]
) -> None:
    """The coding agent works while the phone commits and the hooks run: both find what they did."""
    repository.commit_files({"a": "1\n", "b": "1\n", "c": "1\n"})
    for name in "abc":
        repository.write(name, "2\n")
    repository.git("add", "a")
    hook(repository, "pre-commit", "env -u GIT_INDEX_FILE git add b; echo hook > c; git add c")
    seen.commit("Meanwhile", *files)
    assert committed(repository) == ["a", "c"]
    assert repository.staged() == ["b"] and repository.git("diff", "--name-only") == ""


def test_two_commits_at_once(repository: Repository, seen: Seen) -> None:
    """One after the other; both are there, and nothing is left over."""
    repository.commit_files({f"file {number}": "1\n" for number in range(4)})
    hook(repository, "pre-commit", "sleep 0.2")
    for number in range(4):
        repository.write(f"file {number}", "2\n")
    with ThreadPoolExecutor(4) as pool:
        summaries = list(
            pool.map(lambda number: seen.commit(f"{number}", f"file {number}"), range(4))
        )
    assert len({summary.hash for summary in summaries}) == 4
    assert all(summary.files_changed == 1 for summary in summaries)
    assert repository.git("rev-list", "--count", "HEAD").strip() == "5"
    assert repository.porcelain() == ""


def test_another_git_that_holds_the_index(
    repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, but not for ever; its lock is never touched."""
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    lock = repository.write(".git/index.lock", "theirs")
    threading.Timer(0.5, lock.unlink).start()
    seen.commit("Waited", "a")
    repository.write("a", "3\n")
    lock = repository.write(".git/index.lock", "theirs")
    monkeypatch.setattr(limits, "GIT_LOCK_SECONDS", 0.1)
    with refused("GIT_ERROR"):
        seen.commit("In vain", "a")
    assert lock.read_text() == "theirs"


def test_an_index_that_cannot_be_updated_does_not_undo_the_commit(
    repository: Repository, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is made, so it is said; what is staged then looks like it was."""
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    hook(repository, "post-commit", "touch .git/index.lock")
    monkeypatch.setattr(limits, "GIT_LOCK_SECONDS", 0.1)
    assert seen.commit("Made", "a").hash == repository.head()
    (repository.path / ".git/index.lock").unlink()
    assert repository.git("show", "HEAD:a") == "2\n" and repository.staged() == ["a"]


def test_a_commit_that_a_killed_process_had_begun(repository: Repository, seen: Seen) -> None:
    """D31: a repeated request whose first try ended nobody knows how: what was committed is
    answered, what was not is committed.
    """
    repository.commit_files({"a": "1\n"})
    begun = datetime.now(UTC) - timedelta(seconds=1)
    repository.write("a", "2\n")
    first = seen.commit("Once", "a", begun=begun)
    assert seen.commit("Once", "a", begun=begun) == first
    for message, since in (("Other", begun), ("Once", datetime.now(UTC) + timedelta(seconds=5))):
        with refused("GIT_ERROR"):  # nothing to commit any more
            seen.commit(message, "a", begun=since)


def test_the_index_of_a_commit_whose_process_died_before_it_was_updated(
    repository: Repository, seen: Seen
) -> None:
    repository.commit_files({"a": "1\n", "b": "1\n"})
    before = index(repository)
    repository.write("a", "2\n")
    begun = datetime.now(UTC) - timedelta(seconds=1)
    first = seen.commit("Once", "a")
    (repository.path / ".git/index").write_bytes(before)
    assert repository.staged() == ["a"]
    assert seen.commit("Once", "a", begun=begun) == first and repository.porcelain() == ""
