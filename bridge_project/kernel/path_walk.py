"""Open a path one name at a time, under the rules of D12.

Every name is opened from the descriptor of the directory before it, then looked at: the operating
system never follows a link, and what was looked at is what is used. The walk reads a link's target
itself and steps through it under the same rules.
Outside the roots only names are compared and nothing is opened, so an answer never shows whether
something exists there.

Linux opens anything without reading it (O_PATH). The portable way opens directories, which must be
readable, and looks at anything else before it opens it; what was swapped in between is refused.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat as st
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from bridge_project.kernel import disk_threads, limits, spelling, ways
from bridge_project.kernel.errors import BridgeError

Want = Literal["directory", "file", "any"]
Names = tuple[str, ...]
Identity = tuple[int, int]  # (device, inode): what a thing is, whatever it is called

# Opens anything but reads nothing: a link itself, a FIFO without waiting, a directory that may only
# be entered, and a database whose locks SQLite would lose if it were opened and closed.
_LOOK = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# macOS refuses a link anywhere in the path, but not both flags at once
_ROOT = os.O_RDONLY | os.O_DIRECTORY | getattr(os, "O_NOFOLLOW_ANY", os.O_NOFOLLOW) | os.O_CLOEXEC

_PROC_SUPER_MAGIC = 0x9FA0  # statfs(2)
_HAS_PROC = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)

# Errors that are not listed (no descriptors left, a broken disk) are the bridge's own and say
# nothing about the path. ESRCH: procfs, of a process that has ended.
_CODES = {
    **dict.fromkeys((errno.ENOENT, errno.ESTALE), "FILE_NOT_FOUND"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.ENODEV, errno.ESRCH, errno.EAGAIN), "FILE_ACCESS_DENIED"
    ),
    **dict.fromkeys(
        (errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ECONNABORTED), "FILE_UNAVAILABLE"
    ),
    **dict.fromkeys(
        (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.EISDIR), "FILE_INVALID_PATH"
    ),
}


@dataclass(slots=True)
class Opened:
    """Hold an open descriptor inside a root; close it as a context manager."""

    fd: int  # readable, a file's non-blocking
    names: Names
    stat: os.stat_result  # as it was when it was opened

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
    forbidden is refused under any name. `run` ends the walk and leaves one descriptor or none.
    """

    def __init__(
        self,
        rules: Rules,
        forbids: Callable[[os.stat_result], bool],
        want: Want,
        pending: Iterable[str],
        at: Opened | None = None,
    ) -> None:
        self.rules = rules
        self.forbids = forbids
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
            disk_threads.reaches(join(names))
            try:
                fd = os.open(join(names), _LOOK | os.O_DIRECTORY if ways.linux["paths"] else _ROOT)
            except OSError as error:
                if not _is_no_directory(error):
                    raise
                # the root is a link or a file by now: no longer what was allowed
                raise BridgeError("FILE_ACCESS_DENIED") from None
            self._enter(fd, os.fstat(fd))
        elif names not in self.rules.above:
            raise BridgeError("FILE_ACCESS_DENIED")

    def _down(self, name: str) -> None:
        if self.rules.hides((*self.names, name)):
            raise BridgeError("FILE_ACCESS_DENIED")
        disk_threads.reaches(join((*self.names, name)))
        fd, stat = self._look(name)
        try:
            if st.S_ISLNK(stat.st_mode):
                at = ("", fd) if fd >= 0 else (name, self.fd)
                self._follow(os.readlink(at[0], dir_fd=at[1]))
                return
            if not ways.linux["paths"]:
                name = spelling.real_name(self.fd, name, stat)
                if self.rules.hides((*self.names, name)):
                    raise BridgeError("FILE_ACCESS_DENIED")
            if st.S_ISDIR(stat.st_mode):
                directory, fd = fd, -1
                self._enter(directory, stat)
            elif self.pending or self.want == "directory":
                raise BridgeError("FILE_INVALID_PATH")
            elif not st.S_ISREG(stat.st_mode):
                raise BridgeError("FILE_ACCESS_DENIED")
            else:
                self._admit(fd, stat)
                self.end = (self._open(name, fd, stat) if self.want == "file" else -1, stat)
            self.names.append(name)
        finally:
            if fd >= 0:
                os.close(fd)

    def _look(self, name: str) -> tuple[int, os.stat_result]:
        """Return a descriptor of what has this name, and what it is.

        In the portable way -1 for all but directories: to open them could have an effect.
        """
        linux = ways.linux["paths"]
        try:
            # asked for as a directory, so that one that is mounted on demand is
            flags = _LOOK | os.O_DIRECTORY if linux else _LIST
            fd = os.open(name, flags, dir_fd=self.fd)
        except OSError as error:
            if not _is_no_directory(error):
                raise
            if not linux:
                stat = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
                if st.S_ISDIR(stat.st_mode):
                    raise BridgeError("FILE_NOT_FOUND") from None  # it has just come there
                return -1, stat
            fd = os.open(name, _LOOK, dir_fd=self.fd)
        try:
            return fd, os.fstat(fd)
        except BaseException:
            os.close(fd)
            raise

    def _open(self, name: str, fd: int, stat: os.stat_result) -> int:
        """Open a file that was looked at for reading; refuse what was put in its place."""
        if fd >= 0:
            return os.open(f"/proc/self/fd/{fd}", _READ)
        try:
            opened = os.open(name, _READ | os.O_NOFOLLOW, dir_fd=self.fd)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise BridgeError("FILE_NOT_FOUND") from None
        try:
            found = os.fstat(opened)
            if identity(found) != identity(stat):
                raise BridgeError("FILE_NOT_FOUND")
            self._admit(opened, found)
        except BaseException:
            os.close(opened)
            raise
        return opened

    def _follow(self, target: str) -> None:
        self.links += 1
        if self.links > limits.FILE_LINKS_MAX:
            raise BridgeError("FILE_INVALID_PATH")
        if target.startswith("/"):
            self._restart([])
        self.pending.extendleft(reversed(split(target)))

    def _enter(self, fd: int, stat: os.stat_result) -> None:
        self._leave()
        self.fd = fd
        self._admit(fd, stat)

    def _admit(self, fd: int, stat: os.stat_result) -> None:
        """Refuse what is secret, whatever its name, and every procfs."""
        if self.forbids(stat):
            raise BridgeError("FILE_ACCESS_DENIED")
        if stat.st_dev != self.device and fd >= 0:
            if _is_procfs(fd):
                raise BridgeError("FILE_ACCESS_DENIED")
            self.device = stat.st_dev

    def _leave(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


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


def _is_no_directory(error: OSError) -> bool:
    """Return whether it says that there is no directory, but a link, say."""
    return error.errno in (errno.ENOTDIR, errno.ELOOP)


def _is_procfs(fd: int) -> bool:
    """Return whether a descriptor is in a procfs, which shows processes' secrets."""
    if not _HAS_PROC:
        return False
    found = ctypes.create_string_buffer(256)  # struct statfs has 120 bytes and begins with the type
    if _libc.fstatfs(fd, found):
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
