"""Files that git does not know yet, read by the bridge itself: how many lines they have, and what
their diff would be.
"""

from __future__ import annotations

import os
import stat as st
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Opened, answering
from files_app.git.sandbox.git import Git

_BINARY_LOOK: Final = 8000  # bytes in which git looks for a NUL


@dataclass(frozen=True, slots=True)
class New:
    """An untracked file: its mode as git writes it, and its content; ``cut``: there is more."""

    mode: str
    content: bytes
    cut: bool = False

    @property
    def binary(self) -> bool:
        return b"\0" in self.content[:_BINARY_LOOK]

    @property
    def lines(self) -> int:
        return (
            0
            if self.binary
            else self.content.count(b"\n")
            + (not self.content.endswith(b"\n") and bool(self.content))
        )


def listed(git: Git, *pathspecs: str) -> list[str]:
    """The names of all untracked files that nothing ignores; one that ends in a slash is a
    repository of its own.
    """
    return [
        os.fsdecode(name)
        for name in git("ls-files", "--others", "--exclude-standard", "-z", "--", *pathspecs).split(
            b"\0"
        )
        if name
    ]


def count(git: Git, names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Name → (lines, 0) of untracked files, and of directories with all that is in them. What is
    beyond the limits is not counted.
    """
    found = dict.fromkeys(names, 0)
    directories = [name for name in found if name.endswith("/")]
    files = [(name, name) for name in found if not name.endswith("/")]
    if directories:
        inner = (
            listed(git, *directories)
            if len(directories) <= limits.GIT_PATHSPECS_MAX
            else listed(git)
        )
        files += [
            (name, directory)
            for name in inner
            if (directory := _directory(name, found)) is not None
        ]
    room = limits.GIT_COUNT_MAX_BYTES
    for name, of in files[: limits.GIT_COUNT_MAX_FILES]:
        new = read(git, name, room)
        if new is None or new.cut:
            continue
        room -= len(new.content)
        found[of] += new.lines
    return {name: (lines, 0) for name, lines in found.items()}


def _directory(name: str, known: Iterable[str]) -> str | None:
    """The one of the known directories that a file lies in."""
    parts = name.rstrip("/").split("/")
    return next(
        (
            parent
            for count in range(1, len(parts))
            if (parent := "/".join(parts[:count]) + "/") in known
        ),
        None,
    )


def read(git: Git, name: str, most: int) -> New | None:
    """The file, up to ``most`` bytes; None where there is none that may be seen. A link is its own
    text, whatever it leads to.
    """
    try:
        with _parent(git, name) as directory, answering():
            last = name.rpartition("/")[2]
            stat = os.stat(last, dir_fd=directory.fd, follow_symlinks=False)
            if st.S_ISLNK(stat.st_mode):
                return New("120000", os.fsencode(os.readlink(last, dir_fd=directory.fd)))
            with git.jail.below(directory, [last], "file") as file:
                return _content(file.fd, file.stat.st_mode, most)
    except BridgeError:
        return None


def exists(git: Git, name: str) -> bool:
    """Whether there is anything of that name in the work tree; nothing is said of what lies behind
    a link.
    """
    try:
        with _parent(git, name) as directory, answering():
            os.stat(name.rpartition("/")[2] or ".", dir_fd=directory.fd, follow_symlinks=False)
    except BridgeError:
        return False
    return True


def _parent(git: Git, name: str) -> Opened:
    """The directory that a name lies in; FILE_NOT_FOUND behind a link, which git would not follow
    either.
    """
    names = tuple(part for part in f"{git.place.top}/{name}".split("/")[:-1] if part)
    directory = git.jail.at(names)
    if directory.names != names:
        directory.close()
        raise BridgeError("FILE_NOT_FOUND")
    return directory


def _content(fd: int, mode: int, most: int) -> New:
    data = bytearray()
    with answering():
        while len(data) <= most and (chunk := os.read(fd, limits.MB)):
            data += chunk
    return New("100755" if mode & 0o100 else "100644", bytes(data[:most]), len(data) > most)
