"""The same load on several servers in turns, round after round: a row each, and their ratios."""

import asyncio
from collections import defaultdict
from contextlib import ExitStack
from statistics import median
from typing import Any

from tests.conformance.bridge import Bridge
from tests.performance.load import Flight, Outcome, Target
from tests.performance.report import Report, progress
from tests.performance.servers import SESSION, bridge, connect, directory, target, tutorial
from tests.performance.sockets import Socket
from tests.servers import Postgres, Redis

POSTERS = (1, 16, 64)
COLUMNS = (
    "posters | server | events/s | 200 p50 ms | delivery p50 ms | p99 ms | CPU µs/event"
    " | accepted | lost, doubled, reordered, refused"
)
FIGURES = ("rate", "ack_p50", "delivery_p50", "delivery_p99", "cpu")
Fleet = dict[str, tuple[Target, list[Socket]]]


def events(rounds: int, seconds: float) -> Report:
    """How many events a second, how soon, at what cost, beside the tutorials' service."""
    report = Report("events", "5 sockets on one session, interleaved rounds, medians", COLUMNS)

    async def measure(ours: Bridge, yardstick: Target) -> None:
        others = [await Socket.open(yardstick.ports[0], f"/ws/{SESSION}") for _ in range(5)]
        fleet: Fleet = {"bridge": await _sockets([ours], 5), "tutorial": (yardstick, others)}
        await _compare(report, fleet, rounds, seconds, [("bridge", "tutorial")])

    with (
        directory() as path,
        bridge(path / "bridge") as ours,
        tutorial(path) as yardstick,
    ):
        asyncio.run(measure(ours, yardstick))
    return report


def processes(rounds: int, seconds: float) -> Report:
    """One process on SQLite, one on PostgreSQL and Redis, two on PostgreSQL and Redis."""
    report = Report("processes", "4 sockets on one session, interleaved rounds, medians", COLUMNS)
    sqlite, one, two = "SQLite", "PostgreSQL + Redis", "2 processes, PostgreSQL + Redis"

    async def measure(bridges: dict[str, list[Bridge]]) -> None:
        fleet = {name: await _sockets(some, 4) for name, some in bridges.items()}
        await _compare(report, fleet, rounds, seconds, [(two, one), (one, sqlite), (two, sqlite)])

    with ExitStack() as stack:
        path = stack.enter_context(directory())
        for name in ("postgres", "redis"):
            (path / name).mkdir()
        path.chmod(0o755)  # an unprivileged PostgreSQL must get through it
        postgres, redis = Postgres(path / "postgres", fsync=True), Redis(path / "redis")
        for server in (postgres, redis):
            stack.callback(server.stop)
            server.start()

        def start(name: str, number: int, **more: Any) -> Bridge:
            url = redis.url[:-1] + str(number)
            return stack.enter_context(bridge(path / name, redis_url=url, **more))

        shared = {"database_url": postgres.create_database()}
        first = start("first", 0, **shared)
        shared |= {"BRIDGE_HOOK_TOKEN": first.hook_token, "BRIDGE_ADMIN_TOKEN": first.admin_token}
        bridges = {
            sqlite: [stack.enter_context(bridge(path / "sqlite"))],
            one: [start("one", 1, database_url=postgres.create_database())],
            two: [first, start("second", 0, **shared)],
        }
        asyncio.run(measure(bridges))
    return report


async def _sockets(bridges: list[Bridge], count: int) -> tuple[Target, list[Socket]]:
    where, tokens = target(*bridges), [bridges[0].device_token() for _ in range(count)]
    return where, [
        await connect(bridges[number % len(bridges)], token, SESSION)
        for number, token in enumerate(tokens)
    ]


async def _compare(
    report: Report, fleet: Fleet, rounds: int, seconds: float, ratios: list[tuple[str, str]]
) -> None:
    """Fill the report. Of what bridges were sent nothing may be lost."""
    flown: dict[tuple[int, str], list[Outcome]] = defaultdict(list)
    for number in range(rounds):
        for posters in POSTERS:
            for name, (where, sockets) in fleet.items():
                flown[posters, name].append(await Flight(where, sockets).run(posters, seconds))
        progress(f"{report.name}: round {number + 1} of {rounds}")
    for posters in POSTERS:
        figures: dict[str, list[float]] = {}
        for name in fleet:
            outcomes = flown[posters, name]
            figures[name] = [median(getattr(one, what) for one in outcomes) for what in FIGURES]
            wrong = sum(one.wrong for one in outcomes)
            accepted = sum(one.accepted for one in outcomes)
            report.add(posters, name, *figures[name], accepted, wrong)
            if name != "tutorial":
                report.goal(f"{posters} posters, {name}: lost, doubled or refused", wrong, 0)
        for one, other in ratios:
            times = [a / (b or 1.0) for a, b in zip(figures[one], figures[other], strict=True)]
            report.add(posters, f"{one} / {other}", *times, "", "")
    for _, sockets in fleet.values():
        for opened in sockets:
            opened.close()
