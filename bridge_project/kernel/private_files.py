"""Make directories and files that only their owner may read (D45).

Standard library only: the forwarder of another machine carries this module in its one file.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import sys
from pathlib import Path


def make_private_dir(path: Path, *below: str) -> Path:
    """Make nested directories with mode 0700, or restore it; return the last (D45).

    ``path`` may be a link, for a data directory may lie on another disk. Names below may not be
    links: secrets would be written to their targets. Raises OSError.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
    for name in below:
        path = path / name
        make_real_dir(path)
    return path


def make_real_dir(path: Path) -> None:
    """Make a directory with mode 0700, or restore it. Raises OSError, also for a link."""
    path.mkdir(mode=0o700, exist_ok=True)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(directory).st_mode & 0o077:
            os.fchmod(directory, 0o700)
    finally:
        os.close(directory)


def sync(descriptor: int) -> None:
    """Have what was written outlast a power cut. Raises OSError.

    On macOS fsync leaves it in the disk's own memory.
    """
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError:  # a file system that does not know it
            pass
        else:
            return
    os.fsync(descriptor)


def write_private_file(path: Path, data: bytes, *, like: Path | None = None) -> None:
    """Replace a file (0600) at once: readers see the old bytes or the new.

    With ``like`` it gets mode and owner of that file, if there is one. Raises OSError, and leaves
    nothing beside it.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            sync(descriptor)
            if like is not None and like.exists():
                status = like.stat()
                os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
                if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                    os.chown(draft, status.st_uid, status.st_gid)
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
