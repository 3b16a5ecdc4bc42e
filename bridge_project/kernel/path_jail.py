"""Open client paths inside the allowed roots only (D12, D45).

The data directory and other places with the bridge's secrets are always refused: by their paths,
by device and inode, at every place where a part of them is mounted once more, and by the inode of a
file with several hard links.
"""

import os
import re
import stat as st
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property

from bridge_project.kernel import limits, mounts, path_walk, spelling, ways
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_walk import Identity, Names, Opened, Want, identity, names_of, split

_SURROGATE = re.compile("[\ud800-\udfff]")


class Jail:
    """Open paths under `roots`, except what lies under `forbidden`.

    `hidden` is refused itself, but not what else is the same as something below it. Make one for
    each request: what is forbidden is looked up once. A relative path begins in the first root, or
    in `base`, an absolute path under the same rules. A link may lead from one root to another.

    Every method that takes a path raises (D12): FILE_INVALID_PATH for an impossible path, a file
    where a directory is needed, or the reverse; FILE_ACCESS_DENIED outside the roots, whether or
    not anything exists there, and for anything forbidden, unreadable, or neither file nor
    directory; FILE_NOT_FOUND.
    """

    def __init__(
        self, roots: Sequence[str], forbidden: Sequence[str] = (), hidden: Sequence[str] = ()
    ) -> None:
        if not roots:
            raise ValueError("a jail needs a root")
        real = [names_of(_real_root(root)) for root in roots]
        self.first: Names = real[0]
        self.roots = frozenset(real)
        self._forbidden = tuple(map(_real_path, forbidden))
        self._hidden = tuple(hidden)
        known = mounts.mounts() if forbidden else []
        places = [place for path in self._forbidden for place in mounts.other_places(path, known)]
        self.mounted = tuple(map(names_of, places))  # where parts of what is forbidden are seen
        self._disks = tuple(
            mount.point for path in self._forbidden for mount in mounts.mounts_below(path, known)
        )
        self._rules = path_walk.Rules(
            self.roots,
            frozenset(root[:depth] for root in self.roots for depth in range(len(root))),
            (*map(names_of, (*self._forbidden, *hidden)), *self.mounted),
        )

    def open_dir(self, path: object, *, base: str | None = None) -> Opened:
        """Open a directory for listing."""
        return self._open("directory", path, base)

    def open_file(self, path: object, *, base: str | None = None) -> Opened:
        """Open a regular file for reading; never wait for a FIFO or a device."""
        return self._open("file", path, base)

    def resolve(self, path: object, *, base: str | None = None) -> str:
        """Return the real absolute path of a file or directory, readable or not."""
        with self._open("any", path, base) as opened:
            return opened.path

    def below(self, directory: Opened, names: Iterable[str], want: Want = "directory") -> Opened:
        """Open a path below an open directory; with `any`, a file's `fd` is -1."""
        return self._walk(want, names, directory)

    def at(self, names: Names) -> Opened:
        """Open the directory at a real absolute path that the jail found earlier."""
        return self._walk("directory", names)

    def hides(self, names: Names) -> bool:
        """Return whether a path is one of those that clients may not reach."""
        return self._rules.hides(names)

    def forbids(self, stat: os.stat_result) -> bool:
        """Return whether it is a forbidden thing under another name.

        A directory can only be the forbidden one itself: those below it are reached through it, or
        through a mount, which is hidden. A file below it may have a second hard link elsewhere.
        """
        if identity(stat) in self._tops or identity(stat) in self._hidden_tops:
            return True
        linked = st.S_ISREG(stat.st_mode) and stat.st_nlink > 1
        return linked and stat.st_dev in self._devices and identity(stat) in self._contents

    @cached_property
    def _tops(self) -> frozenset[Identity]:
        return frozenset(one for path in self._forbidden for one in _identities([path]))

    @cached_property
    def _hidden_tops(self) -> frozenset[Identity]:
        """Return what is hidden: another spelling of its name may lead to it."""
        return frozenset(_identities(self._hidden))

    @cached_property
    def _devices(self) -> frozenset[int]:
        return frozenset(device for device, _ in (*self._tops, *_identities(self._disks)))

    @cached_property
    def _contents(self) -> frozenset[Identity]:
        """Return device and inode of all below; thousands of events may wait in the spool."""
        below = (
            f"{directory}/{name}"
            for path in self._forbidden
            for directory, inner, files in os.walk(path)
            for name in (*inner, *files)
        )
        return frozenset(_identities(below))

    def _open(self, want: Want, path: object, base: str | None) -> Opened:
        asked = _check(path)
        if asked.startswith("/"):
            return self._walk(want, split(asked))
        if base is None:
            return self._walk(want, (*self.first, *split(asked)))
        if not _check(base).startswith("/"):
            raise BridgeError("FILE_INVALID_PATH")
        return self._walk(want, (*split(base), ".", *split(asked)))

    def _walk(self, want: Want, names: Iterable[str], at: Opened | None = None) -> Opened:
        return path_walk.Walk(self._rules, self.forbids, want, names, at).run()


def default_jail() -> Jail:
    """Make the jail of BRIDGE_ALLOWED_ROOTS without the bridge's secrets (D45).

    Those are the data directory, the files of secrets that settings name, and an SQLite database
    that lies elsewhere with its journals. When a root is as wide as /, /proc would show the
    bridge's environment and memory, /dev/fd what it has open, and macOS's /.vol any file by its
    inode; the walk refuses any other procfs.
    """
    forbidden = [str(conf.bridge_data_dir), *map(str, conf.secret_files)]
    if conf.database_url and (database := sqlite_file(conf)) is not None:
        real = os.path.realpath(database)
        forbidden += [real + suffix for suffix in ("", "-wal", "-shm", "-journal")]
    return Jail(conf.allowed_roots, forbidden, hidden=["/proc", "/dev/fd", "/.vol"])


@cache
def _real_root(root: str) -> str:
    """Return a root's real path, looked up once: its mount may hang later."""
    return _real_path(root)


def _real_path(path: str) -> str:
    real = os.path.realpath(path)
    return real if ways.linux["paths"] else spelling.real_path(real)


def shown(text: str) -> str:
    """Make a path valid UTF-8 for JSON: bytes that are none become U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def _check(path: object) -> str:
    """Return a client's path if it can be one, else raise FILE_INVALID_PATH."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise BridgeError("FILE_INVALID_PATH")
    try:
        os.fsencode(path)  # fails where the system's names are not UTF-8
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        raise BridgeError("FILE_INVALID_PATH") from None
    if size > limits.FILE_PATH_MAX_BYTES:
        raise BridgeError("FILE_INVALID_PATH")
    return path


def _identities(paths: Iterable[str]) -> Iterator[Identity]:
    """Yield device and inode of each path that is there."""
    for path in paths:
        with suppress(OSError):
            yield identity(os.lstat(path))
