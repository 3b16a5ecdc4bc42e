"""What one more socket costs: CPU time of an event and socket, memory, and how late events arrive,
with 5, 50 and 500 of them on one session that gets 20 events a second.
"""

from __future__ import annotations

import asyncio

from tests.performance import machine
from tests.performance.load import Flight
from tests.performance.report import Report, progress
from tests.performance.servers import SESSION, bridge, connect, directory, process_of, target
from tests.performance.sockets import Socket

SOCKETS = (5, 50, 500)
PAUSE = 0.05  # between a 200 and the next event: 20 a second
P99_MS, SOCKET_KB = 250.0, 60.0
COLUMNS = (
    *("sockets", "events/s", "delivery p50 ms", "p99 ms", "CPU µs/event and socket"),
    *("memory KB/socket", "lost, doubled, reordered"),
)


def measure(rounds: int, seconds: float) -> Report:
    """Each number of sockets for ``seconds``, ``rounds`` times."""
    return asyncio.run(_measure(rounds, seconds))


async def _measure(rounds: int, seconds: float) -> Report:
    report = Report("fanout", "sockets on one session, 20 events a second", COLUMNS)
    with (
        directory() as path,
        bridge(path / "bridge", BRIDGE_MAX_WEBSOCKETS=str(2 * max(SOCKETS))) as ours,
    ):
        where = target(ours)
        names = [("--name", f"phone-{number}") for number in range(max(SOCKETS) + 1)]
        tokens = [pairing.token for pairing in ours.mint_many(*names)]
        first = await connect(ours, tokens.pop(), SESSION)
        await Flight(where, [first], pause=PAUSE).run(1, seconds)  # costs of the first of all
        first.close()
        sockets: list[Socket] = []
        for count in SOCKETS:
            # of the new ones: between two counts the rows that are kept at hand become more
            new, before = count - len(sockets), machine.resident_mb(process_of(ours))
            while len(sockets) < count:
                sockets.append(await connect(ours, tokens[len(sockets)], SESSION))
            memory = (machine.resident_mb(process_of(ours)) - before) * 1024 / new
            for _ in range(rounds):
                flown = await Flight(where, sockets, pause=PAUSE).run(1, seconds)
                times = (flown.delivery_p50, flown.delivery_p99)
                report.add(count, flown.rate, *times, flown.cpu / count, memory, flown.wrong)
                report.goal(f"{count}: lost, doubled, reordered", flown.wrong, 0)
                if count == max(SOCKETS):
                    report.goal(f"{count}: delivery p99", flown.delivery_p99, P99_MS, "ms")
            progress(f"fanout: {count} sockets")
        report.goal(f"{max(SOCKETS)}: memory a socket", memory, SOCKET_KB, "KB")
        for opened in sockets:
            opened.close()
    return report
