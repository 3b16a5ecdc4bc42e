"""The circuit breaker of real agents: one that keeps failing is left alone for a while (SPEC
Limits; D48).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError

log = structlog.get_logger("bridge.agent")


class Breaker:
    """Of one kind of agent, in one process. Opens after 5 failures in a row to start or of the
    process; a turn that fails is none of them.

    After 60 seconds one start is let through as a probe: it closes the breaker, or keeps it open
    for another 60.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._opened: float | None = None
        self._probing = False

    @property
    def open(self) -> bool:
        """Whether starts are refused now; when a probe is due it is half open."""
        return self._opened is not None and (self._probing or self._left() > 0)

    def _left(self) -> float:
        assert self._opened is not None
        return self._opened + limits.CIRCUIT_BREAKER_PROBE_SECONDS - self._clock()

    def enter(self) -> None:
        """A start is about to be tried; ``succeeded``, ``failed`` or ``gave_up`` must follow.
        Raises BridgeError CIRCUIT_OPEN.
        """
        if self.open:
            wait = max(1, round(self._left()))
            raise BridgeError(
                "CIRCUIT_OPEN",
                f"The agent {self._name} failed {self._failures} times; try again in {wait} s.",
                details={"retry_after": wait},
            )
        self._probing = self._opened is not None

    def succeeded(self) -> None:
        if self._opened is not None:
            log.info("breaker_closed", agent=self._name)
        self._failures, self._opened, self._probing = 0, None, False

    def failed(self) -> None:
        self._failures += 1
        self._probing = False
        if self._failures >= limits.CIRCUIT_BREAKER_FAILURES:
            if self._opened is None:
                log.critical("breaker_opened", agent=self._name, failures=self._failures)
            self._opened = self._clock()

    def gave_up(self) -> None:
        """The start was cancelled: it says nothing of the agent."""
        self._probing = False


_breakers: dict[str, Breaker] = {}


def of(name: str) -> Breaker:
    return _breakers.setdefault(name, Breaker(name))


class Attempt:
    """A start of an agent, as its breaker counts it, if it does. Raises BridgeError CIRCUIT_OPEN on
    entering.
    """

    def __init__(self, name: str, *, counted: bool) -> None:
        self._breaker = of(name) if counted else None
        self._settled = False

    def __enter__(self) -> Attempt:
        if self._breaker is not None:
            self._breaker.enter()
        return self

    def succeeded(self) -> None:
        self._settled = True
        if self._breaker is not None:
            self._breaker.succeeded()

    def failed(self) -> None:
        self._settled = True
        if self._breaker is not None:
            self._breaker.failed()

    def __exit__(self, *_: object) -> None:
        if not self._settled and self._breaker is not None:
            self._breaker.gave_up()


def check() -> str | None:
    """For /health: which breakers are open."""
    found = [name for name, breaker in _breakers.items() if breaker.open]
    return f"breaker open: {', '.join(found)}" if found else None
