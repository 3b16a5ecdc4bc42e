"""A phone comes back to 10,000 events: when its first one is there, how fast the rest follows in
order, and what that does to those who are live.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from tests.conformance.bridge import Bridge
from tests.performance.load import MIX, Flight, Target, hook_event, quantile
from tests.performance.machine import cpu_seconds
from tests.performance.report import Report, progress
from tests.performance.servers import authenticate, bridge, connect, directory, target
from tests.performance.sockets import Socket, clock

WAITING = 10_000
SESSIONS = 4  # a session's queue holds 10,000 messages, and a gap would be another measurement
BATCH = 500
LIVE_PAUSE = 0.01  # seconds between two events of the one live poster
FIRST_MS, RATE, DELAY_MS, COMPRESSED = 100.0, 10_000.0, 20.0, 1 / 6
MARK = b'"waiting":'
COLUMNS = (
    *("round", "first ms after connect", "after auth", "events/s", "CPU µs/event", "arrived"),
    *("out of order", "live p50 ms", "p99", "max", "quiet p50 ms", "p99", "max"),
)


@dataclass
class Return:
    """A phone's coming back; times in seconds on the generator's clock."""

    began: float = 0.0
    authenticated: float = 0.0
    first: float = 0.0
    last: float = 0.0
    cpu: float = 0.0  # seconds of the bridge's, live events in that time included
    numbers: list[int] = field(default_factory=list)

    def take(self, text: bytes, at: float) -> None:
        found = text.index(MARK) + len(MARK)
        self.first, self.last = self.first or at, at
        self.numbers.append(int(text[found : text.index(b"}", found)]))

    @property
    def complete(self) -> bool:
        return len(self.numbers) >= WAITING

    @property
    def rate(self) -> float:
        return len(self.numbers) / (self.last - self.first)

    @property
    def out_of_order(self) -> int:
        """Events that came after a later one: a backlog is sent in the order of the log."""
        return sum(later < earlier for earlier, later in pairwise(self.numbers))


def measure(rounds: int, seconds: float) -> Report:
    """``rounds`` phones, one after the other; ``seconds``: how long the live ones are watched
    before each.
    """
    return asyncio.run(_measure(rounds, seconds))


async def _measure(rounds: int, seconds: float) -> Report:
    about = f"{WAITING:,} events wait for a phone that connects, while another gets live ones"
    report = Report("backlog", about, COLUMNS)
    returns: list[Return] = []
    later: dict[float, list[float]] = {0.5: [], 0.99: []}
    with directory() as path, bridge(path / "bridge") as ours:
        tokens = [ours.device_token() for _ in range(rounds + 1)]
        for token in tokens:
            (await connect(ours, token)).close()  # known from here on, and away
        _post(ours)
        where = target(ours)
        live = await connect(ours, ours.device_token(), where.session)
        await _compressed(report, ours, tokens.pop())
        for number, token in enumerate(tokens):
            quiet = list((await Flight(where, [live], pause=LIVE_PAUSE).run(1, seconds)).delivery)
            found, during = await _come_back(ours, token, where, live)
            returns.append(found)
            for part, delays in later.items():
                delays.append(quantile(during, part) - quantile(quiet, part))
            progress(f"backlog: round {number + 1} of {rounds}")
            report.add(
                number + 1,
                (found.first - found.began) * 1e3,
                (found.first - found.authenticated) * 1e3,
                found.rate,
                found.cpu * 1e6 / WAITING,
                len(found.numbers),
                found.out_of_order,
                *(quantile(some, part) for some in (during, quiet) for part in (0.5, 0.99, 1.0)),
            )
        live.close()
    first = median(one.first - one.began for one in returns) * 1e3
    report.goal("the first of them after the connection was begun", first, FIRST_MS, "ms")
    rate = median(one.rate for one in returns)
    report.goal("events of the backlog", rate, RATE, "a second", least=True)
    wrong = sum(abs(WAITING - len(set(one.numbers))) + one.out_of_order for one in returns)
    report.goal("missing, doubled or out of order", wrong, 0)
    for part, delays in later.items():
        what = f"live events later than when it is quiet, at {part:.0%}"
        report.goal(what, median(delays), DELAY_MS, "ms")
    return report


def _post(ours: Bridge) -> None:
    bodies = []
    for number in range(WAITING):
        turn, session = divmod(number, SESSIONS)
        call = f"toolu_{session}_{(turn - 1) // 2}"  # a call's two events follow each other
        kind = MIX[turn % len(MIX)]
        bodies.append(hook_event(kind, f"waiting-{session}", call, {"waiting": number}))
    for start in range(0, WAITING, BATCH):
        answer = ours.post_batch(bodies[start : start + BATCH]).json()
        assert answer["accepted"] == BATCH, json.dumps(answer)[:500]


async def _compressed(report: Report, ours: Bridge, token: str) -> None:
    """A phone that offers permessage-deflate (D58)."""
    opened, found = await Socket.open(ours.port, "/api/v1/ws", deflate=True), Return()
    opened.divert(MARK, found.take)
    await authenticate(opened, token)
    await opened.came_to(lambda: found.complete)
    opened.close()
    text = f"on the wire, compressed, of {opened.text_bytes / 1e6:.2f} MB of JSON"
    report.goal(text, opened.wire_bytes / opened.text_bytes, COMPRESSED)


async def _come_back(
    ours: Bridge, token: str, where: Target, live: Socket
) -> tuple[Return, list[float]]:
    """The phone's return, and how long live events took that were posted in that time."""
    found, flight = Return(), Flight(where, [live], pause=LIVE_PAUSE)
    flying = asyncio.create_task(flight.run(1, 60.0))
    await asyncio.sleep(0.2)  # the live poster is under way
    before, found.began = cpu_seconds(where.processes), clock()
    opened = await Socket.open(ours.port, "/api/v1/ws")
    found.authenticated = clock()
    opened.divert(MARK, found.take)
    await authenticate(opened, token)
    await opened.came_to(lambda: found.complete)
    found.cpu = cpu_seconds(where.processes) - before
    flight.until = 0.0
    await flying
    opened.close()
    return found, [
        (at - flight.started[n]) * 1e3
        for n, at in flight.seen[0].times.items()
        if found.began <= flight.started[n] <= found.last
    ]
