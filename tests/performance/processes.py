"""One process on SQLite, one on PostgreSQL and Redis, two on PostgreSQL and Redis: the same load on
each.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from tests.conformance.bridge import Bridge
from tests.performance.load import Flight, Outcome, Target, quantile
from tests.performance.report import Goal, Report, progress
from tests.performance.servers import SESSION, bridge, connect, directory, target
from tests.performance.sockets import Socket
from tests.servers import Postgres, Redis, stop_process

POSTERS = (1, 16, 64)
SOCKETS = 4  # half of them on each process
COLUMNS = (
    "posters",
    "bridge",
    "events/s",
    "200 p50 ms",
    "delivery p50 ms",
    "p99 ms",
    "CPU µs/event",
    "accepted",
    "lost",
    "doubled",
    "reordered",
    "refused",
)
SQLITE, ONE, TWO = (
    "1 process, SQLite",
    "1 process, PostgreSQL + Redis",
    "2 processes, PostgreSQL + Redis",
)
Key = tuple[int, str]


def measure(rounds: int, seconds: float) -> Report:
    flown: dict[Key, list[Outcome]] = defaultdict(list)
    with ExitStack() as stack:
        path = stack.enter_context(directory())
        postgres, redis = stack.enter_context(_servers(path))
        shared: dict[str, Any] = {
            "redis_url": redis.url,
            "database_url": postgres.create_database(),
        }
        first = stack.enter_context(bridge(path / "first", **shared))
        tokens: dict[str, Any] = {
            "BRIDGE_HOOK_TOKEN": first.hook_token,
            "BRIDGE_ADMIN_TOKEN": first.admin_token,
        }
        fleet = {
            SQLITE: [stack.enter_context(bridge(path / "sqlite"))],
            ONE: [
                stack.enter_context(
                    bridge(
                        path / "one",
                        redis_url=shared["redis_url"].removesuffix("0") + "1",
                        database_url=postgres.create_database(),
                    )
                )
            ],
            TWO: [first, stack.enter_context(bridge(path / "second", **shared, **tokens))],
        }
        asyncio.run(_measure(fleet, flown, rounds, seconds))
    return _report(flown, rounds)


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
        if redis.process is not None:
            stop_process(redis.process)


async def _measure(
    fleet: dict[str, list[Bridge]], flown: dict[Key, list[Outcome]], rounds: int, seconds: float
) -> None:
    ready: dict[str, tuple[Target, list[Socket]]] = {}
    for name, bridges in fleet.items():
        where = await asyncio.to_thread(target, *bridges)
        ready[name] = (
            where,
            [
                await connect(
                    bridges[n % len(bridges)],
                    await asyncio.to_thread(bridges[0].device_token),
                    SESSION,
                )
                for n in range(SOCKETS)
            ],
        )
    for number in range(rounds):
        for posters in POSTERS:
            for name, (where, sockets) in ready.items():
                flown[posters, name].append(await Flight(where, sockets).run(posters, seconds))
        progress(f"processes: round {number + 1} of {rounds}")
    for _, sockets in ready.values():
        for opened in sockets:
            opened.close()


def _report(flown: dict[Key, list[Outcome]], rounds: int) -> Report:
    about = f"{SOCKETS} sockets on one session, {rounds} interleaved rounds, medians; everything on one machine, the databases and the generator too"
    report = Report("processes", about, COLUMNS)
    for (posters, name), outcomes in flown.items():
        times = [
            median(values)
            for values in zip(
                *(
                    (quantile(o.ack, 0.5), quantile(o.delivery, 0.5), quantile(o.delivery, 0.99))
                    for o in outcomes
                ),
                strict=True,
            )
        ]
        counts = [
            sum(getattr(o, what) for o in outcomes)
            for what in ("accepted", "lost", "doubled", "reordered", "errors")
        ]
        report.add(
            posters,
            name,
            median(o.rate for o in outcomes),
            *times,
            median(o.cpu for o in outcomes),
            *counts,
        )
    wrong = sum(
        o.lost + o.doubled + o.reordered + o.errors for outcomes in flown.values() for o in outcomes
    )
    report.goals.append(Goal("lost, doubled, reordered or refused, in all of them", wrong, 0))
    for posters in POSTERS:
        for one, other in ((TWO, ONE), (ONE, SQLITE), (TWO, SQLITE)):
            ratio = median(o.rate for o in flown[posters, one]) / median(
                o.rate for o in flown[posters, other]
            )
            report.notes.append(
                f"  {posters} posters, {one}: {ratio:.2f} times the events a second of {other}"
            )
    report.notes.append("  CPU: of the bridge's processes alone")
    return report
