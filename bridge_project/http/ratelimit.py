"""Limit requests and failed authentications across processes (D16, D17, D46).

The functions may talk to Redis: on an event loop, call them in a thread.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import structlog
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django_ratelimit.core import get_usage

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.redis import redis_errors
from bridge_project.kernel.text import network_of

log = structlog.get_logger("bridge.ratelimit")

T = TypeVar("T")

REDIS_PAUSE_SECONDS: Final = 5  # after a failure, so that few requests wait for Redis' time-out
REDIS_LOG_SECONDS: Final = 60
WINDOW_SECONDS: Final = 60  # of every rate in ``limits.RATES``


def check(group: str, token: str | None, address: str) -> None:
    """Count a request against the rate `group`, a key of `limits.RATES`.

    It counts for `token`, a principal's `rate_key`, or without a valid one for the address. Raises
    BridgeError RATE_LIMIT_EXCEEDED with `retry_after`.
    """
    if not conf.rate_limits_on:
        return
    counted = f"address {network_of(address)}" if token is None else f"token {token}"
    usage = get_usage(
        None,
        group=group,
        key=lambda _group, _request: counted,
        rate=limits.RATES[group],
        increment=True,
    )
    if usage["should_limit"]:
        # At the second that `time_left` names, the window is still the old one.
        raise too_many("", usage["time_left"] + 1)


def too_many(message: str, seconds: int) -> BridgeError:
    """Make the error, with the time to wait in a field and in `Retry-After`."""
    headers = {"Retry-After": str(seconds)}
    return BridgeError("RATE_LIMIT_EXCEEDED", message, headers=headers, retry_after=seconds)


class MessageBudget:
    """Count the messages of one connection in windows of a minute (D17)."""

    def __init__(self) -> None:
        self._most = int(limits.RATES["ws.messages"].partition("/")[0])
        self._window_ends = 0.0
        self._taken = 0

    def take(self) -> int | None:
        """Count a message; return None, or the whole seconds to wait."""
        if not conf.rate_limits_on:
            return None
        now = time.monotonic()
        if now >= self._window_ends:
            self._window_ends = now + WINDOW_SECONDS
            self._taken = 0
        if self._taken < self._most:
            self._taken += 1
            return None
        return max(1, round(self._window_ends - now))


class FallbackCache(BaseCache):
    """Use the shared cache, and this process's own while Redis is away (D46)."""

    unreachable_until = 0.0
    logged_at = float("-inf")

    def __init__(self, _location: str, params: dict[str, Any]) -> None:
        super().__init__(params)

    def get(self, *args: Any, **options: Any) -> Any:
        return _either(lambda cache: cache.get(*args, **options))

    def set(self, *args: Any, **options: Any) -> None:
        _either(lambda cache: cache.set(*args, **options))

    def add(self, *args: Any, **options: Any) -> bool:
        return _either(lambda cache: cache.add(*args, **options))

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        def increment(cache: BaseCache) -> int:
            # Redis may have gone, or come back empty, since `add`
            cache.add(key, 0, 2 * WINDOW_SECONDS, version)
            return cache.incr(key, delta, version)

        return _either(increment)


@functools.cache
def shared_cache() -> BaseCache:
    """Make the shared cache once; Django would make one for each request."""
    return caches.create_connection("default")


def _either(use: Callable[[BaseCache], T]) -> T:
    now = time.monotonic()
    if now >= FallbackCache.unreachable_until:
        try:
            return use(shared_cache())
        except redis_errors() as error:
            FallbackCache.unreachable_until = now + REDIS_PAUSE_SECONDS
            if now - FallbackCache.logged_at >= REDIS_LOG_SECONDS:
                FallbackCache.logged_at = now
                effect = "each process counts rate limits by itself"
                log.warning("redis_unreachable", effect=effect, error=str(error))
    return use(caches["local"])
