"""List the exceptions that mean Redis is unreachable, importing redis lazily.

The client takes 5 MB of memory, so it is imported only where Redis is in use.
"""


def redis_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a call while Redis is away, for ``except``."""
    from redis.exceptions import RedisError

    return (OSError, RedisError, TimeoutError)
