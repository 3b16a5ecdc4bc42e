"""Posters and sockets: how many events a second, how soon they arrive, what they cost, and whether
every socket got each once and in order.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from statistics import median

from tests.performance import machine
from tests.performance.load import Flight, Outcome, Target, quantile
from tests.performance.report import Goal, Report, progress
from tests.performance.servers import SESSION, bridge, connect, directory, target, yardsticks
from tests.performance.sockets import Socket

POSTERS = (1, 16, 64)
SOCKETS = 5
COLUMNS = (
    "posters",
    "server",
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
    "generator",
)
Key = tuple[int, str]


def measure(rounds: int, seconds: float) -> Report:
    return asyncio.run(_measure(rounds, seconds))


async def _measure(rounds: int, seconds: float) -> Report:
    servers, generator = machine.cores()
    flown: dict[Key, list[Outcome]] = defaultdict(list)
    with (
        directory() as path,
        machine.running_on(servers),
        bridge(path / "bridge") as ours,
        yardsticks(path) as others,
        machine.running_on(generator),
    ):
        fleet: dict[str, tuple[Target, list[Socket]]] = {}
        fleet["bridge"] = target(ours), []
        fleet["bridge"][1].extend(
            [await connect(ours, ours.device_token(), SESSION) for _ in range(SOCKETS)]
        )
        for other in others:
            fleet[other.name] = other.target, await other.connect(SOCKETS)
        for number in range(rounds):
            for posters in POSTERS:
                for name, (where, sockets) in fleet.items():
                    flown[posters, name].append(await Flight(where, sockets).run(posters, seconds))
            progress(f"events: round {number + 1} of {rounds}")
        for _, sockets in fleet.values():
            for opened in sockets:
                opened.close()
    return _report(flown)


def _report(flown: dict[Key, list[Outcome]]) -> Report:
    report = Report(
        "events",
        f"{SOCKETS} sockets on one session, {len(next(iter(flown.values())))} interleaved rounds, medians; TLS, kept connections",
        COLUMNS,
    )
    for (posters, name), outcomes in flown.items():
        report.add(
            posters,
            name,
            _rate(outcomes),
            median(quantile(o.ack, 0.5) for o in outcomes),
            _delivery(outcomes, 0.5),
            _delivery(outcomes, 0.99),
            median(o.cpu for o in outcomes),
            sum(o.accepted for o in outcomes),
            sum(o.lost for o in outcomes),
            sum(o.doubled for o in outcomes),
            sum(o.reordered for o in outcomes),
            sum(o.errors for o in outcomes),
            f"{median(o.busy for o in outcomes):.0%}",
        )
    for posters in POSTERS:
        ours = flown[posters, "bridge"]
        wrong = sum(o.lost + o.doubled + o.reordered + o.errors for o in ours)
        report.goals.append(
            Goal(f"{posters} posters: lost, doubled, reordered or refused", wrong, 0)
        )
        report.notes += [
            _beside(posters, ours, name, flown[posters, name]) for name in ("tutorial", "bare")
        ]
    report.notes.append(
        "  generator: what it took of its core; near 100 % it is the generator that was measured"
    )
    return report


def _beside(posters: int, ours: list[Outcome], name: str, theirs: list[Outcome]) -> str:
    faster, later = (
        _rate(ours) / _rate(theirs),
        _delivery(ours, 0.5) / (_delivery(theirs, 0.5) or 1.0),
    )
    cpu = median(o.cpu for o in ours) / median(o.cpu for o in theirs)
    return f"  {posters} posters, bridge to {name}: events a second {faster:.2f}, delivery p50 {later:.2f}, CPU an event {cpu:.2f}"


def _rate(outcomes: list[Outcome]) -> float:
    return median(o.rate for o in outcomes)


def _delivery(outcomes: list[Outcome], part: float) -> float:
    return median(quantile(o.delivery, part) for o in outcomes)
