"""List the exceptions that mean Redis is unreachable, importing redis lazily.

The client takes 5 MB of memory, so it is imported only where Redis is in use.
"""

from __future__ import annotations


def redis_errors() -> tuple[type[Exception], ...]:
    """Return what a call raises while Redis is away, for an ``except`` clause."""
    from redis.exceptions import RedisError

    return (OSError, RedisError, TimeoutError)
