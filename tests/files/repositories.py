"""What tests of git do to a repository, and find in it."""

from pathlib import Path

from tests.conformance.repositories import Repository


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
    shown = repository.git("show", "--name-only", "--no-renames", "--format=", "-z")
    return sorted(name for name in shown.strip("\n").split("\0") if name)
