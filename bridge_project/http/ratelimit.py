"""Rate limits and the count of failed authentications, shared by all processes while Redis is there
(D16, D17, D46).

Everything here takes plain addresses and never a request, so that WebSockets are counted by the
same rules. The functions may talk to Redis: on an event loop, call them in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

import structlog
from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django_ratelimit.core import get_usage

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.redis import redis_errors
from bridge_project.kernel.text import network_of

log = structlog.get_logger("bridge.ratelimit")

T = TypeVar("T")

# after a failure Redis is left alone for so long, so that no request waits for its time-out
REDIS_PAUSE_SECONDS: Final = 5
REDIS_LOG_SECONDS: Final = 60
WINDOW_SECONDS: Final = 60  # of every rate in ``limits.RATES``


class Keyed(Protocol):
    """Somebody whose requests are counted together: ``devices_app.tokens.Principal``."""

    @property
    def rate_key(self) -> str: ...


def check(group: str, principal: Keyed | None, address: str) -> None:
    """Count a request of ``group`` (a key of ``limits.RATES``): for the principal, or for the
    address where there is none.

    Raises BridgeError RATE_LIMIT_EXCEEDED with ``retry_after`` (whole seconds, also as
    ``Retry-After``).
    """
    _count(
        group,
        f"token {principal.rate_key}"
        if principal is not None
        else f"address {network_of(address)}",
    )


def failed_authentication(address: str) -> None:
    """Count a failed authentication. Raises BridgeError RATE_LIMIT_EXCEEDED once the address has
    failed too often in a minute (D16).

    Only failures ask: a correct token from a locked-out address works.
    """
    _count("failed-auth", f"address {network_of(address)}")


def upgrade_allowed(address: str) -> bool:
    """Count an upgrade of /ws. True, or raises BridgeError RATE_LIMIT_EXCEEDED (D17)."""
    _count("ws", f"address {network_of(address)}")
    return True


def too_many(message: str, seconds: int) -> BridgeError:
    """Make the refusal that says when to try again: in a field, and as ``Retry-After``."""
    headers = {"Retry-After": str(seconds)}
    return BridgeError("RATE_LIMIT_EXCEEDED", message, headers=headers, retry_after=seconds)


def _count(group: str, value: str) -> None:
    if not conf.rate_limits_on:
        return
    usage = get_usage(
        None,
        group=group,
        key=lambda _group, _request: value,
        rate=limits.RATES[group],
        increment=True,
    )
    if usage["should_limit"]:
        # At the second that `time_left` names, the window is still the old one.
        raise too_many("", usage["time_left"] + 1)


class MessageBudget:
    """How many messages one connection may still send, in windows of a minute that begin with its
    first message (D17).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._most = int(limits.RATES["ws.messages"].partition("/")[0])
        self._window_ends = 0.0
        self._taken = 0

    def take(self) -> int | None:
        """Count a message: None when it may be acted on, else the whole seconds to wait."""
        if not conf.rate_limits_on:
            return None
        now = self._clock()
        if now >= self._window_ends:
            self._window_ends = now + WINDOW_SECONDS
            self._taken = 0
        if self._taken < self._most:
            self._taken += 1
            return None
        return max(1, round(self._window_ends - now))


class SteadyCache(BaseCache):
    """The cache that django-ratelimit counts in: the shared one, and while that cannot be reached
    this process's own (D46).
    """

    def __init__(self, _location: str, params: dict[str, Any]) -> None:
        super().__init__(params)

    def add(
        self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        return _either(lambda cache: cache.add(key, value, timeout, version))

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        def increment(cache: BaseCache) -> int:
            # Redis may have gone, or come back empty, since ``add``
            cache.add(key, 0, 2 * WINDOW_SECONDS, version)
            return cache.incr(key, delta, version)

        return _either(increment)

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        return _either(lambda cache: cache.get(key, default, version))


class _Shared:
    """The shared cache, made once: Django makes one for each request, and with it a connection to
    Redis. Both backends are safe between threads.
    """

    def __init__(self) -> None:
        self.away_until = 0.0
        self.said_at = float("-inf")

    @cached_property
    def cache(self) -> BaseCache:
        return caches.create_connection("default")

    def lost(self, error: Exception) -> None:
        now = time.monotonic()
        self.away_until = now + REDIS_PAUSE_SECONDS
        if now - self.said_at >= REDIS_LOG_SECONDS:
            self.said_at = now
            log.warning(
                "redis_unreachable",
                effect="each process counts rate limits by itself",
                error=str(error),
            )


_shared = _Shared()


def _either(use: Callable[[BaseCache], T]) -> T:
    if time.monotonic() >= _shared.away_until:
        try:
            return use(_shared.cache)
        except redis_errors() as error:
            _shared.lost(error)
    return use(caches["local"])
