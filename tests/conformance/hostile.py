"""Traps: each is a way in which git itself would run a program that the repository names."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.repositories import Repository, owner


@dataclass
class Trap:
    """`script` leaves a mark when it runs; it stands outside the allowed roots."""

    directory: Path

    @property
    def script(self) -> Path:
        path = self.directory / "trap.sh"
        if not path.exists():
            path.write_text(f"#!/bin/sh\ntouch '{self.directory}/ran'\nexit 1\n")
            path.chmod(0o755)
        return path

    @property
    def ran(self) -> bool:
        return (self.directory / "ran").exists()

    def hooks(self, *names: str) -> Path:
        """A directory of hooks outside the roots that are all the script."""
        hooks = self.directory / "hooks"
        hooks.mkdir(exist_ok=True)
        for name in names:
            (hooks / name).symlink_to(self.script)
        return hooks


Plant = Callable[[Repository, Trap], None]


def config(**values: str) -> Plant:
    """Settings; `__` is a dot, `{path}` the trap's script, `{script}` the same quoted for a shell."""

    def plant(repository: Repository, trap: Trap) -> None:
        for name, value in values.items():
            said = value.format(script=f"'{trap.script}'", path=trap.script)
            repository.git("config", name.replace("__", "."), said)

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
    repository.write(".git/hooks/post-index-change", trap.script.read_bytes()).chmod(0o755)


def hooks_elsewhere(repository: Repository, trap: Trap) -> None:
    hooks = trap.hooks("post-index-change", "pre-commit", "commit-msg", "post-commit")
    repository.git("config", "core.hooksPath", str(hooks))


def included(repository: Repository, trap: Trap) -> None:
    repository.write(".git/more", f"[core]\n\tfsmonitor = '{trap.script}'\n")
    repository.git("config", "include.path", "more")


def included_if(repository: Repository, trap: Trap) -> None:
    repository.write(".git/more", f"[diff]\n\texternal = '{trap.script}'\n")
    repository.git("config", "includeIf.gitdir:**.path", "more")


def worktree_config(repository: Repository, trap: Trap) -> None:
    repository.git("config", "extensions.worktreeConfig", "true")
    repository.git("config", "--worktree", "core.fsmonitor", str(trap.script))


def submodule(repository: Repository, trap: Trap) -> None:
    inner = Repository(repository.path.with_name(f"{repository.path.name} inner"))
    inner.commit_files({"a": "1\n"})
    repository.git("submodule", "--quiet", "add", str(inner.path), "sub")
    repository.commit("submodule")
    for setting in (
        *("status.submoduleSummary=true", "diff.submodule=diff"),
        *("diff.ignoreSubmodules=none", "submodule.recurse=true"),
    ):
        repository.git("config", *setting.split("="))
    for name in ("core.fsmonitor", "diff.external"):
        repository.git("config", name, str(trap.script), cwd=repository.path / "sub")
    repository.write("sub/a", "2\n")


def promisor(**values: str) -> Plant:
    """An object that is not there, and a program that is said to bring it."""

    def plant(repository: Repository, trap: Trap) -> None:
        repository.git("config", "core.repositoryFormatVersion", "1")
        config(
            extensions__partialClone="evil",
            remote__evil__promisor="true",
            protocol__allow="always",
            **values,
        )(repository, trap)
        blob = repository.git("rev-parse", ":a.txt").strip()
        (repository.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

    return plant


TERMINAL = "in a terminal"


def spring(repository: Repository, words: tuple[str, ...]) -> None:
    """Run git as the repository's owner does; without a terminal it starts no pager."""
    if words[0] != TERMINAL:
        repository.git(*words, check=False)
        return
    ours, terminal = pty.openpty()
    try:
        subprocess.run(
            ["git", *words[1:]],
            cwd=repository.path,
            env=owner(),
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            timeout=180,
        )
    finally:
        os.close(terminal)
        os.close(ours)


def springs_it(repository: Repository, trap: Trap, words: tuple[str, ...]) -> bool:
    """Whether plain git runs the trap with this command; then it is set again."""
    spring(repository, words)
    ran = trap.ran
    (trap.directory / "ran").unlink(missing_ok=True)
    return ran


STATUS, DIFF, COMMIT = ("status",), ("diff",), ("commit", "-q", "-a", "-m", "x")
PAGED = (TERMINAL, "status")

ALIASES = ("alias__status", "alias__diff", "alias__mine")
# name → how it is planted, and the ordinary command that springs it
READING: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "fsmonitor": (config(core__fsmonitor="{script}"), STATUS),
    "external diff": (config(diff__external="{script}"), DIFF),
    "diff driver": (driver("diff=evil", "command"), DIFF),
    "textconv": (driver("diff=evil", "textconv"), DIFF),
    "clean filter": (driver("filter=evil", "clean"), DIFF),
    "filter process": (driver("filter=evil", "process"), DIFF),
    "filter with an equals sign": (driver("filter=a=b", "clean"), DIFF),
    "smudge filter": (driver("filter=evil", "smudge"), ("checkout", "--", "a.txt")),
    "pager": (config(core__pager="{script}", pager__status="true", pager__diff="true"), PAGED),
    "alias": (config(**dict.fromkeys(ALIASES, "!{script}")), ("mine",)),
    "hook": (hook_in_place, STATUS),
    "hooks elsewhere": (hooks_elsewhere, STATUS),
    "include": (included, STATUS),
    "conditional include": (included_if, DIFF),
    "work tree settings": (worktree_config, STATUS),
    "submodule": (submodule, STATUS),
    "lazy fetch by ext": (promisor(remote__evil__url="ext::{path}"), DIFF),
    "lazy fetch by upload-pack": (
        promisor(remote__evil__url="/", remote__evil__uploadpack="{script}"),
        DIFF,
    ),
}

SIGNING = {"commit__gpgSign": "true", "user__signingKey": "key::ssh-ed25519 AAAA"}
COMMITTING: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "gpg": (config(commit__gpgSign="true", gpg__program="{path}"), COMMIT),
    "ssh signature": (config(gpg__format="ssh", gpg__ssh__program="{path}", **SIGNING), COMMIT),
    "hooks elsewhere": (hooks_elsewhere, COMMIT),
    "fsmonitor": READING["fsmonitor"],
    "clean filter": READING["clean filter"],
}
