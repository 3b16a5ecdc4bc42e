"""Read and write the spool's files; follow no links, show no partial files."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path


def make_own_directory(path: Path) -> None:
    """Make a directory with mode 0700, or restore that mode.

    Raises OSError for a link, or for another user's directory.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(directory)
        if status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
        if status.st_mode & 0o077:
            os.fchmod(directory, 0o700)
    finally:
        os.close(directory)


def read_own(path: Path, most: int = 2**16) -> tuple[bytes, os.stat_result]:
    """Return a file's first ``most`` bytes, and its status after reading.

    Raises OSError, also for a link; a FIFO is not waited for.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags), "rb") as opened:
        return opened.read(most) or b"", os.fstat(opened.fileno())


def write_whole(path: Path, data: bytes) -> None:
    """Write a file and rename it into place. Raises OSError and leaves nothing."""
    draft = path.with_name(f".draft-{uuid.uuid4()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600), "wb") as opened:
            opened.write(data)
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):  # it was never made
            draft.unlink()
        raise
