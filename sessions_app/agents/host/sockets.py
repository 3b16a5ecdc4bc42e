"""Find hosts' sockets, and check who is at the other end (D79)."""

import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bridge_project.kernel import ways
from bridge_project.kernel.config import conf
from bridge_project.kernel.private_files import make_private_dir

_NAME_BYTES: Final = 103  # macOS takes one byte more, the NUL
_SUFFIX: Final = ".socket"
_UCRED: Final = struct.Struct("3i")  # of Linux: pid, uid, gid
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2  # of macOS, sys/un.h
_XUCRED: Final = struct.Struct("2I")  # its beginning: version, uid


def directory() -> Path:
    """Return the directory of this bridge's hosts, made if need be. Raises OSError."""
    return make_private_dir(conf.bridge_data_dir, "hosts")


def path_of(host_id: str) -> Path:
    """Return where a host listens."""
    return directory() / f"{host_id}{_SUFFIX}"


def id_of(path: str) -> str:
    """Return the id of the host that listens there; "" for no path."""
    return Path(path).name.removesuffix(_SUFFIX)


def keep_mark() -> Path:
    """Return a file that has the next orderly stop leave the hosts."""
    return directory() / "keep"


def found() -> list[Path]:
    """Return the sockets of hosts, of living ones or not."""
    return sorted((conf.bridge_data_dir / "hosts").glob(f"*{_SUFFIX}"))


def process_at(path: Path) -> int:
    """Return the process of the host that listens there. Raises OSError."""
    with connect(path) as connection:
        return peer(connection)[0]


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Yield a name of a socket that is short enough: the system takes about 100 bytes.

    Raises OSError, also where its directory is a link.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    held = os.open(path.parent, flags)
    try:
        if ways.linux["sockets"]:
            yield f"/proc/self/fd/{held}/{path.name}"
        elif len(os.fsencode(path)) <= _NAME_BYTES:
            yield str(path)
        else:
            with TemporaryDirectory(dir="/tmp") as ours:  # the usual one has a long name
                os.symlink(path.parent.absolute(), f"{ours}/d")
                yield f"{ours}/d/{path.name}"
    finally:
        os.close(held)


def listen(path: Path) -> socket.socket:
    """Return a socket that listens there. Raises OSError."""
    made = socket.socket(socket.AF_UNIX)
    with short_name(path) as name:
        made.bind(name)
    made.listen()
    return made


def connect(path: Path) -> socket.socket:
    """Return a connection to a host of our user.

    Raises OSError, also for a link to its socket.
    """
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise PermissionError("it is no socket")
    made = socket.socket(socket.AF_UNIX)
    try:
        made.setblocking(False)  # a full queue of one that is stopped would hold us up
        with short_name(path) as name:
            made.connect(name)
        if peer(made)[1] != os.geteuid():
            raise PermissionError("the socket is another user's")
    except BaseException:
        made.close()
        raise
    return made


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the process at the other end, and its user."""
    if sys.platform == "linux":
        cred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, _ = _UCRED.unpack(cred)
        return pid, uid
    else:  # noqa: RET505 - each system's types are checked
        cred = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 128)
        pid = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
        return pid, _XUCRED.unpack(cred[: _XUCRED.size])[1]
