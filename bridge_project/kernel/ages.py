"""Tell the time that ages are counted with, so that nothing becomes old by a clock that is set.

What is kept for a day is deleted by the chores of the serving process. A clock that is set forward
by a year would make all of it old at once: what no device has been sent yet, approvals that are
open, the ids of events that may be posted again.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from bridge_project.kernel import limits

SET_SECONDS: Final = 60.0  # gained or lost between two looks, by a clock that nobody set: less
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # it counts sleep too


class AgeClock:
    """Follow the clock, but not where it is set forward: that is believed a day later.

    By then what was stored before is as old as it is kept for. A clock that is set back in that
    time takes its jump with it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset = self._measure()
        self._withheld = 0.0  # seconds that the clock was set forward and nothing has aged by
        self._set_at = 0.0

    @staticmethod
    def _measure() -> float:
        return time.time() - time.clock_gettime(_STEADY)

    def now(self) -> datetime:
        """Return the time up to which ages are counted."""
        with self._lock:
            offset, steady = self._measure(), time.clock_gettime(_STEADY)
            gained, self._offset = offset - self._offset, offset
            if abs(gained) > SET_SECONDS:
                self._withheld = max(0.0, self._withheld + gained)
                self._set_at = steady
            elif steady - self._set_at > limits.SET_CLOCK_BELIEVED_SECONDS:
                self._withheld = 0.0
            return datetime.now(UTC) - timedelta(seconds=self._withheld)


ages = AgeClock()
