"""A phone comes back to 10,000 events: when its first one is there, how fast the rest follows in
order, and what that does to those who are live.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from itertools import count
from statistics import median

from tests.conformance.bridge import Bridge
from tests.performance.load import MIX, Flight, Target, hook_event, quantile
from tests.performance.machine import cpu_seconds
from tests.performance.report import Goal, Report, progress
from tests.performance.servers import authenticate, bridge, connect, directory, target
from tests.performance.sockets import Socket, clock

WAITING = 10_000
SESSIONS = 4  # a session's queue holds 10,000 messages, and a gap would be another measurement
BATCH = 500
LIVE_PAUSE = 0.01  # seconds between two events of the one live poster
FIRST_MS, RATE, DELAY_MS, COMPRESSED = 100.0, 10_000.0, 20.0, 1 / 6
COLUMNS = (
    "round",
    "first ms after connect",
    "after auth",
    "events/s",
    "CPU µs/event",
    "arrived",
    "out of order",
    "live p50 ms",
    "p99",
    "max",
    "quiet p50 ms",
    "p99",
    "max",
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
        found = text.find(b'"waiting":')
        if found >= 0:
            self.first = self.first or at
            self.last = at
            self.numbers.append(int(text[found + 10 : text.index(b"}", found)]))


def measure(rounds: int, seconds: float) -> Report:
    """``rounds`` phones, one after the other; ``seconds``: how long the live ones are watched
    before each.
    """
    return asyncio.run(_measure(rounds, seconds))


async def _measure(rounds: int, seconds: float) -> Report:
    report = Report(
        "backlog",
        f"{WAITING:,} events wait for a phone that connects, while another gets live ones",
        COLUMNS,
    )
    with directory() as path, bridge(path / "bridge") as ours:
        tokens = [ours.device_token() for _ in range(rounds + 1)]
        for token in tokens:
            (await connect(ours, token)).close()  # known from here on, and away
        _post(ours)
        where = target(ours)
        live = await connect(ours, ours.device_token(), where.session)
        returns, delays, quiets = [], [], []
        report.goals.append(await _compressed(ours, tokens.pop()))
        for number, token in enumerate(tokens):
            quiet = (await Flight(where, [live], pause=LIVE_PAUSE).run(1, seconds)).delivery
            found, during = await _come_back(ours, token, where, live)
            returns.append(found)
            delays.append(during)
            quiets.append(list(quiet))
            progress(f"backlog: round {number + 1} of {rounds}")
            report.add(
                number + 1,
                (found.first - found.began) * 1e3,
                (found.first - found.authenticated) * 1e3,
                _rate(found),
                found.cpu * 1e6 / WAITING,
                len(found.numbers),
                _out_of_order(found),
                *(_of(during, part) for part in (0.5, 0.99, 1.0)),
                *(_of(quiets[-1], part) for part in (0.5, 0.99, 1.0)),
            )
        live.close()
    report.goals += [
        Goal(
            "the first of them after the connection was begun",
            median(r.first - r.began for r in returns) * 1e3,
            FIRST_MS,
            "ms",
        ),
        Goal(
            "events of the backlog", median(_rate(r) for r in returns), RATE, "a second", least=True
        ),
        Goal(
            "missing, doubled or out of order",
            sum(abs(WAITING - len(set(r.numbers))) + _out_of_order(r) for r in returns),
            0,
        ),
        Goal(
            "live events later than when it is quiet, at the median",
            median(_of(d, 0.5) - _of(q, 0.5) for d, q in zip(delays, quiets, strict=True)),
            DELAY_MS,
            "ms",
        ),
        Goal(
            "live events later than when it is quiet, at p99",
            median(_of(d, 0.99) - _of(q, 0.99) for d, q in zip(delays, quiets, strict=True)),
            DELAY_MS,
            "ms",
        ),
    ]
    return report


def _post(ours: Bridge) -> None:
    bodies, turns = [], [count() for _ in range(SESSIONS)]
    for number in range(WAITING):
        session = number % SESSIONS
        turn = next(turns[session])
        call = f"toolu_{session}_{(turn - 1) // 2}"  # a call's two events follow each other
        kind = MIX[turn % len(MIX)]
        bodies.append(hook_event(kind, f"waiting-{session}", call, {"waiting": number}))
    for start in range(0, WAITING, BATCH):
        answer = ours.post_batch(bodies[start : start + BATCH]).json()
        assert answer["accepted"] == BATCH, json.dumps(answer)[:500]


async def _compressed(ours: Bridge, token: str) -> Goal:
    """A phone that offers permessage-deflate (D58)."""
    opened, waiting = await Socket.open(ours.port, "/api/v1/ws", deflate=True), 0
    keep = opened.on_text

    def take(text: bytes, at: float) -> None:
        nonlocal waiting
        if b'"waiting":' in text:
            waiting += 1
        else:
            keep(text, at)

    opened.on_text = take
    await authenticate(opened, token)
    async with asyncio.timeout(60):
        while waiting < WAITING:
            await asyncio.sleep(0.01)
    opened.close()
    text = f"on the wire, compressed, of {opened.text_bytes / 1e6:.2f} MB of JSON"
    return Goal(text, opened.wire_bytes / opened.text_bytes, COMPRESSED, "")


async def _come_back(
    ours: Bridge, token: str, where: Target, live: Socket
) -> tuple[Return, list[float]]:
    """The phone's return, and how long live events took that were posted in that time."""
    found = Return()
    watching = asyncio.create_task(_watch(where, live, found))
    await asyncio.sleep(0.2)  # the live poster is under way
    before, found.began = cpu_seconds(where.processes), clock()
    opened = await Socket.open(ours.port, "/api/v1/ws")
    keep, found.authenticated = opened.on_text, clock()
    opened.on_text = lambda text, at: (
        found.take(text, at) if b'"waiting":' in text else keep(text, at)
    )
    await authenticate(opened, token)
    async with asyncio.timeout(60):
        while len(found.numbers) < WAITING:
            await asyncio.sleep(0.01)
    found.cpu = cpu_seconds(where.processes) - before
    during = await watching
    opened.close()
    return found, during


async def _watch(where: Target, live: Socket, found: Return) -> list[float]:
    flight = Flight(where, [live], pause=LIVE_PAUSE)
    running = asyncio.create_task(flight.run(1, 60.0))
    while len(found.numbers) < WAITING and not running.done():
        await asyncio.sleep(0.005)
    flight.until = 0.0
    await running
    seen = flight.seen[0].times
    return [
        (at - flight.started[n]) * 1e3
        for n, at in seen.items()
        if found.began <= flight.started[n] <= found.last
    ]


def _rate(found: Return) -> float:
    return len(found.numbers) / (found.last - found.first)


def _out_of_order(found: Return) -> int:
    """Events that came after a later one of the whole backlog: it is sent in the order of the
    log.
    """
    return sum(
        later < earlier for earlier, later in zip(found.numbers, found.numbers[1:], strict=False)
    )


def _of(values: list[float], part: float) -> float:
    return quantile(values, part)
