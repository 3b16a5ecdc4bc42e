"""What a minute of 64 posters leaves in memory."""

from __future__ import annotations

import asyncio

from tests.conformance.bridge import Bridge
from tests.performance import machine
from tests.performance.load import Flight
from tests.performance.report import Report, progress
from tests.performance.servers import SESSION, bridge, connect, directory, process_of, target

POSTERS, SOCKETS = 64, 5
LOOK_SECONDS = 0.5
SETTLE_SECONDS = 5.0
GROWTH_MB = 64.0
COLUMNS = (
    *("seconds", "accepted", "events/s", "before MB", "highest MB", "after MB", "growth MB"),
    "lost, doubled, reordered",
)


def measure(rounds: int, seconds: float) -> Report:
    report = Report(
        "growth", f"{POSTERS} posters, {SOCKETS} sockets; the bridge's resident memory", COLUMNS
    )
    for _ in range(rounds):
        with directory() as path, bridge(path / "bridge") as ours:
            asyncio.run(_measure(report, ours, seconds))
    grown = max(float(row[-2]) for row in report.rows)
    report.goal("growth of memory", grown, GROWTH_MB, "MB")
    report.goal("lost, doubled or reordered", sum(float(row[-1]) for row in report.rows), 0)
    return report


async def _measure(report: Report, ours: Bridge, seconds: float) -> None:
    where = target(ours)
    tokens = [ours.device_token() for _ in range(SOCKETS)]
    sockets = [await connect(ours, token, SESSION) for token in tokens]
    await asyncio.sleep(SETTLE_SECONDS)
    before = highest = machine.resident_mb(process_of(ours))
    flight = asyncio.create_task(Flight(where, sockets).run(POSTERS, seconds))
    while not flight.done():
        await asyncio.sleep(LOOK_SECONDS)
        highest = max(highest, machine.resident_mb(process_of(ours)))
    outcome = await flight
    await asyncio.sleep(SETTLE_SECONDS)
    after = machine.resident_mb(process_of(ours))
    memory = (before, highest, after, max(highest, after) - before)
    report.add(round(seconds), outcome.accepted, outcome.rate, *memory, outcome.wrong)
    progress("growth: measured")
    for opened in sockets:
        opened.close()
