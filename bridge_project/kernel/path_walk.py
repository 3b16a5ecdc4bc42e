"""Open a path one name at a time, under the rules of D12.

Every name is opened from the descriptor of the directory before it, and the operating system never
follows a link: the walk reads a link's target itself and steps through it under the same rules. A
name that is replaced meanwhile is therefore either refused or leads to another place inside.
Outside the roots only names are compared and nothing is opened, so an answer never shows whether
something exists there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat as st
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError

Want = Literal["directory", "file", "any"]
Names = tuple[str, ...]
Identity = tuple[int, int]  # (device, inode): what a thing is, whatever it is called

_NOFOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH lets the walk pass through directories that may be entered but not listed; without it (not
# Linux) they are refused.
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | _NOFOLLOW
_LIST = os.O_RDONLY | os.O_DIRECTORY | _NOFOLLOW
_LOOK = os.O_PATH | _NOFOLLOW if hasattr(os, "O_PATH") else None  # a file, without opening it
# a FIFO swapped in meanwhile must not hold the bridge up
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | _NOFOLLOW

_PROC_SUPER_MAGIC = 0x9FA0  # statfs(2)
_fstatfs = ctypes.CDLL(None, use_errno=True).fstatfs if sys.platform == "linux" else None

# errors of an open whose name was replaced after it was looked at: look again
_SWAPPED = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO})
# Errors that are not listed (no descriptors left, a broken disk) are the bridge's own and say
# nothing about the path. ESRCH: procfs, of a process that has ended.
_CODES = {
    **dict.fromkeys((errno.ENOENT, errno.ESTALE), "FILE_NOT_FOUND"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.ENODEV, errno.ESRCH, errno.EAGAIN), "FILE_ACCESS_DENIED"
    ),
    **dict.fromkeys(
        (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.EISDIR), "FILE_INVALID_PATH"
    ),
}


@dataclass(slots=True)
class Opened:
    """Hold an open descriptor inside a root; close it as a context manager.

    `fd` is readable (a file's is non-blocking), `stat` what it said when it was opened.
    """

    fd: int
    names: Names
    stat: os.stat_result

    @property
    def path(self) -> str:
        """Return the real absolute path; pass it through `shown` before sending it."""
        return join(self.names)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Rules:
    """Decide by name where a walk may go.

    Of roots inside each other the walk enters the outermost, so that the inner one cannot be
    swapped. `above` are the proper ancestors of the roots: only passed through.
    """

    roots: frozenset[Names]
    above: frozenset[Names]
    hidden: tuple[Names, ...]

    def hides(self, names: Names) -> bool:
        return any(names[: len(hidden)] == hidden for hidden in self.hidden)


class Walk:
    """Walk from the top, or from an open directory, to a place inside a root.

    `names` is the real path gone so far and `fd` its directory, -1 while above every root. What is
    in `forbidden` is refused under any name. `run` ends the walk and leaves one descriptor or none.
    """

    def __init__(
        self,
        rules: Rules,
        forbidden: frozenset[Identity],
        want: Want,
        pending: Iterable[str],
        at: Opened | None = None,
    ) -> None:
        self.rules = rules
        self.forbidden = forbidden
        self.want = want
        self.pending = deque(pending)
        self.names: list[str] = list(at.names) if at else []
        self.fd = os.dup(at.fd) if at else -1
        self.device = at.stat.st_dev if at else -1  # that was found to be no procfs
        self.links = 0
        self.end: tuple[int, os.stat_result] | None = None  # the file that the path ends in

    def run(self) -> Opened:
        try:
            with translate_os_errors():
                if self.fd < 0:
                    self._arrive()
                steps = 0
                while self.pending:
                    steps += 1
                    if steps > limits.FILE_STEPS_MAX:
                        raise BridgeError("FILE_INVALID_PATH")
                    self._step(self.pending.popleft())
                return self._finish()
        finally:
            self._leave()

    def _finish(self) -> Opened:
        names = tuple(self.names)
        if self.end is not None:
            return Opened(self.end[0], names, self.end[1])
        if self.fd < 0:
            raise BridgeError("FILE_ACCESS_DENIED")
        if self.want == "file":
            raise BridgeError("FILE_INVALID_PATH")
        if self.want == "any":
            fd, self.fd = self.fd, -1
        else:
            fd = os.open(".", _LIST, dir_fd=self.fd)  # the walk's own descriptor may only pass
        return Opened(fd, names, os.fstat(fd))

    def _step(self, name: str) -> None:
        if name == ".":
            return  # only a directory is ever followed by a name, so the walk is in one
        if name == "..":
            # from the root again: what `..` leads to can have been moved away
            parents = self.names[:-1]
            while self.pending and self.pending[0] == "..":
                self.pending.popleft()
                parents = parents[:-1]
            self._restart(parents)
        elif self.fd < 0:
            self.names.append(name)
            self._arrive()
        else:
            self._down(name)

    def _restart(self, names: Iterable[str]) -> None:
        self._leave()
        self.names = []
        self.pending.extendleft(reversed(list(names)))
        self._arrive()

    def _arrive(self) -> None:
        """Open the root if the walk is at one; refuse when none can be reached."""
        names = tuple(self.names)
        if self.rules.hides(names):
            raise BridgeError("FILE_ACCESS_DENIED")
        if names in self.rules.roots:
            try:
                self._enter(os.open(join(names), _PASS))
            except OSError as error:
                # the root is a link or a file by now: no longer what was allowed
                if error.errno in _SWAPPED:
                    raise BridgeError("FILE_ACCESS_DENIED") from None
                raise
        elif names not in self.rules.above:
            raise BridgeError("FILE_ACCESS_DENIED")

    def _down(self, name: str) -> None:
        if self.rules.hides((*self.names, name)):
            raise BridgeError("FILE_ACCESS_DENIED")
        stat = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        is_link = st.S_ISLNK(stat.st_mode)
        try:
            if is_link:
                self._follow(os.readlink(name, dir_fd=self.fd))
            elif st.S_ISDIR(stat.st_mode):
                self._enter(os.open(name, _PASS, dir_fd=self.fd))
                self.names.append(name)
            elif self.pending or self.want == "directory":
                raise BridgeError("FILE_INVALID_PATH")
            else:
                self._take(name, stat)
        except OSError as error:
            if error.errno not in _SWAPPED and not (is_link and error.errno == errno.EINVAL):
                raise
            self._count_link()
            self.pending.appendleft(name)

    def _follow(self, target: str) -> None:
        self._count_link()
        if target.startswith("/"):
            self._restart([])
        self.pending.extendleft(reversed(split(target)))

    def _take(self, name: str, stat: os.stat_result) -> None:
        """End at a regular file: open it, or only look at it where `any` is wanted."""
        # not even opened: closing the database file would drop SQLite's locks on it
        if identity(stat) in self.forbidden or not st.S_ISREG(stat.st_mode):
            raise BridgeError("FILE_ACCESS_DENIED")
        fd, flags = -1, _READ if self.want == "file" else _LOOK
        try:
            if flags is not None:
                fd = os.open(name, flags, dir_fd=self.fd)
                stat = os.fstat(fd)
                if not st.S_ISREG(stat.st_mode):
                    raise BridgeError("FILE_ACCESS_DENIED")
            self._admit(fd, stat)
            self.names.append(name)
            self.end = (-1, stat)
            if self.want == "file":
                self.end, fd = (fd, stat), -1
        finally:
            if fd >= 0:
                os.close(fd)

    def _enter(self, fd: int) -> None:
        self._leave()
        self.fd = fd
        self._admit(fd, os.fstat(fd))

    def _admit(self, fd: int, stat: os.stat_result) -> None:
        """Refuse what is secret, whatever its name, and every procfs."""
        if identity(stat) in self.forbidden:
            raise BridgeError("FILE_ACCESS_DENIED")
        if stat.st_dev != self.device:
            if fd >= 0 and _is_procfs(fd):
                raise BridgeError("FILE_ACCESS_DENIED")
            self.device = stat.st_dev

    def _leave(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _count_link(self) -> None:
        self.links += 1
        if self.links > limits.FILE_LINKS_MAX:
            raise BridgeError("FILE_INVALID_PATH")


@contextmanager
def translate_os_errors() -> Iterator[None]:
    """Raise a path's OSError as its error of D12, and any other unchanged."""
    try:
        yield
    except OSError as error:
        code = _CODES.get(error.errno or 0)
        if code is None:
            raise
        raise BridgeError(code) from None


def _is_procfs(fd: int) -> bool:
    """Return whether a descriptor is in a procfs, which shows processes' secrets."""
    if _fstatfs is None:  # not Linux
        return False
    found = ctypes.create_string_buffer(256)  # struct statfs has 120 bytes and begins with the type
    if _fstatfs(fd, found):
        raise OSError(ctypes.get_errno(), "fstatfs")
    return ctypes.c_uint32.from_buffer(found).value == _PROC_SUPER_MAGIC


def identity(stat: os.stat_result) -> Identity:
    return stat.st_dev, stat.st_ino


def names_of(path: str) -> Names:
    return tuple(name for name in path.split("/") if name)


def split(path: str) -> Names:
    """Split a path; end with `.` if a final slash demands a directory."""
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    return (*names, ".") if path.endswith(("/", "/.")) else names


def join(names: Iterable[str]) -> str:
    return "/" + "/".join(names)
