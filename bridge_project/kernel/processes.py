"""See whether a noted process runs; read what a program says of itself (D65).

A process is known by its id and its start, on this machine's present boot and in this process's pid
namespace; what comes from elsewhere cannot be compared, and proves nothing. Linux's starts are
exact, in ticks since the boot. The portable way has seconds since 1970, from ps and from psutil,
which follow a clock that is set right differently.
"""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil

from bridge_project.kernel import ways
from bridge_project.kernel.process_note import ProcessNote

REGISTRY_FILE_BYTES: Final = 64 * 1024
SAME_START_SECONDS: Final = 30  # in the portable way; ids come again after many thousands


def is_comparable(process: ProcessNote) -> bool:
    """Return whether a process is of this boot and this pid namespace."""
    boot, space = here()
    known = process.start is not None and process.boot == boot
    return known and _is_same(process.space, space)


def lives(process: ProcessNote) -> bool:
    """Return whether a process can be compared, and runs."""
    if not is_comparable(process) or (start := start_of(process.pid)) is None:
        return False
    return _is_same(start, process.start)


def _is_same(start: int | None, other: int | None) -> bool:
    if ways.linux["programs"] or start is None or other is None:
        return start == other
    return abs(start - other) <= SAME_START_SECONDS


@cache
def here() -> tuple[str, int | None]:
    """Return the id of this boot, and the start of this namespace's first process.

    Without such an id it is "", and the start of the first process is that of the boot.
    """
    if not ways.linux["programs"]:
        return "", start_of(1)
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "", None
    return boot, start_of(1)


def start_of(pid: int) -> int | None:
    """Return a running process's start, to be compared by this module, else None."""
    if not ways.linux["programs"]:
        try:
            process = psutil.Process(pid)
            return None if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time())
        except psutil.Error:
            return None
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return None if state in (b"Z", b"X") else int(fields[18])
    except (OSError, ValueError, IndexError):
        return None


def owner_of(pid: int) -> int:
    """Return the user of a process. Raises OSError when it has ended."""
    if ways.linux["programs"]:
        return os.stat(f"/proc/{pid}").st_uid
    with _errors_of(pid):
        return psutil.Process(pid).uids().effective


def command_of(pid: int) -> tuple[str, list[str]]:
    """Return a process's program, and the words after its name. Raises OSError."""
    if ways.linux["programs"]:
        exe = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:]
        return exe, list(map(os.fsdecode, words))
    with _errors_of(pid):
        process = psutil.Process(pid)
        return process.exe(), process.cmdline()[1:]


@contextmanager
def _errors_of(pid: int) -> Iterator[None]:
    """Raise psutil's errors as the ones that reading /proc raises."""
    try:
        yield
    except psutil.NoSuchProcess:
        raise FileNotFoundError(pid) from None
    except psutil.AccessDenied:
        raise PermissionError(pid) from None


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
