"""List the exceptions that mean Redis is unreachable."""


def redis_errors() -> tuple[type[Exception], ...]:
    from redis.exceptions import RedisError  # 5 MB of memory: only where Redis is in use

    return (OSError, RedisError)
