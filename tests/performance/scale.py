"""A million rows in the log beside a thousand: what an event costs to store, a missed page to
replay, and the list of sessions to read.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from tests.conformance.bridge import Bridge
from tests.conformance.samples import prompt
from tests.performance import fill, machine
from tests.performance.load import Flight, Outcome, Target, quantile
from tests.performance.report import Report, progress
from tests.performance.servers import authenticate, bridge, directory, process_of, target
from tests.performance.sockets import Socket, clock

SMALL, LARGE = 1_000, 1_000_000
SESSIONS = 100  # in both; of the large one each has the most that a session keeps
PAGE = 500  # rows that a phone has missed
POSTERS = 64  # beside a single one
LISTS = 10  # GET /sessions a round
INSERT, REPLAY, LIST = 1.3, 2.0, 1.3
COLUMNS = (
    *("rows", "200 p50 ms", "p99 ms", "CPU µs/event", "64 posters 200 p50 ms", "CPU µs/event"),
    *("first of a missed page ms", "whole page ms", "GET /sessions p50 ms", "memory MB"),
)


class Side:
    """One of the two bridges, and what was measured of it."""

    def __init__(self, ours: Bridge, rows: int, where: Target) -> None:
        self.ours, self.rows, self.where = ours, rows, where
        self.flown: list[Outcome] = []  # by one poster
        self.crowded: list[Outcome] = []  # by many, whose events share transactions
        self.times: dict[str, list[float]] = defaultdict(list)  # milliseconds

    async def round(self, seconds: float) -> None:
        self.flown.append(await Flight(self.where, []).run(1, seconds))
        self.crowded.append(await Flight(self.where, []).run(POSTERS, seconds))
        await self._replay()
        await asyncio.to_thread(self._list)

    async def _replay(self) -> None:
        """A phone is away while PAGE events come, turn by turn to the filled sessions, and comes
        back.
        """
        token = await asyncio.to_thread(self.ours.device_token)
        opened = await Socket.open(self.ours.port, "/api/v1/ws")
        await authenticate(opened, token)
        opened.close()
        await asyncio.to_thread(
            self.ours.post_batch,
            [prompt(f"filled-{number % SESSIONS}", f"missed-{number}") for number in range(PAGE)],
        )
        opened, came = await Socket.open(self.ours.port, "/api/v1/ws"), list[float]()
        opened.divert(b'"missed-', lambda _, at: came.append(at))
        began = clock()
        await authenticate(opened, token)
        await opened.came_to(lambda: len(came) >= PAGE)
        opened.close()
        self.times["first"].append((came[0] - began) * 1e3)
        self.times["page"].append((came[-1] - began) * 1e3)

    def _list(self) -> None:
        https = self.ours.https()
        connection = https.open()
        for _ in range(LISTS):
            began = time.perf_counter()
            answer = https.get(
                "/api/v1/sessions", token=self.ours.admin_token, connection=connection
            )
            self.times["list"].append((time.perf_counter() - began) * 1e3)
            assert answer.json()["total"] == SESSIONS + 1, answer
        connection.close()


def _stored(flown: list[Outcome]) -> tuple[float, float]:
    """How long it took, and how much of the processor."""
    return median(one.ack_p50 for one in flown), median(one.cpu for one in flown)


def measure(rounds: int, seconds: float) -> Report:
    report = Report(
        "scale",
        f"a log of {LARGE:,} rows in {SESSIONS} sessions beside one of {SMALL:,}, {rounds} interleaved rounds, medians",
        COLUMNS,
    )
    with ExitStack() as stack:
        path = stack.enter_context(directory())
        sides = [stack.enter_context(_filled(path / str(rows), rows)) for rows in (SMALL, LARGE)]
        asyncio.run(_measure(sides, rounds, seconds))
        for side in sides:
            times = [median(side.times[name]) for name in ("first", "page", "list")]
            memory = machine.resident_mb(process_of(side.ours))
            one, many = _stored(side.flown), _stored(side.crowded)
            p99 = median(quantile(flown.ack, 0.99) for flown in side.flown)
            report.add(side.rows, one[0], p99, one[1], *many, *times, memory)
    small, large = sides
    for what, flown in (
        ("an event stored, with a million rows and with a thousand", "flown"),
        (f"an event of {POSTERS} posters stored", "crowded"),
    ):
        of_large, of_small = _stored(getattr(large, flown)), _stored(getattr(small, flown))
        report.goal(what, of_large[0] / of_small[0], INSERT, "times")
        report.goal("its CPU time", of_large[1] / of_small[1], INSERT, "times")
    for what, name, limit in (("a replayed page", "page", REPLAY), ("GET /sessions", "list", LIST)):
        ratio = median(large.times[name]) / median(small.times[name])
        report.goal(what, ratio, limit, "times")
    return report


@contextmanager
def _filled(path: Path, rows: int) -> Iterator[Side]:
    """A bridge on a log that has been filled while it was away."""
    with bridge(path) as ours:
        began = time.monotonic()
        fill.while_away(ours, SESSIONS, rows)
        progress(f"scale: {rows:,} rows filled in {time.monotonic() - began:.0f} s")
        yield Side(ours, rows, target(ours))


async def _measure(sides: list[Side], rounds: int, seconds: float) -> None:
    for number in range(rounds):
        for side in sides if number % 2 else sides[::-1]:
            await side.round(seconds)
        progress(f"scale: round {number + 1} of {rounds}")
