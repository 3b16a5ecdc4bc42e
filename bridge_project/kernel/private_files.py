"""Make directories and files that only their owner may read (D45)."""

import os
import secrets
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
        path.mkdir(mode=0o700, exist_ok=True)
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(directory).st_mode & 0o077:
                os.fchmod(directory, 0o700)
        finally:
            os.close(directory)
    return path


def write_private_file(path: Path, data: bytes) -> None:
    """Replace a file (0600) at once: readers see the old bytes or the new."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
