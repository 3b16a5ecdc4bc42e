"""What agents say, at the phones: how soon its first words are there, ten sessions at once, and how
late the server's event loop is meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import IO, Any

import psutil

from tests.conformance.agent_tools import Script
from tests.conformance.bridge import Bridge
from tests.performance import lag
from tests.performance.load import quantile
from tests.performance.report import Report, progress
from tests.performance.servers import authenticate, bridge, directory, process_of
from tests.performance.sockets import Socket, clock
from tests.servers import Running, stop_process

SESSIONS, PER_SECOND, PHONES = 10, 100, 2
STAMPS = 20  # first words in each round, before and again during the streams
QUIET_SECONDS = 2.0
ACKNOWLEDGE_SECONDS, HEARTBEAT_SECONDS = 0.25, 15.0
DRAIN_SECONDS = 60.0
FIRST_MS, LAG_MS = 150.0, 50.0
# the bridge's loop before and during the streams; one that does nothing else, meanwhile
LOOPS = ("quiet", "streaming", "beside")
COLUMNS = (
    *("round", "first words ms p50", "max", "streaming ms p50", "max"),
    *(f"lag {name} ms {part}" for name in LOOPS for part in ("p50", "p99", "max")),
    *("messages", "lost", "doubled", "out of order", "slowest agent s", "bridge CPU % of a core"),
)


class Watched(Bridge):
    """A bridge that says how late its event loop is."""

    def popen(self, arguments: list[str], log: IO[bytes]) -> Running:
        return super().popen(["-m", "tests.performance.lag", str(self.lags), *arguments], log)

    @property
    def lags(self) -> Path:
        return self.directory / "lags"


@dataclass
class Phone:
    """A phone that keeps what is said, acknowledges it in bulk and sends heartbeats, as apps do."""

    socket: Socket
    # session → type, content, time.time() of its arrival
    said: dict[str, list[tuple[str, str, float]]] = field(default_factory=lambda: defaultdict(list))
    untold: list[str] = field(default_factory=list)  # ids that are not acknowledged

    @staticmethod
    async def connect(ours: Bridge, token: str) -> Phone:
        phone = Phone(await Socket.open(ours.port, "/api/v1/ws"))
        await authenticate(phone.socket, token)
        phone.socket.divert(b'{"type":"stream_', phone._take)
        return phone

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
        async with asyncio.timeout(DRAIN_SECONDS):
            while any(
                not self.said[session] or self.said[session][-1][0] != "stream_end"
                for session in sessions
            ):
                self.socket.came.clear()
                await self.socket.came.wait()


def measure(rounds: int, seconds: float) -> Report:
    """``rounds`` times ten streams of ``seconds``."""
    about = f"{SESSIONS} sessions that each stream {PER_SECOND} chunks a second to {PHONES} phones, for {seconds:.0f} s; lag: of the event loop, 200 looks a second"
    report = Report("streams", about, COLUMNS)
    with directory() as path:
        script = Script(path, "plain")
        beside = lag.idle(path / "beside")
        try:
            with bridge(
                path / "bridge",
                kind=Watched,
                BRIDGE_ACP_AGENTS=script.setting,
                BRIDGE_MAX_SESSIONS=str(2 * SESSIONS),
            ) as ours:
                assert isinstance(ours, Watched)
                asyncio.run(Streams(ours, script, path / "beside", report).run(rounds, seconds))
        finally:
            stop_process(beside)
    columns = dict(zip(COLUMNS, zip(*report.rows, strict=True), strict=True))
    for name, what in (
        ("first words ms p50", "first words at the phone, median"),
        ("streaming ms p50", "first words while ten others stream, median"),
    ):
        report.goal(what, _median(columns[name]), FIRST_MS, "ms")
    late = _median(columns["lag streaming ms p99"])
    report.goal("the event loop's lag while streaming, p99", late, LAG_MS, "ms")
    wrong = sum(sum(map(float, columns[name])) for name in ("lost", "doubled", "out of order"))
    report.goal("lost, doubled or out of order", wrong, 0)
    return report


def _median(cells: Sequence[Any]) -> float:
    return median(float(cell) for cell in cells)


class Streams:
    def __init__(self, ours: Watched, script: Script, beside: Path, report: Report) -> None:
        self.ours, self.script, self.beside, self.report = ours, script, beside, report

    async def run(self, rounds: int, seconds: float) -> None:
        tokens = [await asyncio.to_thread(self.ours.device_token) for _ in range(PHONES)]
        self.phones = [await Phone.connect(self.ours, token) for token in tokens]
        lives = [asyncio.create_task(phone.live()) for phone in self.phones]
        self.sessions = [await self._begin() for _ in range(SESSIONS + 1)]
        for number in range(rounds):
            self.report.add(number + 1, *await self._round(number, seconds))
            progress(f"streams: round {number + 1} of {rounds}")
        for life, phone in zip(lives, self.phones, strict=True):
            assert not life.done(), life
            life.cancel()
            phone.socket.close()

    async def _begin(self) -> str:
        first, *others = self.phones
        start = ("session_start", "session_ready")
        new: dict[str, Any] = {"agent": "plain", "session_id": None, "resume": False}
        ready = await first.socket.ask(*start, **new, working_directory=str(self.ours.root))
        session = str(ready["payload"]["session_id"])
        for phone in others:
            join = new | {"agent": "", "session_id": session}
            await phone.socket.ask(*start, **join, working_directory="")
        return session

    async def _round(self, number: int, seconds: float) -> tuple[float | int, ...]:
        first, (stamped, *streaming) = self.phones[0], self.sessions
        quiet = [await self._stamp(stamped) for _ in range(STAMPS)]
        began = time.monotonic()
        await asyncio.sleep(QUIET_SECONDS)
        rest, busy = (began, time.monotonic()), []
        for phone in self.phones:
            phone.said.clear()
        server, chunks = psutil.Process(process_of(self.ours)[0]), int(seconds * PER_SECOND)
        used, began = sum(server.cpu_times()[:2]), time.monotonic()
        for one, session in enumerate(streaming):
            first.say(session, f"/rate r{number}s{one} {chunks} {PER_SECOND}")
        for _ in range(STAMPS):
            busy.append(await self._stamp(stamped))
            await asyncio.sleep(
                max(0.0, began + len(busy) * 0.9 * seconds / STAMPS - time.monotonic())
            )
        for phone in self.phones:
            await phone.ended(*streaming)
        until = time.monotonic()
        used = sum(server.cpu_times()[:2]) - used
        await asyncio.sleep(1.5)  # until what was seen of the loops has been written
        of, meanwhile = self.ours.lags, (began, until)
        lags = [
            lag.read(file, *when)
            for file, when in ((of, rest), (of, meanwhile), (self.beside, meanwhile))
        ]
        messages = sum(len(phone.said[session]) for phone in self.phones for session in streaming)
        slowest = max(line["seconds"] for line in self.script.lines("said")[-SESSIONS:])
        times = [figure for some in (quiet, busy) for figure in (median(some), max(some))]
        late = [quantile(some, part) for some in lags for part in (0.5, 0.99, 1.0)]
        wrong = self._wrong(number, chunks)
        return (*times, *late, messages, *wrong, slowest, 100 * used / (until - began))

    async def _stamp(self, session: str) -> float:
        """Milliseconds from when the agent said its first words to when the first phone had
        them.
        """
        phone = self.phones[0]
        phone.said[session].clear()
        phone.say(session, "/stamp")
        await phone.ended(session)
        content, at = next(
            (content, at) for type_, content, at in phone.said[session] if type_ == "stream_chunk"
        )
        return (at - float(content.split()[0])) * 1e3

    def _wrong(self, number: int, chunks: int) -> tuple[int, int, int]:
        """Chunks that were lost, doubled or out of order, at either phone."""
        lost = doubled = reordered = 0
        for phone in self.phones:
            for one, session in enumerate(self.sessions[1:]):
                words = "".join(content for _, content, _ in phone.said[session]).split()
                expected = [f"r{number}s{one}-{chunk}" for chunk in range(chunks)]
                if words != expected:
                    order = [int(word.rpartition("-")[2]) for word in words]
                    lost += len(set(expected) - set(words))
                    doubled += len(words) - len(set(words))
                    reordered += sum(later < earlier for earlier, later in pairwise(order))
        return lost, doubled, reordered
