"""kill -9 at random instants of two processes that are one bridge: as in test_kill_one.py, and with a
neighbour (D46).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.killing import survive
from tests.faults.quick import QuickBridge
from tests.servers import Postgres, Redis

pytestmark = pytest.mark.slow


def test_two_processes(
    tmp_path: Path, postgres_server: Postgres, redis_server: Redis, instants: int, seed: str
) -> None:
    """PostgreSQL and Redis: either process is killed, sometimes both; posters and phones go on with
    the other one (D46).
    """
    url = postgres_server.create_database()
    with (
        QuickBridge(tmp_path / "first", database_url=url, redis_url=redis_server.url) as first,
        first.beside(tmp_path / "second") as second,
    ):
        survive([first, second], instants, seed)
