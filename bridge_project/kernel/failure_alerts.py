"""Queue failures of severity `error`; `sessions_app.polling` notifies (D51)."""

import threading
import time
from collections import deque
from dataclasses import dataclass

from bridge_project.kernel import limits
from bridge_project.kernel.errors import ERRORS, ErrorCode


@dataclass(frozen=True, slots=True)
class Failure:
    """Hold a failure, with its request, message or chore to `reference` in the log."""

    row: ErrorCode
    reference: str = ""
    session_id: str | None = None


_lock = threading.Lock()
_reported: dict[str, float] = {}  # code → when, by the clock that cannot be set
_waiting: deque[Failure] = deque(maxlen=len(ERRORS))


def report(code: str, reference: str = "", session_id: str | None = None) -> None:
    """Queue a failure, each code once in FAILURE_REPEAT_SECONDS; thread-safe."""
    row = ERRORS[code]
    if row.severity != "error" or row.notified:
        return
    with _lock:
        now = time.monotonic()
        if now < _reported.get(code, -float("inf")) + limits.FAILURE_REPEAT_SECONDS:
            return
        _reported[code] = now
        _waiting.append(Failure(row, reference, session_id))


def take() -> list[Failure]:
    with _lock:
        found = list(_waiting)
        _waiting.clear()
        return found


def forget(failure: Failure) -> None:
    """Allow the next failure of this code: this one could not be sent."""
    with _lock:
        _reported.pop(failure.row.code, None)


def reset() -> None:
    """Forget all reports, when the process begins to serve."""
    with _lock:
        _waiting.clear()
        _reported.clear()
