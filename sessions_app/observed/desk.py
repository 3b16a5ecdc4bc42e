"""See which programs at the desk run a session; end one when told to (D67)."""

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import psutil

from bridge_project.kernel import limits, ways
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.process_note import ProcessNote
from bridge_project.kernel.processes import is_comparable, lives, owner_of
from sessions_app.agents.process.launch import AGENT_RUN, IN_SESSION
from sessions_app.models import Session
from sessions_app.observed import processes

# Ids of sessions that this process takes over: the SessionEnd of a program that is being ended is
# no end of its session.
taking: set[str] = set()

NONE_KNOWN = "Nothing says which program runs it."
OTHER = "Another program runs this session at the machine."
STOPPED = (
    "Its program is stopped (Ctrl-Z), and would end only when it goes on. Type fg in its terminal,"
    " or end it there."
)
ELSEWHERE = "Its program runs in a container or on another machine, or ran before a restart."


class CannotEnd(Exception):
    """Report in words why a program is not ended, or has not ended."""


def error(session_id: str, why: str, status: str = "unknown") -> BridgeError:
    """Make the error that a program at the desk, at work on ``status``, has a session."""
    return BridgeError("SESS_AT_THE_DESK", why, session_id=session_id, details={"status": status})


def unseen(session: Session) -> str:
    """Return why it cannot be seen whether a program runs the session; "" if it can."""
    known = processes.of(session)
    if not any(one.certain or one.over for one in known):
        return NONE_KNOWN
    if not all(one.over or is_comparable(one) for one in known):
        return ELSEWHERE
    return ""


def living(session: Session) -> list[ProcessNote]:
    """Return the known programs that run the session now."""
    return [one for one in processes.running(session) if lives(one)]


def writes(process: ProcessNote | None) -> bool:
    """Return whether a hook's program lives, and is none that a bridge has started."""
    return process is not None and lives(process) and not is_ours(process.pid)


def is_ours(pid: int) -> bool:
    """Return whether a bridge has started a process, or one that it descends from."""
    try:
        found = psutil.Process(pid)
        return any(one.pid == os.getpid() or _is_marked(one) for one in (found, *found.parents()))
    except psutil.NoSuchProcess:
        return False


def _is_marked(process: psutil.Process) -> bool:
    try:
        return not {AGENT_RUN, IN_SESSION}.isdisjoint(process.environ())
    except (psutil.Error, OSError):  # another user's, or gone
        return False


async def end(process: ProcessNote, is_program: Callable[[int], bool]) -> None:
    """End a program by SIGTERM, and wait for its end. Raises CannotEnd.

    It is held first, then compared with what the hook has noted: so no other process that got its
    id is ever ended. Linux holds it by a descriptor; in the portable way psutil compares its start
    once more just before.
    """
    by = _Held if ways.linux["programs"] else _Known
    with suppress(ProcessLookupError, psutil.NoSuchProcess), by(process.pid) as held:
        if not lives(process):
            return
        check(process, is_program)
        held.terminate()
        if not await asyncio.to_thread(held.has_ended):
            seconds = f"{limits.PROGRAM_END_SECONDS:g}"
            words = f"Its program was told to end, and has not within {seconds} seconds."
            raise CannotEnd(f"{words} End it at the machine.")


def check(process: ProcessNote, is_program: Callable[[int], bool]) -> None:
    """Check that a program may be ended, and can be. Raises CannotEnd.

    A stopped one keeps the signal until `fg`, and would end then, whatever was said meanwhile. To
    let it go on is no help: beside its terminal's shell it is stopped again as it leaves.
    """
    pid = process.pid
    try:
        owner = owner_of(pid)
        if pid in {os.getpid(), *(one.pid for one in psutil.Process().parents())}:
            raise CannotEnd("The bridge itself was started by its program. End it at the machine.")
        if owner != os.geteuid() or not is_program(pid):
            raise CannotEnd("It is not sure which program runs it. End that at the machine.")
        if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
            raise CannotEnd(STOPPED)
    except (FileNotFoundError, psutil.NoSuchProcess):  # it has just ended
        return


class _Known(AbstractContextManager["_Known"]):
    """Know a process by its id and start."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    def __exit__(self, *_: object) -> None:
        pass

    def terminate(self) -> None:
        self._process.terminate()

    def has_ended(self) -> bool:
        """Wait for its end; return whether it has come in time."""
        try:
            self._process.wait(limits.PROGRAM_END_SECONDS)
        except psutil.TimeoutExpired:
            return False
        return True


class _Held(_Known):
    """Hold a process by a descriptor, which means no other one."""

    _held: int

    def __init__(self, pid: int) -> None:
        if sys.platform == "linux":
            self._held = os.pidfd_open(pid)

    def __exit__(self, *_: object) -> None:
        os.close(self._held)

    def terminate(self) -> None:
        if sys.platform == "linux":
            signal.pidfd_send_signal(self._held, signal.SIGTERM)

    def has_ended(self) -> bool:
        poll = select.poll()
        poll.register(self._held, select.POLLIN)
        return bool(poll.poll(1000 * limits.PROGRAM_END_SECONDS))
