"""kill -9 of two processes that are one bridge: test_kill_one.py with a neighbour (D46)."""

from pathlib import Path

import pytest

from tests.faults.quick import QuickBridge
from tests.faults.test_kill_one import survive
from tests.servers import Postgres, Redis

pytestmark = pytest.mark.slow


def test_two_processes(
    tmp_path: Path, postgres_server: Postgres, redis_server: Redis, instants: int, seed: str
) -> None:
    """PostgreSQL and Redis; posters and phones go on with the other process (D46)."""
    url = postgres_server.create_database()
    with (
        QuickBridge(
            tmp_path / "first", database_url=url, redis_url=redis_server.create_database()
        ) as first,
        first.beside(tmp_path / "second") as second,
    ):
        survive([first, second], instants, seed)
