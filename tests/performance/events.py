"""Posters and sockets: how many events a second, how soon they arrive, what they cost, and whether
every socket got each once and in order, beside the same service as tutorials have it.
"""

from __future__ import annotations

import asyncio

from tests.performance import machine
from tests.performance.compare import COLUMNS, Fleet, compare
from tests.performance.report import Report
from tests.performance.servers import SESSION, bridge, connect, directory, target, tutorial

SOCKETS = 5


def measure(rounds: int, seconds: float) -> Report:
    return asyncio.run(_measure(rounds, seconds))


async def _measure(rounds: int, seconds: float) -> Report:
    about = f"{SOCKETS} sockets on one session, {rounds} interleaved rounds, medians; TLS, kept connections"
    report = Report("events", about, COLUMNS)
    servers, generator = machine.cores()
    with (
        directory() as path,
        machine.running_on(servers),
        bridge(path / "bridge") as ours,
        tutorial(path) as other,
        machine.running_on(generator),
    ):
        tokens = [ours.device_token() for _ in range(SOCKETS)]
        fleet: Fleet = {
            "bridge": (target(ours), [await connect(ours, token, SESSION) for token in tokens]),
            "tutorial": (other.target, await other.connect(SOCKETS)),
        }
        await compare(
            report, fleet, rounds, seconds, ours=["bridge"], ratios=[("bridge", "tutorial")]
        )
    return report
