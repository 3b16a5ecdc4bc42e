"""Stop starting a failing agent for a while: a circuit breaker (SPEC Limits; D48)."""

import time

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError

log = structlog.get_logger("bridge.agent")


class Breaker:
    """Count the failures of one kind of agent in this process.

    It opens after 5 failures in a row to start or of the process; a turn that fails is none. After
    60 seconds one start is let through as a probe: it closes the breaker, or keeps it open for
    another 60. A scripted agent is not ``counted``.
    """

    def __init__(self, name: str, *, counted: bool) -> None:
        self.failures = 0
        self._name = name
        self._counted = counted
        self._opened: float | None = None

    def seconds_left(self) -> float:
        """Return how long starts are refused; 0 when it is closed, or a probe is due."""
        if self._opened is None:
            return 0
        return max(0, self._opened + limits.CIRCUIT_BREAKER_PROBE_SECONDS - time.monotonic())

    def check(self) -> None:
        """Allow a start, whose outcome the caller reports. Raises CIRCUIT_OPEN."""
        if left := self.seconds_left():
            wait = max(1, round(left))
            words = f"The agent {self._name} failed {self.failures} times; try again in {wait} s."
            raise BridgeError("CIRCUIT_OPEN", words, details={"retry_after": wait})
        if self._opened is not None:
            self._opened = time.monotonic()  # this one is the probe, and no other

    def succeeded(self) -> None:
        """Close the breaker: the agent has started."""
        if self._opened is not None:
            log.info("breaker_closed", agent=self._name)
        self.failures, self._opened = 0, None

    def failed(self) -> None:
        """Count a failure, and open after too many."""
        if not self._counted:
            return
        self.failures += 1
        if self.failures >= limits.CIRCUIT_BREAKER_FAILURES:
            if self._opened is None:
                log.critical("breaker_opened", agent=self._name, failures=self.failures)
            self._opened = time.monotonic()


_breakers: dict[str, Breaker] = {}


def of(name: str, *, counted: bool) -> Breaker:
    """Return the breaker of a kind of agent."""
    return _breakers.setdefault(name, Breaker(name, counted=counted))


def check() -> str | None:
    """Return the open breakers for /health."""
    found = [name for name, breaker in _breakers.items() if breaker.seconds_left()]
    return f"breaker open: {', '.join(found)}" if found else None
