"""Repositories in the house, and the bridge's services on them."""

from pathlib import Path
from typing import Any

from bridge_project.kernel.path_jail import Jail
from bridge_project.protocol.repository_messages import GitDiffResponse
from bridge_project.protocol.resources import GitCommitSummary
from files_app.git import commit as commit_module
from files_app.git import diff as diff_module
from files_app.git import status as status_module
from files_app.git.repository import repository_of
from tests.conformance.repositories import Repository


class Seen:
    """What a session in ``directory`` gets."""

    def __init__(self, jail: Jail, directory: Path) -> None:
        self.jail = jail
        self.directory = directory

    def changes(self) -> set[str]:
        place = repository_of(str(self.directory), self.jail)
        return {change.path for change in status_module.status(place, "s").changes}

    def diff(self, *files: str, cached: bool = False) -> GitDiffResponse:
        return diff_module.diff(
            repository_of(str(self.directory), self.jail), "s", list(files) or None, cached=cached
        )

    def commit(self, message: str = "A commit", *files: str, **more: Any) -> GitCommitSummary:
        return commit_module.commit(
            repository_of(str(self.directory), self.jail), message, list(files) or None, **more
        )


def hook(repository: Repository, name: str, script: str) -> Path:
    path = repository.write(f".git/hooks/{name}", f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def digest(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below: mode, time and content."""
    found = {}
    for path in (directory, *directory.rglob("*")):
        stat = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(directory))] = (stat.st_mode, stat.st_mtime_ns, content)
    return found


def index(repository: Repository) -> bytes:
    return (repository.path / ".git/index").read_bytes()


def committed(repository: Repository) -> list[str]:
    """The names in the last commit."""
    shown = repository.git("show", "--name-only", "--no-renames", "--format=", "-z")
    return sorted(name for name in shown.strip("\n").split("\0") if name)


def change(repository: Repository) -> None:
    """Two files, one of them changed since."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.write("a", "2\n")
