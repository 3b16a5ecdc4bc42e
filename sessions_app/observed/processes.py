"""Keep the processes of an observed session, and see which of them live (D65).

A process is known by its id and its start, on this machine's present boot and in this process's pid
namespace; what comes from elsewhere cannot be compared, and proves nothing.
"""

import json
import os
import stat
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil

from bridge_project.kernel import limits, threads
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.process_note import ProcessNote
from sessions_app.models import Session

REGISTRY_FILE_BYTES: Final = 64 * 1024
BUSY, IDLE, WAITING = "busy", "idle", "waiting"  # what a registry says of a session


def of(session: Session) -> list[ProcessNote]:
    """Return the known processes of a session, oldest first."""
    return [ProcessNote(**one) for one in json.loads(session.processes or "[]")]


def _keep(session: Session, known: Iterable[ProcessNote]) -> None:
    kept = [one._replace(nonce="", beside=False)._asdict() for one in known]
    session.processes = json.dumps(kept) if kept else ""


def add(session: Session, process: ProcessNote) -> None:
    """Keep a process that runs a session; the caller saves it."""
    known = of(session)
    again = next((one for one in known if _same(one, process)), None)
    if again is None:
        _keep(session, [*known, process][-limits.PROCESSES_KEPT :])
    elif not again.certain:
        _keep(session, [one._replace(certain=True) if one is again else one for one in known])


def remove(session: Session, process: ProcessNote) -> None:
    """Forget a process that runs the session no more; the caller saves it."""
    _keep(session, [one for one in of(session) if not _same(one, process)])


def others_live(session: Session, process: ProcessNote | None) -> bool:
    """Return whether another process than the one given certainly runs the session."""
    return process is not None and any(
        one.certain and lives(one) for one in of(session) if not _same(one, process)
    )


def all_gone(known: Iterable[ProcessNote]) -> bool:
    """Return whether a session's processes are known, and all of them have ended."""
    known = list(known)
    return any(one.certain for one in known) and all(
        is_comparable(one) and not lives(one) for one in known
    )


def _same(one: ProcessNote, other: ProcessNote) -> bool:
    return one[:4] == other[:4]  # id, start, boot and namespace


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


def registered_state(session_id: str, process: ProcessNote) -> tuple[str, float] | None:
    """Return what the agent's own registry says of a session, and since when.

    Claude Code keeps such a file for each running program; it is not documented. None when there is
    no such word: no file, one that is no regular file of this user's or older than the boot, and
    one about another session. ``since``: seconds since 1970, 0 when it is not said.
    """
    if (found := _registered(session_id, process)) is None:
        return None
    status, since = found.get("status"), found.get("statusUpdatedAt")
    return str(status), since / 1000 if isinstance(since, int | float) else 0.0


def is_script(session_id: str, process: ProcessNote) -> bool:
    """Return whether nobody sits at a program, as its agent's registry says."""
    found = _registered(session_id, process)
    return found is not None and str(found.get("entrypoint")).startswith("sdk")


def _registered(session_id: str, process: ProcessNote) -> dict[str, Any] | None:
    path = os.path.join(process.home, "sessions", f"{process.pid}.json")
    try:
        found = threads.disk.call(process.home, _read_own, path)
    except BridgeError:  # it lies on a disk that does not answer
        return None
    about = found.get("sessionId"), found.get("pid")
    return found if about == (session_id, process.pid) else None


def _read_own(path: str) -> dict[str, Any]:
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
