"""How it shows that Redis is away. Its client takes 5 MB of memory, so it is imported where Redis
is in use and nowhere else.
"""

from __future__ import annotations


def redis_errors() -> tuple[type[Exception], ...]:
    """What a call to Redis raises while it cannot be reached; for an ``except``, which asks only
    when something was raised.
    """
    from redis.exceptions import RedisError

    return (OSError, RedisError, TimeoutError)
