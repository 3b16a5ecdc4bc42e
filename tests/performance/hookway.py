"""The whole way of an event: from the spawn of the installed hook command to a phone's socket.

The captured hook files go through the command that `install_hooks` wrote, the spool and the
forwarder of a `serve` with its rate limits on. Each event carries a serial number, which is looked
for in every frame that the phone gets.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import defaultdict
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tests.conformance.bridge import REPOSITORY
from tests.conformance.samples import hook
from tests.performance.load import quantile
from tests.performance.report import Report, progress
from tests.performance.servers import bridge, connect, directory, installed_hook
from tests.performance.sockets import Socket, clock

FIXTURES = REPOSITORY / "tests" / "fixtures" / "hooks"
# What a working agent sends: nine of ten are a tool that is called or has run.
WORK = [
    "UserPromptSubmit",
    *("PreToolUse-Bash", "PostToolUse-Bash", "PreToolUse-Edit", "PostToolUse-Edit") * 2,
    "PreToolUse-Read",
    "PostToolUse-Read",
]
ASKS = "PermissionRequest-Bash"
SESSIONS = [f"agent-{number}" for number in range(5)]
STORY = [(name, session) for name in WORK for session in SESSIONS]
AT_ONCE = 500
STILL_SECONDS = 30.0  # nothing came for this long: nothing more will
SERIAL = re.compile(rb'"prompt_id":"way-(\d+)"')
# What → (p50, p99) in milliseconds at most (None: no goal).
GOALS = {"2 a second": (7.0, 25.0), "20 a second": (12.0, 80.0), "permission request": (30.0, None)}
ALL_WITHIN = 2.0  # seconds, of AT_ONCE
COLUMNS = ("what", "events", "p50 ms", "p99 ms", "max ms", "lost", "doubled", "reordered")


class Way:
    """Fires hooks, and remembers when each was fired and when it arrived."""

    def __init__(self, command: str, path: Path, phone: Socket) -> None:
        self.command, self.path, self.phone = command, path, phone
        self.fired: dict[int, float] = {}
        self.came: dict[int, float] = {}
        self.doubled = self.reordered = 0
        self._calls: dict[str, str] = {}  # session → id of its newest call
        self._newest: dict[str, str] = defaultdict(str)  # session → time of its newest event
        self._running: list[int] = []
        phone.on_text = self._look

    def write(self, name: str, session: str) -> tuple[int, Path]:
        """A captured file as one of this session, with a serial number; not fired yet."""
        serial = len(self.fired)
        self.fired[serial] = 0.0
        raw: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
        raw |= {"session_id": session, "prompt_id": f"way-{serial}"}
        if name.startswith("PreToolUse"):
            self._calls[session] = f"call-{serial}"
        if "tool_use_id" in raw:
            raw["tool_use_id"] = self._calls[session]
        given = self.path / f"{serial}.json"
        given.write_text(json.dumps(raw))
        return serial, given

    def fire(self, serial: int, given: Path) -> None:
        """Run the command as an agent does, without waiting for it."""
        stdin = os.open(given, os.O_RDONLY)
        self.fired[serial] = clock()
        self._running.append(
            os.posix_spawn(
                "/bin/sh",
                ["/bin/sh", "-c", self.command],
                {"PATH": os.environ["PATH"]},
                file_actions=[(os.POSIX_SPAWN_DUP2, stdin, 0)],
            )
        )
        os.close(stdin)

    async def finish(self) -> None:
        """Wait until everything has arrived, or nothing has for a while."""
        before, since = -1, clock()
        while len(self.came) < len(self.fired) and clock() - since < STILL_SECONDS:
            if len(self.came) != before:
                before, since = len(self.came), clock()
            await asyncio.sleep(0.05)
        for process in self._running:
            os.waitpid(process, 0)
        self._running.clear()

    def _look(self, text: bytes, at: float) -> None:
        found = SERIAL.search(text)
        if not found or b'"type":"agent_event"' not in text[:200]:
            return
        serial, payload = int(found[1]), json.loads(text)["payload"]
        self.doubled += serial in self.came
        self.came.setdefault(serial, at)
        self.reordered += payload["timestamp"] < self._newest[payload["session_id"]]
        self._newest[payload["session_id"]] = payload["timestamp"]

    def times(self, serials: set[int]) -> list[float]:
        return [(self.came[n] - self.fired[n]) * 1e3 for n in serials if n in self.came]


def measure(rounds: int, seconds: float) -> Report:
    """Each rate for ``seconds``; 500 at once ``rounds`` times."""
    return asyncio.run(_measure(rounds, seconds))


async def _measure(rounds: int, seconds: float) -> Report:
    report = Report("hookway", f"hook command to phone, {len(SESSIONS)} sessions", COLUMNS)
    with directory() as path, bridge(path / "bridge", BRIDGE_RATE_LIMITS="on") as ours:
        command = installed_hook(ours)
        ours.accept(*[hook("SessionStart", session) for session in SESSIONS])
        phone = await connect(ours, ours.device_token(), *SESSIONS)
        way = Way(command, path, phone)
        await _rate(way, 5, 2)  # warm up
        await way.finish()
        for rate, what in ((2, "2 a second"), (20, "20 a second")):
            asked, others = await _rate(way, rate, seconds)
            await way.finish()
            _add(report, way, what, others)
            if rate == 20:
                _add(report, way, "permission request", asked)
        took = [await _at_once(way) for _ in range(rounds)]
        report.add(f"{AT_ONCE} at once", rounds * AT_ONCE, *[""] * 2, max(took), *_faults(way))
        report.goal(f"{AT_ONCE} at once, all there", max(took) / 1e3, ALL_WITHIN, "s")
        report.goal("lost, doubled or out of order in a session", sum(_faults(way)), 0)
        phone.close()
    return report


async def _rate(way: Way, rate: int, seconds: float) -> tuple[set[int], set[int]]:
    """Fire so many a second, and beside them a permission request a second; the serials of both."""
    asked: set[int] = set()
    others: set[int] = set()
    began = clock()
    for number, (name, session) in zip(range(int(rate * seconds)), cycle(STORY), strict=False):
        await asyncio.sleep(max(0.0, began + number / rate - clock()))
        events = [name, ASKS] if rate > 5 and number % rate == rate // 2 else [name]
        for one in events:
            serial, given = way.write(one, session)
            (asked if one == ASKS else others).add(serial)
            way.fire(serial, given)
    progress(f"hookway: {rate} a second")
    return asked, others


async def _at_once(way: Way) -> float:
    """Milliseconds until the last of them is there."""
    written = [way.write(*step) for step in islice(cycle(STORY), AT_ONCE)]
    for one in written:
        way.fire(*one)
        await asyncio.sleep(0)
    await way.finish()
    progress(f"hookway: {AT_ONCE} at once")
    serials = {serial for serial, _ in written}
    return (max(way.came[n] for n in serials & way.came.keys()) - way.fired[min(serials)]) * 1e3


def _faults(way: Way) -> tuple[int, int, int]:
    return len(way.fired) - len(way.came), way.doubled, way.reordered


def _add(report: Report, way: Way, what: str, serials: set[int]) -> None:
    times = way.times(serials)
    p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
    report.add(what, len(serials), p50, p99, max(times, default=0.0), *_faults(way))
    for part, measured, limit in (("p50", p50, GOALS[what][0]), ("p99", p99, GOALS[what][1])):
        if limit is not None:
            report.goal(f"{what}, {part}", measured, limit, "ms")
