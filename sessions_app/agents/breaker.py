"""Stop starting a failing agent for a while: a circuit breaker (SPEC Limits; D48)."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError

log = structlog.get_logger("bridge.agent")


class Breaker:
    """Count the failures of one kind of agent in this process.

    It opens after 5 failures in a row, of a start or the process; a failed turn is none. After
    60 seconds one start is let through as a probe: it closes the breaker, or keeps it open for
    another 60. A start does not make up for a process that died, a turn does. A scripted agent is
    not ``counted``.
    """

    def __init__(self, name: str, *, counted: bool) -> None:
        self.failures = self._deaths = 0
        self._name = name
        self._counted = counted
        self._opened: float | None = None
        self._probing = False

    @property
    def open(self) -> bool:
        """Return whether starts are refused now; not when a probe is due."""
        return self._opened is not None and (self._probing or self._seconds_left() > 0)

    def _seconds_left(self) -> float:
        return (self._opened or 0) + limits.CIRCUIT_BREAKER_PROBE_SECONDS - time.monotonic()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Allow a start. Raises BridgeError CIRCUIT_OPEN.

        The caller reports ``started`` or ``failed``; without either, the next start is the probe.
        """
        if self.open:
            wait = max(1, round(self._seconds_left()))
            words = f"The agent {self._name} failed {self.failures} times; try again in {wait} s."
            raise BridgeError("CIRCUIT_OPEN", words, details={"retry_after": wait})
        is_probe = self._opened is not None
        self._probing |= is_probe
        try:
            yield
        finally:
            if is_probe:
                self._probing = False

    def started(self) -> None:
        """Close the breaker, and forget failures to start."""
        if self._opened is not None:
            if not self._probing:
                return  # it began before the breaker opened
            log.info("breaker_closed", agent=self._name)
        self.failures, self._opened = self._deaths, None

    def answered(self) -> None:
        """Forget the deaths: a turn has ended."""
        if self._opened is None:
            self.failures -= self._deaths
        self._deaths = 0

    def failed(self, *, died: bool = False) -> None:
        """Count a failure, and open after too many."""
        if not self._counted:
            return
        self._deaths += died
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
    found = [name for name, breaker in _breakers.items() if breaker.open]
    return f"breaker open: {', '.join(found)}" if found else None
