"""From a path that a client sent to an open descriptor inside an allowed root, or a BridgeError
(D12, D45).

The data directory and the other places that hold the bridge's secrets are never inside, whatever
the roots and whatever they are called: they and everything in them are known by their path and by
what they are on the disk (device and inode), so that a bind mount or a hard link of a part of them
is refused too. How a path is walked is in ``walk``.
"""

from __future__ import annotations

import os
import re
import stat as st
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_walk import (
    Identity,
    Names,
    Opened,
    Walk,
    Want,
    answering,
    identity,
    split,
)

__all__ = [
    "Identity",
    "Jail",
    "Names",
    "Opened",
    "answering",
    "default_jail",
    "identity",
    "mount_points",
    "shown",
    "split",
]

# a directory that changed since may change again without a newer time
_STEADY_NS: Final = 2 * 10**9
_SURROGATE = re.compile("[\ud800-\udfff]")
_OCTAL = re.compile(rb"\\([0-7]{3})")


class Jail:
    """What may be seen: the directories of ``roots`` without what lies under ``forbidden``
    (directories or files).

    ``hidden`` is refused by its path only.

    A relative path begins in the first root unless a ``base`` is given: an absolute path, held to
    the same rules. A link may lead from one root to another. None of the places has to exist when
    the jail is made.

    Errors of everything that takes a path (D12): FILE_INVALID_PATH for what cannot be a path, or is
    a file where a directory is needed or the reverse; FILE_ACCESS_DENIED outside the roots, whether
    or not something is there, for what is forbidden or not to be read, and for what is neither file
    nor directory; FILE_NOT_FOUND.
    """

    def __init__(
        self, roots: Sequence[str], forbidden: Sequence[str] = (), hidden: Sequence[str] = ()
    ) -> None:
        if not roots:
            raise ValueError("a jail needs a root")
        real = [_names(os.path.realpath(root)) for root in roots]
        self.first: Names = real[0]
        self.roots = frozenset(real)
        self.above = frozenset(root[:depth] for root in self.roots for depth in range(len(root)))
        self._forbidden = tuple(os.path.realpath(path) for path in forbidden)
        self._hidden = tuple(_names(path) for path in (*self._forbidden, *hidden))

    def open_dir(self, path: object, *, base: str | None = None) -> Opened:
        """A directory, open for listing."""
        return self._open("directory", path, base)

    def open_file(self, path: object, *, base: str | None = None) -> Opened:
        """A regular file, open for reading. Never waits: not for a FIFO, not for a device."""
        return self._open("file", path, base)

    def resolve(self, path: object, *, base: str | None = None) -> str:
        """The real absolute path of a file or directory, which need not be readable."""
        with self._open("any", path, base) as opened:
            return opened.path

    def below(self, directory: Opened, names: Iterable[str], want: Want = "directory") -> Opened:
        """What lies below an open directory, by names as the operating system gave them. With
        ``any``, a file's ``fd`` is -1.
        """
        return Walk(self, want, names, at=directory).run()

    def at(self, names: Names) -> Opened:
        """The directory at a real absolute path that the jail itself has found earlier."""
        return Walk(self, "directory", names).run()

    def hides(self, names: Names) -> bool:
        """Whether a real path is a forbidden place or under one."""
        return any(_inside(names, hidden) for hidden in self._hidden)

    def forbidden_identities(self) -> frozenset[Identity]:
        """What the forbidden places, and all files and directories in them, are on the disk now.

        Under other names (another case, a bind mount, a hard link) they are forbidden too.
        """
        return frozenset().union(
            *(found for path in self._forbidden for found in _identities(path))
        )

    def _open(self, want: Want, path: object, base: str | None) -> Opened:
        asked = _asked(path)
        if asked.startswith("/"):
            return Walk(self, want, split(asked)).run()
        if base is None:
            return Walk(self, want, (*self.first, *split(asked))).run()
        if not _asked(base).startswith("/"):
            raise BridgeError("FILE_INVALID_PATH")
        return Walk(self, want, (*split(base), ".", *split(asked))).run()


def default_jail() -> Jail:
    """The jail of the settings: ``BRIDGE_ALLOWED_ROOTS`` without what holds the bridge's secrets
    (D45).

    Those are the data directory, the files of secrets that settings name, and an SQLite database
    that lies elsewhere with its journals. /proc is closed because it shows the bridge's environment
    and memory when a root is as wide as /; the walk refuses any other procfs.
    """
    database = sqlite_file(conf) if conf.database_url else None
    journals = (
        []
        if database is None
        else [os.path.realpath(database) + suffix for suffix in ("", "-wal", "-shm", "-journal")]
    )
    forbidden = [str(conf.bridge_data_dir), *map(str, conf.secret_files), *journals]
    return Jail(conf.allowed_roots, forbidden, hidden=["/proc"])


def mount_points() -> list[str]:
    """The paths at which something is mounted, as this process sees them; none where the system has
    no such list.
    """
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            found = [line.split(b" ", 5)[4] for line in file]
    except OSError:  # not Linux
        return []
    return [
        os.fsdecode(_OCTAL.sub(lambda octal: bytes([int(octal[1], 8)]), path)) for path in found
    ]


def shown(text: str) -> str:
    """A name or path as JSON can hold it: bytes that are not UTF-8 become U+FFFD, and such a name
    opens nothing.
    """
    return _SURROGATE.sub("\ufffd", text)


def _asked(path: object) -> str:
    """A path from a client if it can be one, else FILE_INVALID_PATH."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise BridgeError("FILE_INVALID_PATH")
    try:
        size = len(path.encode("utf-8"))
        os.fsencode(path)  # fails where the system's names are not UTF-8
    except UnicodeEncodeError:
        raise BridgeError("FILE_INVALID_PATH") from None
    if size > limits.FILE_PATH_MAX_BYTES:
        raise BridgeError("FILE_INVALID_PATH")
    return path


class _Listed(NamedTuple):
    """What a forbidden directory holds, and its ``version`` when it was looked at."""

    version: tuple[int, ...]
    found: frozenset[Identity]  # with the directory itself
    directories: tuple[str, ...]


_listed: dict[str, _Listed] = {}  # of directories that have not changed for a while


def _identities(path: str) -> Iterator[frozenset[Identity]]:
    """The identities of a place and of everything in it; nothing where nothing is (yet)."""
    try:
        stat = os.stat(path)
    except OSError:
        _listed.pop(path, None)
        return
    if not st.S_ISDIR(stat.st_mode):
        yield frozenset({identity(stat)})
        return
    version = (*identity(stat), stat.st_mtime_ns, stat.st_ctime_ns)
    listed = _listed.get(path)
    if listed is None or listed.version != version:
        listed = _list(path, version)
        if time.time_ns() - stat.st_ctime_ns > _STEADY_NS:
            _listed[path] = listed
    yield listed.found
    for directory in listed.directories:
        yield from _identities(directory)


def _list(path: str, version: tuple[int, ...]) -> _Listed:
    """Look into a directory; what vanishes meanwhile or cannot be read is left out."""
    found, directories = {(version[0], version[1])}, []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    found.add(identity(entry.stat(follow_symlinks=False)))
                except OSError:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
    except OSError:
        pass
    return _Listed(version, frozenset(found), tuple(directories))


def _names(path: str) -> Names:
    return tuple(name for name in path.split("/") if name)


def _inside(names: Names, other: Names) -> bool:
    return names[: len(other)] == other
