"""How it shows that Redis is away. Its client takes 5 MB of memory, so it is imported where Redis is in use and nowhere else."""

from __future__ import annotations

import socket
from typing import Any, Final
from urllib.parse import urlsplit

from bridge_project import limits

# A subscriber sends nothing that could fail: without these, one whose network was cut without a word would listen to nobody for long. The last is for
# what was sent and is not confirmed. Named as the system knows them; one that has none of them keeps its own ways.
_TCP: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 5000}


def redis_errors() -> tuple[type[Exception], ...]:
    """What a call to Redis raises while it cannot be reached; for an ``except``, which asks only when something was raised."""
    from redis.exceptions import RedisError

    return (OSError, RedisError, TimeoutError)


def redis_host(url: str) -> dict[str, Any]:
    """A host for the channel layer whose connections notice within ten seconds that nobody is there any more; the layer then makes new ones."""
    if urlsplit(url).scheme == "unix":  # no network in between
        return {"address": url}
    options = {getattr(socket, name): value for name, value in _TCP.items() if hasattr(socket, name)}
    return {"address": url, "socket_connect_timeout": limits.REDIS_SECONDS, "socket_keepalive": True, "socket_keepalive_options": options}
