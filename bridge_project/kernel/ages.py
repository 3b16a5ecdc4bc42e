"""Provide the clock for expiry; a jump forward takes effect a day later.

Otherwise unsent rows, open approvals and the ids of hook events would expire at once.
"""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from bridge_project.kernel import limits

SET_SECONDS: Final = 60.0  # gained or lost between two looks, by a clock that nobody set: less
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # it counts sleep too


class AgeClock:
    """Follow the machine's clock, but apply a jump forward only a day later.

    By then all data stored before the jump has reached its age. A clock that is set back within the
    day cancels its jump.
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
        """Return the time (UTC) to compare rows' timestamps with, to expire them."""
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
