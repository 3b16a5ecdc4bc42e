"""Failures of severity ``error``: besides being logged, they are told to the devices, each code
once in some minutes (D51).

Every answer that has such a code comes by here, whichever way it goes out, and so does background
work that failed. Who can tell devices is registered by the room that can; until then, and in a
command that does not serve, nobody is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bridge_project.kernel import limits
from bridge_project.kernel.errors import ERRORS, ErrorCode


@dataclass(frozen=True, slots=True)
class Failure:
    """``reference``: what the log has it under: the id of a request or a message, the name of a
    piece of work.
    """

    row: ErrorCode
    reference: str = ""
    session_id: str | None = None


_lock = threading.Lock()
_told: dict[str, float] = {}  # code → when, by the clock that cannot be set
_tell: Callable[[Failure], None] | None = None


def tell_by(tell: Callable[[Failure], None] | None) -> None:
    """Name who tells the devices; None: nobody any more. ``tell`` is called from any thread,
    returns at once and raises nothing.
    """
    global _tell
    with _lock:
        _tell = tell
        _told.clear()


def happened(code: str, reference: str = "", session_id: str | None = None) -> None:
    """A failure was answered or logged. Callable from any thread; waits for nothing, raises
    nothing, and is nothing for other severities.
    """
    row = ERRORS[code]
    if row.severity != "error":
        return
    with _lock:
        tell, now = _tell, time.monotonic()
        if (
            tell is None
            or now - _told.get(code, -limits.FAILURE_TOLD_SECONDS) < limits.FAILURE_TOLD_SECONDS
        ):
            return
        _told[code] = now
    tell(Failure(row, reference, session_id))


def untold(failure: Failure) -> None:
    """It could not be told: the next of its kind is not one too many."""
    with _lock:
        _told.pop(failure.row.code, None)
