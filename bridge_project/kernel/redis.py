"""List the exceptions that mean Redis is unreachable; importing redis takes 5 MB."""


def redis_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a call while Redis is away, for ``except``."""
    from redis.exceptions import RedisError

    return (OSError, RedisError, TimeoutError)
