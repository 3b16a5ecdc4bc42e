"""Repositories that want to run something (D10, D63): reading runs and writes nothing, a commit
runs nothing that is not trusted. Each trap is a way in which git itself would run what a repository
names.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.repositories import Repository, Work, digest, lines
from tests.servers import wait_until

pytestmark = pytest.mark.spec("git.hostile")


class Trap:
    """`script` leaves a mark when it runs; it and `hooks` stand outside the allowed roots."""

    def __init__(self, directory: Path) -> None:
        self.mark, self.script, self.hooks = (directory / name for name in ("ran", "trap", "hooks"))
        self.script.write_text(f"#!/bin/sh\ntouch '{self.mark}'\nexit 1\n")
        self.script.chmod(0o755)
        self.hooks.mkdir()
        for name in ("post-index-change", "pre-commit", "commit-msg", "post-commit"):
            (self.hooks / name).symlink_to(self.script)


Plant = Callable[[Repository, Trap], None]


def config(*settings: str) -> Plant:
    """Settings, some of them with options of git config in front of the name; `{path}` is the
    trap's script, `{script}` the same quoted for a shell.
    """

    def plant(repository: Repository, trap: Trap) -> None:
        for setting in settings:
            name, value = setting.split("=", 1)
            said = value.format(script=f"'{trap.script}'", path=trap.script, hooks=trap.hooks)
            repository.git("config", *name.split(), said)

    return plant


def driver(attribute: str, key: str) -> Plant:
    """An attribute for every file, and the program of its driver."""

    def plant(repository: Repository, trap: Trap) -> None:
        kind, _, name = attribute.partition("=")
        repository.write(".git/info/attributes", f"* {attribute}\n")
        # git config itself would not take every name
        with (repository.path / ".git/config").open("a") as file:
            file.write(f'[{kind} "{name}"]\n\t{key} = "\'{trap.script}\'"\n')

    return plant


def hook_in_place(repository: Repository, trap: Trap) -> None:
    """One that is none of a commit, and one that leads out of the roots."""
    repository.hook("post-index-change", f"touch '{trap.mark}'; exit 1")
    (repository.path / ".git/hooks/commit-msg").symlink_to(trap.script)


def submodule(repository: Repository, trap: Trap) -> None:
    repository.add_submodule("sub")
    summary = ("status.submoduleSummary=true", "diff.submodule=diff", "diff.ignoreSubmodules=none")
    config(*summary, "submodule.recurse=true")(repository, trap)
    for key in ("core.fsmonitor", "diff.external"):
        repository.git("config", key, str(trap.script), cwd=repository.path / "sub")
    repository.write("sub/a", "2\n")


def promisor(*settings: str) -> Plant:
    """An object that is not there, and a program that is said to bring it."""

    def plant(repository: Repository, trap: Trap) -> None:
        partial = ("core.repositoryFormatVersion=1", "extensions.partialClone=evil")
        allowed = ("remote.evil.promisor=true", "protocol.allow=always")
        config(*partial, *allowed, *settings)(repository, trap)
        blob = repository.git("rev-parse", ":a.txt").strip()
        (repository.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

    return plant


def by_rerere(repository: Repository, trap: Trap) -> None:
    """A conflict of before, to which git applies what it has learnt, after each commit."""
    repository.write("before.txt", "<<<<<<< a\n1\n=======\n2\n>>>>>>> b\n")
    known = "a" * 40
    repository.write(f".git/rr-cache/{known}/preimage", "<<<<<<<\n1\n=======\n2\n>>>>>>>\n")
    repository.write(f".git/rr-cache/{known}/postimage", "3\n")
    repository.write(".git/MERGE_RR", f"{known}\tbefore.txt\0")
    driver("merge=evil", "driver")(repository, trap)


def by_the_way_to_it(repository: Repository, trap: Trap) -> None:
    """Hooks that are set only for who comes to the git directory by its link."""
    (repository.path / ".git").rename(repository.path / "real")
    (repository.path / ".git").symlink_to("real")
    config("-f .git/more core.hooksPath={hooks}", "includeIf.gitdir:**/.git.path=more")(
        repository, trap
    )


STATUS, DIFF, COMMIT = ("status",), ("diff",), ("commit", "-q", "-a", "-m", "x")
HOOKS = config("core.hooksPath={hooks}")
MORE, OWN = "-f .git/more core.fsmonitor={path}", "--worktree core.fsmonitor={path}"
SSH = ("gpg.format=ssh", "gpg.ssh.program={path}", "user.signingKey=key::ssh-ed25519 AAAA")
UPLOAD_PACK = ("remote.evil.url=/", "remote.evil.uploadpack={script}")

# name → how it is planted, and the ordinary command that springs it
READING: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "fsmonitor": (config("core.fsmonitor={script}"), STATUS),
    "external diff": (config("diff.external={script}"), DIFF),
    "diff driver": (driver("diff=evil", "command"), DIFF),
    "textconv": (driver("diff=evil", "textconv"), DIFF),
    "clean filter": (driver("filter=evil", "clean"), DIFF),
    "filter process": (driver("filter=evil", "process"), DIFF),
    "filter with an equals sign": (driver("filter=a=b", "clean"), DIFF),
    "smudge filter": (driver("filter=evil", "smudge"), ("checkout", "--", "a.txt")),
    "hook": (hook_in_place, STATUS),
    "hooks elsewhere": (HOOKS, STATUS),
    "include": (config(MORE, "include.path=more"), STATUS),
    "conditional include": (config(MORE, "includeIf.gitdir:**.path=more"), STATUS),
    "work tree settings": (config("extensions.worktreeConfig=true", OWN), STATUS),
    "submodule": (submodule, STATUS),
    "lazy fetch by ext": (promisor("remote.evil.url=ext::{path}"), DIFF),
    "lazy fetch by upload-pack": (promisor(*UPLOAD_PACK), DIFF),
}
COMMITTING: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "gpg": (config("commit.gpgSign=true", "gpg.program={path}"), COMMIT),
    "ssh signature": (config("commit.gpgSign=true", *SSH), COMMIT),
    "hooks elsewhere": (HOOKS, COMMIT),
    "hooks": (hook_in_place, COMMIT),
    "hooks by the way to it": (by_the_way_to_it, COMMIT),
    "merge driver": (by_rerere, COMMIT),
    **{name: READING[name] for name in ("fsmonitor", "clean filter", "include")},
}


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


# none of these changes what a phone is told
FORMATS = """
color.ui=always core.quotePath=true core.abbrev=4 diff.noprefix=true diff.mnemonicPrefix=true
diff.context=0 diff.renames=false diff.relative=true status.short=true status.branch=true
status.renames=false log.showSignature=true format.pretty=fuller
commit.cleanup=scissors core.commentChar=A i18n.logOutputEncoding=utf-16
"""


@pytest.fixture
def victim(repository: Repository, trap: Trap) -> Repository:
    """Something staged, something changed besides, an index that is out of date, and a name that is
    a setting to who copies it badly.
    """
    repository.commit_files({"a.txt": "1\n", "b.txt": "1\n", "same.txt": "1\n"})
    for setting in FORMATS.split():
        repository.git("config", *setting.split("="))
    repository.git("config", "user.name", f'Ada\\"\n[core]\n\tfsmonitor = {trap.script}\n;"')
    os.utime(repository.path / "same.txt", (1, 1))
    repository.write("b.txt", "2\n")
    repository.git("add", "b.txt")
    repository.write_files({"a.txt": "2\n", "b.txt": "3\n", "untracked.txt": "1\n"})
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
    assert not trap.mark.exists()
    if "lazy" not in name:  # where an object is missing there may be nothing to show
        assert types == ["git_status_response", *["git_diff_response"] * 4]
    victim.git(*springs, check=False)
    assert trap.mark.exists(), "no trap: plain git does not run it either"


@pytest.mark.parametrize("name", COMMITTING)
def test_committing_runs_nothing_untrusted(
    shared: Bridge, victim: Repository, phone: Phone, trap: Trap, name: str
) -> None:
    """D63: it is refused whole, in words that name the program; with the digest it would run."""
    plant, _ = COMMITTING[name]
    plant(victim, trap)
    work, before = Work(shared, phone, victim.path), digest(victim.path)
    for files in (None, ["a.txt", "untracked.txt"]):
        for guess in (None, "0" * 64):
            refused = work.ask("git_commit", message="A commit", files=files, trust=guess)
            details = assert_refused(refused, "GIT_TRUST_REQUIRED", True)["details"]
            assert details["programs"] and details["repository"] == str(victim.path)
    assert not trap.mark.exists() and digest(victim.path) == before
    work.ask("git_commit", message="A commit", files=["a.txt"], trust=details["digest"])
    assert trap.mark.exists(), "no trap: what was trusted does not run either"


def test_another_repository_at_the_top(
    shared: Bridge, victim: Repository, phone: Phone, trap: Trap
) -> None:
    """`core.worktree` leads to its files, and not to its hooks: the commit is this repository's."""
    other = victim.path.with_name(f"{victim.path.name} other")
    shutil.copytree(victim.path, other)
    (other / ".git/hooks/pre-commit").symlink_to(trap.script)
    config(f"core.worktree={other}")(victim, trap)
    before, work = digest(other), Work(shared, phone, victim.path)
    work.committed("A commit", [str(other / "a.txt")])
    assert not trap.mark.exists() and digest(other) == before
    assert victim.committed() == ["a.txt"]


def test_reading_writes_nothing(shared: Bridge, victim: Repository, phone: Phone) -> None:
    """Not even the index is refreshed, and nobody waits for its lock."""
    os.utime(victim.path / "b.txt", (1, 1))  # plain git would refresh its index
    victim.git("mv", "same.txt", "näme.txt")
    victim.write(".git/index.lock", "")
    before, work = digest(victim.path), Work(shared, phone, victim.path)
    look(work)
    assert digest(victim.path) == before
    kept = {"commits"}  # of which traces are kept for a while
    wait_until(lambda: set(os.listdir(shared.data / "git")) <= kept, "the bridge keeps no copy")
    changed = dict.fromkeys(("a.txt", "b.txt"), ("modified", 1, 1))
    new = {"näme.txt": ("renamed", 0, 0), "untracked.txt": ("untracked", 1, 0)}
    assert work.changes() == changed | new
    assert [lines(file, "added") for file in work.diff()] == [["2"], ["3"]]
