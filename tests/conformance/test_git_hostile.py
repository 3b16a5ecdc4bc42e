"""Repositories that want to run something (D10; issue, Build 3): reading runs nothing and writes
nothing, a commit runs its hooks and nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.hostile import COMMITTING, READING, Trap, springs_it
from tests.conformance.phone import Phone
from tests.conformance.repositories import (
    Repository,
    changes,
    commit,
    committed,
    diff,
    session_in,
    status,
)
from tests.files.repositories import digest

pytestmark = pytest.mark.spec("git.hostile")


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


@pytest.fixture
def victim(repository: Repository) -> Repository:
    """A file that is staged and one that is changed besides, so that every command has something to
    look at; the index is out of date for another.
    """
    repository.commit_files({"a.txt": "1\n", "b.txt": "1\n", "same.txt": "1\n"})
    os.utime(repository.path / "same.txt", (1, 1))
    repository.write("b.txt", "2\n")
    repository.git("add", "b.txt")
    repository.write("a.txt", "2\n")
    repository.write("b.txt", "3\n")
    repository.write("untracked.txt", "1\n")
    return repository


def look(phone: Phone, session_id: str) -> list[dict[str, object]]:
    """Every way of reading; whether it is answered or refused, the connection lives."""
    answers = [phone.request("git_status_request", {"session_id": session_id})]
    for files in (None, ["a.txt", "untracked.txt"]):
        answers += [
            phone.request("git_diff", {"session_id": session_id, "files": files, "cached": cached})
            for cached in (False, True)
        ]
    phone.ping()
    return answers


@pytest.mark.parametrize("name", READING)
def test_reading_runs_nothing(
    shared: Bridge, victim: Repository, phone: Phone, trap: Trap, name: str
) -> None:
    """Issue: status and diff run nothing that a repository defines; git's own command, run last,
    shows that the trap is one.
    """
    plant, springs = READING[name]
    plant(victim, trap)
    answers = look(phone, session_in(shared, phone, victim.path))
    assert not trap.ran
    if "lazy" not in name:  # where an object is missing there may be nothing to show
        assert [answer["type"] for answer in answers] == [
            "git_status_response",
            *["git_diff_response"] * 4,
        ], answers
    assert springs_it(victim, trap, springs), "no trap: plain git does not run it either"


@pytest.mark.parametrize("name", COMMITTING)
def test_a_commit_runs_its_hooks_alone(
    shared: Bridge, victim: Repository, phone: Phone, trap: Trap, name: str
) -> None:
    """Issue: a commit runs the commit hooks of a repository inside the roots; nothing else: no
    signature, no filter, no hooks from elsewhere.
    """
    plant, springs = COMMITTING[name]
    plant(victim, trap)
    own = victim.path.with_name(f"{victim.path.name} hook ran")
    victim.write(".git/hooks/pre-commit", f"#!/bin/sh\ntouch '{own}'\n").chmod(0o755)
    sid = session_in(shared, phone, victim.path)
    committed(commit(phone, sid, "Staged"), sid)
    committed(commit(phone, sid, "Named", ["a.txt", "untracked.txt"]), sid)
    assert not trap.ran
    assert own.exists() or name == "hooks elsewhere"
    assert victim.git("cat-file", "commit", "HEAD").count("gpgsig") == 0
    victim.write("a.txt", "4\n")
    assert springs_it(victim, trap, springs), "no trap: plain git does not run it either"


def test_reading_writes_nothing(shared: Bridge, victim: Repository, phone: Phone) -> None:
    """Issue: GIT_OPTIONAL_LOCKS=0: not even the index is refreshed; no lock, no temporary file, no
    object.
    """
    os.utime(victim.path / "b.txt", (1, 1))  # plain git would refresh its index
    victim.git("mv", "-f", "b.txt", "c.txt")
    before = digest(victim.path)
    look(phone, session_in(shared, phone, victim.path))
    assert digest(victim.path) == before


def test_reading_while_the_index_is_locked(
    shared: Bridge, victim: Repository, phone: Phone
) -> None:
    """Issue: reading takes no lock, so that it waits for none and disturbs nobody who holds it."""
    victim.write(".git/index.lock", "")
    assert changes(status(phone, session_in(shared, phone, victim.path)))["a.txt"] == (
        "modified",
        1,
        1,
    )


FORMATS = """
color.ui=always color.diff=always color.status=always core.quotePath=true core.abbrev=4
diff.noprefix=true diff.mnemonicPrefix=true diff.context=0 diff.interHunkContext=50
diff.suppressBlankEmpty=true diff.wordRegex=. diff.colorMoved=zebra diff.wsErrorHighlight=all
diff.renames=false diff.relative=true diff.algorithm=patience diff.orderFile=order
diff.statGraphWidth=1 diff.indentHeuristic=false status.short=true status.branch=true
status.renames=false status.relativePaths=true status.showUntrackedFiles=no
status.showStash=true status.aheadBehind=false advice.statusHints=true log.showSignature=true
log.decorate=full format.pretty=fuller commit.verbose=true commit.status=true
commit.cleanup=scissors core.commentChar=A core.whitespace=trailing-space
i18n.logOutputEncoding=utf-16 alias.status=!false alias.diff=!false alias.commit=!false
help.autoCorrect=1
"""


@pytest.fixture
def opinionated(victim: Repository) -> Repository:
    """A repository whose settings change how git prints everything."""
    victim.write("blank lines ü.txt", "1\n\n2\n\n3\n")
    victim.git("add", "blank lines ü.txt")
    victim.write("blank lines ü.txt", "1\n\n2\n\n4\n")
    return victim


def test_settings_that_change_what_git_prints(
    shared: Bridge, opinionated: Repository, phone: Phone
) -> None:
    """D10: the answers are the same whatever a repository sets for the eyes of its owner; so is the
    commit.
    """
    sid = session_in(shared, phone, opinionated.path)
    before = (status(phone, sid), diff(phone, sid), diff(phone, sid, cached=True))
    opinionated.write("order", "z\n")
    opinionated.write(".git/info/exclude", "order\n")
    for setting in FORMATS.split():
        opinionated.git("config", *setting.split("="))
    assert (status(phone, sid), diff(phone, sid), diff(phone, sid, cached=True)) == before
    summary = committed(commit(phone, sid, "A commit\n\nA body", ["blank lines ü.txt"]), sid)
    assert summary["files_changed"] == 1 and summary["summary"] == "A commit"
    assert "A body" in opinionated.git("cat-file", "commit", "HEAD")
