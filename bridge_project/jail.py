"""From a path that a client sent to an open descriptor inside an allowed root, or a BridgeError (D12, D45).

The data directory and the other places that hold the bridge's secrets are never inside, whatever the roots and whatever they
are called: they are known by their path and by what they are on the disk. How a path is walked is in ``walk``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from bridge_project import limits
from bridge_project.conf import conf
from bridge_project.database import sqlite_file
from bridge_project.errors import BridgeError
from bridge_project.walk import Identity, Names, Opened, Walk, Want, answering, identity, join, split

__all__ = ["Identity", "Jail", "Names", "Opened", "answering", "default_jail", "identity", "shown"]

_SURROGATE = re.compile("[\ud800-\udfff]")


class Jail:
    """What may be seen: the directories of ``roots`` without what lies under ``forbidden`` (directories or files).

    A relative path begins in the first root unless a ``base`` is given: an absolute path, held to the same rules. A link may
    lead from one root to another. None of the places has to exist when the jail is made.

    Errors of everything that takes a path (D12): FILE_INVALID_PATH for what cannot be a path, or is a file where a directory
    is needed or the reverse; FILE_ACCESS_DENIED outside the roots, whether or not something is there, for what is forbidden or
    not to be read, and for what is neither file nor directory; FILE_NOT_FOUND.
    """

    def __init__(self, roots: Sequence[str], forbidden: Sequence[str] = ()) -> None:
        if not roots:
            raise ValueError("a jail needs a root")
        real = [_names(os.path.realpath(root)) for root in roots]
        self.first: Names = real[0]
        self.roots = frozenset(real)
        self.above = frozenset(root[:depth] for root in self.roots for depth in range(len(root)))
        self._forbidden = tuple(_names(os.path.realpath(path)) for path in forbidden)

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
        """What lies below an open directory, by names as the operating system gave them. With ``any``, a file's ``fd`` is -1."""
        return Walk(self, want, names, at=directory).run()

    def at(self, names: Names) -> Opened:
        """The directory at a real absolute path that the jail itself has found earlier."""
        return Walk(self, "directory", names).run()

    def hides(self, names: Names) -> bool:
        """Whether a real path is a forbidden place or under one."""
        return any(_inside(names, forbidden) for forbidden in self._forbidden)

    def forbidden_identities(self) -> frozenset[Identity]:
        """What the forbidden places are on the disk now: under other names (another case, a bind mount) they are forbidden too."""
        found = set()
        for names in self._forbidden:
            try:
                found.add(identity(os.stat(join(names))))
            except OSError:
                continue  # not there (yet), so nothing can be an alias of it
        return frozenset(found)

    def is_linked_secret(self, stat: os.stat_result) -> bool:
        """Whether a file with several names (hard links) has one of them under a forbidden place."""
        if stat.st_nlink < 2:
            return False
        for names in self._forbidden:
            path = join(names)
            try:
                same_disk = os.stat(path).st_dev == stat.st_dev
            except OSError:
                continue  # not there
            if same_disk and stat.st_ino in _inodes(path):
                return True
        return False

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
    """The jail of the settings: ``BRIDGE_ALLOWED_ROOTS`` without what holds the bridge's secrets (D45).

    Those are the data directory, the files of secrets that settings name, and an SQLite database that lies elsewhere with its journals.
    /proc is closed because it shows the bridge's environment and memory when a root is as wide as /.
    """
    database = sqlite_file(conf) if conf.database_url else None
    journals = [] if database is None else [os.path.realpath(database) + suffix for suffix in ("", "-wal", "-shm", "-journal")]
    return Jail(conf.allowed_roots, [str(conf.bridge_data_dir), "/proc", *map(str, conf.secret_files), *journals])


def shown(text: str) -> str:
    """A name or path as JSON can hold it: bytes that are not UTF-8 become U+FFFD, and such a name opens nothing."""
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


def _inodes(directory: str) -> Iterator[int]:
    """The inodes of the files under a directory; what vanishes or cannot be read meanwhile is left out."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _inodes(entry.path)
                else:
                    yield entry.inode()
    except OSError:
        return


def _names(path: str) -> Names:
    return tuple(name for name in path.split("/") if name)


def _inside(names: Names, other: Names) -> bool:
    return names[: len(other)] == other
