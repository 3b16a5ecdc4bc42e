"""See whether a noted process runs; read what a program says of itself (D65).

A process is known by its id and its start, on this machine's present boot and in this process's pid
namespace; what comes from elsewhere cannot be compared, and proves nothing.
"""

import json
import os
import stat
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil

from bridge_project.kernel.process_note import ProcessNote

REGISTRY_FILE_BYTES: Final = 64 * 1024


def is_comparable(process: ProcessNote) -> bool:
    """Return whether a process is of this boot and this pid namespace."""
    return process.start is not None and (process.boot, process.space) == here()


def lives(process: ProcessNote) -> bool:
    """Return whether a process can be compared, and runs."""
    return is_comparable(process) and start_of(process.pid) == process.start


@cache
def here() -> tuple[str, int | None]:
    """Return the id of this boot, and the start of this namespace's first process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "", None
    return boot, start_of(1)


def start_of(pid: int) -> int | None:
    """Return a running process's start in ticks since the boot, else None."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return None if state in (b"Z", b"X") else int(fields[18])
    except (OSError, ValueError, IndexError):
        return None


def read_own(path: str) -> dict[str, Any]:
    """Return the object in a small file of this user's, not older than the boot."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags), "rb") as file:
            about = os.fstat(file.fileno())
            ours = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid()
            if not ours or about.st_mtime < psutil.boot_time():
                return {}
            found = json.loads(file.read(REGISTRY_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
