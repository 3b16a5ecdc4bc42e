"""One process on SQLite, one on PostgreSQL and Redis, two on PostgreSQL and Redis: the same load on
each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.conformance.bridge import Bridge
from tests.performance.compare import COLUMNS, Fleet, compare
from tests.performance.report import Report
from tests.performance.servers import SESSION, bridge, connect, directory, target
from tests.servers import Postgres, Redis

SOCKETS = 4  # half of them on each process
SQLITE, ONE, TWO = "SQLite", "PostgreSQL + Redis", "2 processes, PostgreSQL + Redis"


def measure(rounds: int, seconds: float) -> Report:
    about = f"{SOCKETS} sockets on one session, {rounds} interleaved rounds, medians; everything on one machine, the databases and the generator too; CPU: of the bridge's processes alone"
    report = Report("processes", about, COLUMNS)
    with ExitStack() as stack:
        path = stack.enter_context(directory())
        postgres, redis = stack.enter_context(_servers(path))
        shared: dict[str, Any] = {
            "redis_url": redis.url,
            "database_url": postgres.create_database(),
        }
        alone: dict[str, Any] = {
            "redis_url": redis.url.removesuffix("0") + "1",
            "database_url": postgres.create_database(),
        }
        first = stack.enter_context(bridge(path / "first", **shared))
        shared |= {"BRIDGE_HOOK_TOKEN": first.hook_token, "BRIDGE_ADMIN_TOKEN": first.admin_token}
        fleet = {
            SQLITE: [stack.enter_context(bridge(path / "sqlite"))],
            ONE: [stack.enter_context(bridge(path / "one", **alone))],
            TWO: [first, stack.enter_context(bridge(path / "second", **shared))],
        }
        asyncio.run(_measure(report, fleet, rounds, seconds))
    return report


@contextmanager
def _servers(path: Path) -> Iterator[tuple[Postgres, Redis]]:
    for name in ("postgres", "redis"):
        (path / name).mkdir()
    path.chmod(0o755)  # an unprivileged PostgreSQL must get through it
    postgres, redis = Postgres(path / "postgres", fsync=True), Redis(path / "redis")
    try:
        postgres.start()
        redis.start()
        yield postgres, redis
    finally:
        postgres.stop()
        redis.stop()


async def _measure(
    report: Report, bridges: dict[str, list[Bridge]], rounds: int, seconds: float
) -> None:
    fleet: Fleet = {}
    for name, ours in bridges.items():
        where, tokens = target(*ours), [ours[0].device_token() for _ in range(SOCKETS)]
        fleet[name] = (
            where,
            [await connect(ours[n % len(ours)], t, SESSION) for n, t in enumerate(tokens)],
        )
    ratios = [(TWO, ONE), (ONE, SQLITE), (TWO, SQLITE)]
    await compare(report, fleet, rounds, seconds, ours=list(fleet), ratios=ratios)
