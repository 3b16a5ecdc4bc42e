"""Repositories that want to run something (D10): reading runs and writes nothing, a commit runs its
hooks and nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.hostile import COMMITTING, READING, Trap, springs_it
from tests.conformance.phone import Message, Phone
from tests.conformance.repositories import Repository, Work
from tests.files.repositories import digest

pytestmark = pytest.mark.spec("git.hostile")


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


@pytest.fixture
def victim(repository: Repository) -> Repository:
    """Something staged, something changed besides, and an index that is out of date."""
    repository.commit_files({"a.txt": "1\n", "b.txt": "1\n", "same.txt": "1\n"})
    os.utime(repository.path / "same.txt", (1, 1))
    repository.write("b.txt", "2\n")
    repository.git("add", "b.txt")
    repository.write("a.txt", "2\n")
    repository.write("b.txt", "3\n")
    repository.write("untracked.txt", "1\n")
    return repository


def look(work: Work) -> list[Message]:
    """Every way of reading; whether it is answered or refused, the connection lives."""
    answers = [work.ask("git_status_request")]
    for files in ((), ("a.txt", "untracked.txt")):
        answers += [work.ask_diff(*files, cached=cached) for cached in (False, True)]
    work.phone.ping()
    return answers


@pytest.mark.parametrize("name", READING)
def test_reading_runs_nothing(
    shared: Bridge, victim: Repository, phone: Phone, trap: Trap, name: str
) -> None:
    """Git's own command, run last, shows that the trap is one."""
    plant, springs = READING[name]
    plant(victim, trap)
    types = [answer["type"] for answer in look(Work(shared, phone, victim.path))]
    assert not trap.ran
    if "lazy" not in name:  # where an object is missing there may be nothing to show
        assert types == ["git_status_response", *["git_diff_response"] * 4]
    assert springs_it(victim, trap, springs), "no trap: plain git does not run it either"


@pytest.mark.parametrize("name", COMMITTING)
def test_a_commit_runs_its_hooks_alone(
    shared: Bridge, victim: Repository, phone: Phone, trap: Trap, name: str
) -> None:
    """No signature, no filter, no hooks from elsewhere."""
    plant, springs = COMMITTING[name]
    plant(victim, trap)
    own = victim.path.with_name(f"{victim.path.name} hook ran")
    victim.write(".git/hooks/pre-commit", f"#!/bin/sh\ntouch '{own}'\n").chmod(0o755)
    work = Work(shared, phone, victim.path)
    work.committed("Staged")
    work.committed("Named", ["a.txt", "untracked.txt"])
    assert not trap.ran
    assert own.exists() or name == "hooks elsewhere"
    assert "gpgsig" not in victim.git("cat-file", "commit", "HEAD")
    victim.write("a.txt", "4\n")
    assert springs_it(victim, trap, springs), "no trap: plain git does not run it either"


def test_reading_writes_nothing(shared: Bridge, victim: Repository, phone: Phone) -> None:
    """Not even the index is refreshed; no lock, no temporary file, no object."""
    os.utime(victim.path / "b.txt", (1, 1))  # plain git would refresh its index
    victim.git("mv", "-f", "b.txt", "c.txt")
    before = digest(victim.path)
    look(Work(shared, phone, victim.path))
    assert digest(victim.path) == before


def test_reading_while_the_index_is_locked(
    shared: Bridge, victim: Repository, phone: Phone
) -> None:
    victim.write(".git/index.lock", "")
    assert Work(shared, phone, victim.path).changes()["a.txt"] == ("modified", 1, 1)


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


def test_settings_that_change_what_git_prints(
    shared: Bridge, victim: Repository, phone: Phone
) -> None:
    """The answers are the same whatever a repository sets for its owner's eyes; so is the commit."""
    name = "blank lines ü.txt"
    victim.write(name, "1\n\n2\n\n3\n")
    victim.git("add", name)
    victim.write(name, "1\n\n2\n\n4\n")
    work = Work(shared, phone, victim.path)
    before = (work.status(), work.diff(), work.diff(cached=True))
    victim.write("order", "z\n")
    victim.write(".git/info/exclude", "order\n")
    for setting in FORMATS.split():
        victim.git("config", *setting.split("="))
    assert (work.status(), work.diff(), work.diff(cached=True)) == before
    summary = work.committed("A commit\n\nA body", [name])
    assert (summary["files_changed"], summary["summary"]) == (1, "A commit")
    assert "A body" in victim.git("cat-file", "commit", "HEAD")
