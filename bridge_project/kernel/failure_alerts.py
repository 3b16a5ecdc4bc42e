"""Queue failures until `sessions_app.polling` notifies devices of them (D51)."""

import threading
import time
from collections import deque
from dataclasses import dataclass

from bridge_project.kernel import limits
from bridge_project.kernel.errors import ERRORS, ErrorCode


@dataclass(frozen=True, slots=True)
class Failure:
    row: ErrorCode
    reference: str  # which the log has too: the id of a request or message, or a chore's name
    session_id: str | None


_lock = threading.Lock()
_reported: dict[str, float] = {}  # code → when, by the clock that cannot be set
_waiting: deque[Failure] = deque(maxlen=len(ERRORS))


def report(code: str, reference: str = "", session_id: str | None = None) -> None:
    """Queue a failure; each code at most once in FAILURE_REPEAT_SECONDS.

    Ignore other severities, and codes that are notified elsewhere. Callable from any thread.
    """
    row = ERRORS[code]
    if row.severity != "error" or row.notified:
        return
    with _lock:
        now = time.monotonic()
        if now < _reported.get(code, -float("inf")) + limits.FAILURE_REPEAT_SECONDS:
            return
        _reported[code] = now
        _waiting.append(Failure(row, reference, session_id))


def drain() -> list[Failure]:
    """Return what has been queued since the last call."""
    with _lock:
        found = list(_waiting)
        _waiting.clear()
        return found


def forget(failure: Failure) -> None:
    """Let a code be reported again, because its last alert could not be sent."""
    with _lock:
        _reported.pop(failure.row.code, None)
