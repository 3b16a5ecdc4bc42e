"""A phone comes back to 10,000 events."""

import asyncio
import re
from itertools import pairwise
from statistics import median

from tests.conformance.bridge import Bridge
from tests.performance.load import MIX, Flight, cpu_seconds, hook_event, quantile
from tests.performance.report import Report, progress
from tests.performance.servers import SESSION, bridge, connect, directory
from tests.performance.sockets import Socket, clock

WAITING, BATCH = 10_000, 500
ACKED_AT_ONCE = 100  # rows, as the web client does
LIVE_PAUSE = 0.01  # seconds between two events of the one live poster
FIRST_MS, THOUSAND_MS, DELAY_MS = 100.0, 100.0, 20.0
MARK, ID = b'"waiting":', re.compile(rb'"id":"([^"]+)"')


class Return:
    """A phone's coming back to so many texts that have a mark, and a number behind it.

    It acknowledges what came, as the protocol has it: missed rows wait for that.
    """

    def __init__(self, wanted: int, mark: bytes) -> None:
        self.wanted, self.mark = wanted, re.compile(mark + rb"(\d+)")
        self.began = self.first = self.last = 0.0
        self.numbers: list[int] = []
        self.came: list[str] = []  # and is not acknowledged yet
        self.ready = False

    async def run(self, ours: Bridge, token: str) -> None:
        self.began = clock()
        opened = await Socket.open(ours.port)
        keep = opened.on_text

        def take(text: bytes, at: float) -> None:
            if self.ready and (told := ID.search(text)):
                self.first = self.first or at
                self.came.append(told[1].decode())
                if len(self.came) == ACKED_AT_ONCE:
                    opened.send("notification_ack", notification_ids=self.came)
                    self.came = []
            if found := self.mark.search(text):
                self.last = at
                self.numbers.append(int(found[1]))
            else:
                keep(text, at)

        opened.on_text = take
        await opened.ready(token)
        self.ready = True
        async with asyncio.timeout(60):
            while len(self.numbers) < self.wanted:
                await asyncio.sleep(0.01)
        opened.close()

    @property
    def wrong(self) -> int:
        """Missing, doubled or out of order: a backlog is sent in the order of the log."""
        reordered = sum(later < earlier for earlier, later in pairwise(self.numbers))
        return abs(self.wanted - len(set(self.numbers))) + reordered

    def ms(self, moment: float) -> float:
        return (moment - self.began) * 1e3


def backlog(rounds: int, seconds: float) -> Report:
    """Let ``rounds`` phones come back; the live one is watched for ``seconds`` before each."""
    columns = (
        "round | first ms | events/s | CPU µs/event | wrong"
        " | live p50 ms | p99 | max | quiet p50 ms | p99 | max"
    )
    about = f"{WAITING:,} events wait for a phone that connects, while another gets live ones"
    report = Report("backlog", about, columns)
    with directory() as path, bridge(path / "bridge") as ours:
        asyncio.run(_backlog(report, ours, rounds, seconds))
    firsts, rates, wrong = ([float(row[n]) for row in report.rows] for n in (1, 2, 4))
    report.goal("the first of them, from the connection's beginning", median(firsts), FIRST_MS)
    report.goal("a thousand events of the backlog", 1e6 / median(rates), THOUSAND_MS, "ms")
    report.goal("missing, doubled or out of order", sum(wrong), 0)
    for part, live in (("p50", 5), ("p99", 6)):
        later = median(float(row[live]) - float(row[live + 3]) for row in report.rows)
        report.goal(f"live events later than when it is quiet, {part}", later, DELAY_MS, "ms")
    return report


async def _backlog(report: Report, ours: Bridge, rounds: int, seconds: float) -> None:
    tokens = [ours.device_token() for _ in range(rounds)]
    for token in tokens:
        (await connect(ours, token)).close()  # known from here on, and away
    _post(ours)
    live = await connect(ours, ours.device_token(), SESSION)
    for number, token in enumerate(tokens):
        quiet = (await Flight(ours, [live], pause=LIVE_PAUSE).run(1, seconds)).delivery()
        flight, found = Flight(ours, [live], pause=LIVE_PAUSE), Return(WAITING, MARK)
        flying = asyncio.create_task(flight.run(1, 60.0))
        await asyncio.sleep(0.2)  # the live poster is under way
        used = cpu_seconds(ours)
        await found.run(ours, token)
        used = cpu_seconds(ours) - used
        flight.until = 0.0
        await flying
        times = flight.seen[0].times
        during = flight.ms(
            {n: times[n] for n in times if found.began <= flight.started[n] <= found.last}
        )
        report.add(
            number + 1,
            found.ms(found.first),
            len(found.numbers) / (found.last - found.first),
            used * 1e6 / WAITING,
            found.wrong,
            *(quantile(some, part) for some in (during, quiet) for part in (0.5, 0.99, 1.0)),
        )
        progress(f"backlog: round {number + 1} of {rounds}")
    live.close()


def _post(ours: Bridge) -> None:
    """To four sessions: one keeps 10,000 messages, and a gap would be another measurement."""
    bodies = []
    for number in range(WAITING):
        turn, session = divmod(number, 4)
        call = f"toolu_{session}_{(turn - 1) // 2}"  # a call's two events follow each other
        more = {"waiting": number}
        bodies.append(hook_event(MIX[turn % len(MIX)], f"waiting-{session}", call, more))
    for start in range(0, WAITING, BATCH):
        answer = ours.post_batch(bodies[start : start + BATCH]).json()
        assert answer["accepted"] == BATCH, str(answer)[:500]
