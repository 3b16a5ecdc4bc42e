"""kill -9 at random instants of two processes that are one bridge, under 64 posters and 5 phones:
as in test_kill_one.py, and with a neighbour (D46).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.killing import survive
from tests.faults.quick import QuickBridge
from tests.servers import Postgres, Redis

pytestmark = pytest.mark.slow


def test_two_processes(
    make_quick: Callable[..., QuickBridge],
    postgres_server: Postgres,
    redis_server: Redis,
    instants: int,
    seed: str,
) -> None:
    """PostgreSQL and Redis: either process is killed, sometimes both; posters and phones go on with
    the other one (D46).
    """
    more = {"database_url": postgres_server.create_database(), "redis_url": redis_server.url}
    first = make_quick("first", start=False, **more)
    second = make_quick(
        "second",
        start=False,
        BRIDGE_HOOK_TOKEN=first.hook_token,
        BRIDGE_ADMIN_TOKEN=first.admin_token,
        **more,
    )
    survive([first, second], instants, seed)
