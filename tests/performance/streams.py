"""What agents say, at the phones: first words, ten streams at once, the event loop's lag."""

import asyncio
import json
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tests.conformance.agent_tools import Script
from tests.faults.quick import QuickBridge
from tests.performance.load import cpu_seconds, quantile
from tests.performance.report import Cell, Report, progress
from tests.performance.servers import directory, process_of
from tests.performance.sockets import Socket, clock

SESSIONS, PER_SECOND, PHONES = 10, 100, 2
STAMPS = 20  # first words in each round, before and again during the streams
ACKNOWLEDGE_SECONDS, HEARTBEAT_SECONDS = 0.25, 15.0
FIRST_MS, LAG_MS = 150.0, 50.0
COLUMNS = (
    "round | first words ms p50 | max | streaming ms p50 | max | lag streaming ms p50 | p99 | max"
    " | messages | wrong | bridge CPU % of a core"
)
# Every few milliseconds a timer of the server's loop is due: when, and by how much it was late.
LAGS = """
import asyncio, os, threading
run_forever, step = asyncio.BaseEventLoop.run_forever, 0.005

def sampled(loop):
    def look(due):
        now = loop.time()
        lags.write(f"{due} {now - due}\\n")
        loop.call_at(now + step, look, now + step)

    if threading.current_thread() is threading.main_thread():
        lags = open(os.environ["LAGS"], "w", buffering=1)
        loop.call_soon(look, loop.time())
    run_forever(loop)

asyncio.BaseEventLoop.run_forever = sampled
"""


class Watched(QuickBridge):
    """A bridge that says how late its event loop is."""

    first = LAGS

    def late(self, begin: float, end: float) -> list[float]:
        """In milliseconds, of what was due in between."""
        lines = Path(self.settings["LAGS"]).read_text().splitlines()
        looks = (map(float, line.split()) for line in lines)
        return [late * 1e3 for due, late in looks if begin <= due <= end]


class Phone:
    """A phone that keeps what is said, acknowledges it in bulk and sends heartbeats, as apps do."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        # session → type, content, time.time() of its arrival
        self.said: dict[str, list[tuple[str, str, float]]] = defaultdict(list)
        self.untold: list[str] = []  # ids that are not acknowledged
        socket.divert(b'{"type":"stream_', self._take)

    def _take(self, text: bytes, at: float) -> None:
        message = json.loads(text)
        payload, when = message["payload"], time.time() - clock() + at
        words = (message["type"], payload.get("content", ""), when)
        self.said[payload["session_id"]].append(words)
        self.untold.append(message["id"])
        self.socket.came.set()

    async def live(self) -> None:
        """Until it is cancelled."""
        beat = clock()
        while True:
            await asyncio.sleep(ACKNOWLEDGE_SECONDS)
            if self.untold:
                ids, self.untold = self.untold, []
                self.socket.tell("notification_ack", notification_ids=ids)
            if clock() - beat > HEARTBEAT_SECONDS:
                beat = clock()
                await self.socket.ask("heartbeat_ping", "heartbeat_pong")

    def say(self, session: str, content: str) -> None:
        self.socket.tell("message", session_id=session, content=content, role="user")

    async def ended(self, *sessions: str) -> None:
        """Until the turn of each has ended."""
        async with asyncio.timeout(60):
            while any(
                not self.said[session] or self.said[session][-1][0] != "stream_end"
                for session in sessions
            ):
                self.socket.came.clear()
                await self.socket.came.wait()

    async def stamp(self, session: str) -> float:
        """Milliseconds from when the agent said its first words to when they are here."""
        self.said[session].clear()
        self.say(session, "/stamp")
        await self.ended(session)
        content, at = next(one[1:] for one in self.said[session] if one[0] == "stream_chunk")
        return (at - float(content.split()[0])) * 1e3

    def wrong(self, session: str, expected: list[str]) -> int:
        """Chunks that were lost, doubled or out of order."""
        words = "".join(content for _, content, _ in self.said[session]).split()
        order = [expected.index(word) for word in words if word in expected]
        reordered = sum(later < earlier for earlier, later in pairwise(order))
        return len(set(expected) ^ set(words)) + len(words) - len(set(words)) + reordered


def streams(rounds: int, seconds: float) -> Report:
    """``rounds`` times ten streams of ``seconds``."""
    about = f"{SESSIONS} sessions that each stream {PER_SECOND} chunks a second to {PHONES} phones"
    report = Report("streams", about, COLUMNS)
    with directory() as path:
        settings = {"BRIDGE_ACP_AGENTS": Script(path, "plain").setting, "LAGS": str(path / "lags")}
        settings["BRIDGE_MAX_SESSIONS"] = str(2 * SESSIONS)
        with Watched(path / "bridge", **settings) as ours:
            asyncio.run(_measure(report, ours, rounds, seconds))
    medians = [median(float(row[n]) for row in report.rows) for n in range(len(report.rows[0]))]
    report.goal("first words at the phone, median", medians[1], FIRST_MS, "ms")
    report.goal("first words while ten others stream, median", medians[3], FIRST_MS, "ms")
    report.goal("the event loop's lag while streaming, p99", medians[6], LAG_MS, "ms")
    report.goal("lost, doubled or out of order", sum(float(row[-2]) for row in report.rows), 0)
    return report


async def _measure(report: Report, ours: Watched, rounds: int, seconds: float) -> None:
    tokens = [await asyncio.to_thread(ours.device_token) for _ in range(PHONES)]
    phones = [Phone(await (await Socket.open(ours.port)).ready(token)) for token in tokens]
    lives = [asyncio.create_task(phone.live()) for phone in phones]
    sessions = [await _begin(ours, phones) for _ in range(SESSIONS + 1)]
    for number in range(rounds):
        report.add(number + 1, *await _round(ours, phones, sessions, seconds))
        progress(f"streams: round {number + 1} of {rounds}")
    for life, phone in zip(lives, phones, strict=True):
        assert not life.done(), life
        life.cancel()
        phone.socket.close()


async def _begin(ours: Watched, phones: list[Phone]) -> str:
    first, *others = phones
    new: dict[str, Any] = {"agent": "plain", "session_id": None, "resume": False}
    new["working_directory"] = str(ours.root)
    ready = await first.socket.ask("session_start", "session_ready", **new)
    session = str(ready["payload"]["session_id"])
    for phone in others:
        await phone.socket.join(session)
    return session


async def _round(
    ours: Watched, phones: list[Phone], sessions: list[str], seconds: float
) -> list[Cell]:
    first, (stamped, *streaming) = phones[0], sessions
    quiet = [await first.stamp(stamped) for _ in range(STAMPS)]
    busy = list[float]()
    for phone in phones:
        phone.said.clear()
    chunks, names = int(seconds * PER_SECOND), [session[-12:] for session in streaming]
    used, began = cpu_seconds(process_of(ours)), time.monotonic()
    for name, session in zip(names, streaming, strict=True):
        first.say(session, f"/rate {name} {chunks} {PER_SECOND}")
    for number in range(1, STAMPS + 1):
        busy.append(await first.stamp(stamped))
        due = began + number * 0.9 * seconds / STAMPS
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    for phone in phones:
        await phone.ended(*streaming)
    until = time.monotonic()
    used = cpu_seconds(process_of(ours)) - used
    messages = wrong = 0
    for phone in phones:
        for name, session in zip(names, streaming, strict=True):
            messages += len(phone.said[session])
            wrong += phone.wrong(session, [f"{name}-{chunk}" for chunk in range(chunks)])
    times = [figure for some in (quiet, busy) for figure in (median(some), max(some))]
    lags = ours.late(began, until)
    late = [quantile(lags, part) for part in (0.5, 0.99, 1.0)]
    return [*times, *late, messages, wrong, 100 * used / (until - began)]
