"""Repositories in the house, and the bridge's services on them."""

import hashlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bridge_project.kernel.path_jail import Jail
from bridge_project.protocol.repository_messages import GitDiffResponse, GitStatusResponse
from bridge_project.protocol.resources import DiffFile, GitCommitSummary
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

    def status(self) -> GitStatusResponse:
        return status_module.status(repository_of(str(self.directory), self.jail), "s")

    def changes(self) -> dict[str, tuple[str, int, int]]:
        found = self.status().changes
        assert len({change.path for change in found}) == len(found)
        return {
            change.path: (change.status, change.additions, change.deletions) for change in found
        }

    def diff(self, *files: str, cached: bool = False) -> GitDiffResponse:
        return diff_module.diff(
            repository_of(str(self.directory), self.jail), "s", list(files) or None, cached=cached
        )

    def files(self, *files: str, cached: bool = False) -> dict[str, DiffFile]:
        return {file.path: file for file in self.diff(*files, cached=cached).files}

    def commit(self, message: str = "A commit", *files: str, **more: Any) -> GitCommitSummary:
        return commit_module.commit(
            repository_of(str(self.directory), self.jail), message, list(files) or None, **more
        )


def lines(file: DiffFile, kind: str) -> list[str]:
    return [line.content for hunk in file.hunks for line in hunk.lines if line.type == kind]


def hook(repository: Repository, name: str, script: str) -> Path:
    path = repository.write(f".git/hooks/{name}", f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def import_files(repository: Repository, files: Mapping[str, str]) -> None:
    """Make the first commit, in one pack: ten thousand loose objects would cost the disk more."""
    stream = bytearray(b"commit refs/heads/main\ncommitter A <a@b> 0 +0000\ndata 5\nLarge\n")
    for name, text in files.items():
        content = text.encode()
        stream += f'M 100644 inline "{name}"\ndata {len(content)}\n'.encode() + content + b"\n"
    command = ["git", "-c", "pack.compression=0", "fast-import", "--quiet", "--depth=0"]
    subprocess.run(command, cwd=repository.path, input=bytes(stream), check=True, timeout=100)
    repository.git("reset", "-q", "--hard")


def digest(directory: Path) -> dict[str, tuple[int, int, str]]:
    """Everything below: mode, time and content."""
    found = {}
    for path in (directory, *directory.rglob("*")):
        stat = path.lstat()
        content = (
            hashlib.sha256(path.read_bytes()).hexdigest()
            if path.is_file() and not path.is_symlink()
            else ""
        )
        found[str(path.relative_to(directory))] = (stat.st_mode, stat.st_mtime_ns, content)
    return found


def index(repository: Repository) -> bytes:
    return (repository.path / ".git/index").read_bytes()


def leftovers(data: Path) -> list[str]:
    """What the bridge has left in its own directory."""
    return os.listdir(data / "git") if (data / "git").exists() else []


def committed(repository: Repository) -> list[str]:
    """The names in the last commit."""
    return sorted(
        name
        for name in repository.git("show", "--name-only", "--no-renames", "--format=", "-z")
        .strip("\n")
        .split("\0")
        if name
    )


def change(repository: Repository) -> None:
    """Two files, one of them changed since."""
    repository.commit_files({"a": "1\n", "b": "1\n"})
    repository.write("a", "2\n")


def median(name: str, what: Callable[[], object], times: int = 3) -> float:
    """Seconds that a call takes, the one in the middle; all are printed."""
    took = []
    for _ in range(times):
        started = time.monotonic()
        what()
        took.append(time.monotonic() - started)
    sys.stdout.write(f"\n{name}: {' '.join(f'{seconds:.2f}' for seconds in sorted(took))} s\n")
    return statistics.median(took)
