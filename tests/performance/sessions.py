"""A phone comes back to thousands of sessions that all have news: when its first message is there,
all of them, and what they cost in memory.
"""

from __future__ import annotations

import asyncio
from statistics import median

from tests.conformance.bridge import Bridge
from tests.performance import fill, machine
from tests.performance.report import Cell, Report, progress
from tests.performance.servers import authenticate, bridge, connect, directory, process_of
from tests.performance.sockets import Socket, clock

SESSIONS, EACH = 5_000, 2
FIRST_MS, GROWTH_MB = 500.0, 64.0
COLUMNS = (
    *("round", "authenticated ms", "first ms after connect", "all ms", "CPU ms", "arrived"),
    *("memory before MB", "highest MB"),
)


def measure(rounds: int, seconds: float) -> Report:
    """``rounds`` phones, one after the other; ``seconds`` is not used."""
    return asyncio.run(_measure(rounds))


async def _measure(rounds: int) -> Report:
    about = f"{SESSIONS:,} sessions with {EACH} events each wait for a phone that connects"
    report = Report("sessions", about, COLUMNS)
    with directory() as path, bridge(path / "bridge") as ours:
        tokens = [ours.device_token() for _ in range(rounds)]
        for token in tokens:
            (await connect(ours, token)).close()  # known from here on, and away
        fill.while_away(ours, SESSIONS, SESSIONS * EACH)
        for number, token in enumerate(tokens):
            report.add(number + 1, *await _come_back(ours, token))
            progress(f"sessions: round {number + 1} of {rounds}")
    _, _, first, _, _, arrived, before, highest = zip(*report.rows, strict=True)
    what = "the first message after the connection was begun"
    report.goal(what, median(map(float, first)), FIRST_MS, "ms")
    report.goal("missing", rounds * SESSIONS * EACH - sum(map(float, arrived)), 0)
    grown = max(map(float, highest)) - float(before[0])
    report.goal("growth of memory", grown, GROWTH_MB, "MB")
    return report


async def _come_back(ours: Bridge, token: str) -> list[Cell]:
    before = highest = machine.resident_mb(process_of(ours))
    came: list[float] = []
    used, began = machine.cpu_seconds(process_of(ours)), clock()
    opened = await Socket.open(ours.port, "/api/v1/ws")
    opened.divert(b'"prompt":"filled ', lambda _, at: came.append(at))
    await authenticate(opened, token)
    authenticated = clock()

    def all_came() -> bool:
        nonlocal highest
        highest = max(highest, machine.resident_mb(process_of(ours)))
        return len(came) >= SESSIONS * EACH

    await opened.came_to(all_came)
    used = machine.cpu_seconds(process_of(ours)) - used
    opened.close()
    times = [(at - began) * 1e3 for at in (authenticated, came[0], came[-1])]
    return [*times, used * 1e3, len(came), before, highest]
