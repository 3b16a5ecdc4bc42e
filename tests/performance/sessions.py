"""A phone comes back to thousands of sessions that all have news: when its first message is there,
all of them, and what they cost in memory.
"""

from __future__ import annotations

import asyncio
from statistics import median

from tests.conformance.bridge import Bridge
from tests.performance import fill, machine
from tests.performance.report import Goal, Report, progress
from tests.performance.servers import authenticate, bridge, connect, directory, process_of
from tests.performance.sockets import Socket, clock

SESSIONS, EACH = 5_000, 2
FIRST_MS, GROWTH_MB = 500.0, 64.0
COLUMNS = (
    "round",
    "connection_ack ms",
    "first ms after connect",
    "all ms",
    "CPU ms",
    "arrived",
    "memory before MB",
    "highest MB",
)


def measure(rounds: int, seconds: float) -> Report:
    """``rounds`` phones, one after the other; ``seconds`` is not used."""
    return asyncio.run(_measure(rounds))


async def _measure(rounds: int) -> Report:
    report = Report(
        "sessions",
        f"{SESSIONS:,} sessions with {EACH} events each wait for a phone that connects",
        COLUMNS,
    )
    with directory() as path, bridge(path / "bridge") as ours:
        tokens = [ours.device_token() for _ in range(rounds)]
        for token in tokens:
            (await connect(ours, token)).close()  # known from here on, and away
        fill.while_away(ours, SESSIONS, SESSIONS * EACH)
        for number, token in enumerate(tokens):
            report.add(number + 1, *await _come_back(ours, token))
            progress(f"sessions: round {number + 1} of {rounds}")
    report.goals += [
        Goal(
            "the first message after the connection was begun",
            median(float(row[2]) for row in report.rows),
            FIRST_MS,
            "ms",
        ),
        Goal("missing", sum(SESSIONS * EACH - float(row[5]) for row in report.rows), 0),
        Goal(
            "growth of memory",
            max(float(row[7]) for row in report.rows) - float(report.rows[0][6]),
            GROWTH_MB,
            "MB",
        ),
    ]
    return report


async def _come_back(
    ours: Bridge, token: str
) -> tuple[float, float, float, float, int, float, float]:
    before = highest = machine.resident_mb(process_of(ours))
    came: list[float] = []
    acknowledged: list[float] = []
    used, began = machine.cpu_seconds(process_of(ours)), clock()
    opened = await Socket.open(ours.port, "/api/v1/ws")
    keep = opened.on_text

    def take(text: bytes, at: float) -> None:
        if b'"prompt":"filled ' in text:
            came.append(at)
        else:
            if b'"connection_ack"' in text:
                acknowledged.append(at)
            keep(text, at)

    opened.on_text = take
    await authenticate(opened, token)
    async with asyncio.timeout(60):
        while len(came) < SESSIONS * EACH:
            await asyncio.sleep(0.01)
            highest = max(highest, machine.resident_mb(process_of(ours)))
    used = machine.cpu_seconds(process_of(ours)) - used
    opened.close()
    return (
        (acknowledged[0] - began) * 1e3,
        (came[0] - began) * 1e3,
        (came[-1] - began) * 1e3,
        used * 1e3,
        len(came),
        before,
        highest,
    )
