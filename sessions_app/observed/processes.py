"""Keep the processes of an observed session, and see which of them live (D65)."""

import json
import os
from collections.abc import Iterable
from typing import Any

from bridge_project.kernel import limits, threads
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.process_note import ProcessNote
from bridge_project.kernel.processes import is_comparable, lives, read_own
from sessions_app.models import Session

BUSY, IDLE, WAITING = "busy", "idle", "waiting"  # what a registry says of a session


def of(session: Session) -> list[ProcessNote]:
    """Return the known processes of a session, oldest first."""
    return [ProcessNote(**one) for one in json.loads(session.processes or "[]")]


def running(session: Session) -> list[ProcessNote]:
    """Return those of which nobody has said that they run it no more."""
    return [one for one in of(session) if not one.over]


def _keep(session: Session, known: Iterable[ProcessNote]) -> None:
    kept = [one._replace(nonce="", beside=False)._asdict() for one in known]
    session.processes = json.dumps(kept) if kept else ""


def add(session: Session, process: ProcessNote) -> None:
    """Keep a process that runs a session; the caller saves it."""
    known = of(session)
    again = next((one for one in known if _same(one, process)), None)
    if again is None:
        _keep(session, [*known, process][-limits.PROCESSES_KEPT :])
    elif again.over or not again.certain:
        runs = again._replace(certain=True, over=False)
        _keep(session, [runs if one is again else one for one in known])


def end(session: Session, process: ProcessNote) -> None:
    """Note that a process runs the session no more; the caller saves it."""
    others = [one for one in of(session) if not _same(one, process)]
    _keep(session, [*others, process._replace(over=True)][-limits.PROCESSES_KEPT :])


def end_all(session: Session) -> None:
    """Note that no known process runs the session any more; the caller saves it."""
    _keep(session, [one._replace(over=True) for one in of(session)])


def others_live(session: Session, process: ProcessNote | None) -> bool:
    """Return whether another process than the one given certainly runs the session."""
    return process is not None and any(
        one.certain and lives(one) for one in running(session) if not _same(one, process)
    )


def all_gone(known: Iterable[ProcessNote]) -> bool:
    """Return whether a session's processes are known, and all of them have ended."""
    known = list(known)
    return any(one.certain for one in known) and all(
        is_comparable(one) and not lives(one) for one in known
    )


def _same(one: ProcessNote, other: ProcessNote) -> bool:
    return one[:4] == other[:4]  # id, start, boot and namespace


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
    if process.agent:
        return None
    path = os.path.join(process.home, "sessions", f"{process.pid}.json")
    try:
        found = threads.disk.call(process.home, read_own, path)
    except BridgeError:  # it lies on a disk that does not answer
        return None
    about = found.get("sessionId"), found.get("pid")
    return found if about == (session_id, process.pid) else None
