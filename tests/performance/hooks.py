"""The installed hook command: the agent's wait for it, and its event's way to a phone."""

import asyncio
import json
import os
import re
import subprocess
import tempfile
import time
from asyncio.subprocess import PIPE
from collections import defaultdict
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from bridge_project.kernel.limits import MB
from hooks_app.producer.shell_command import BRIDGE_SECONDS, answer_command
from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_session
from tests.hooks.scripted import fixture
from tests.live.test_real_hooks import Agent
from tests.performance.load import quantile
from tests.performance.report import Report, progress
from tests.performance.servers import bridge, connect, directory
from tests.performance.sockets import clock

# What a working agent sends: nine of ten are a tool that is called or has run.
WORK = [
    "UserPromptSubmit",
    *("PreToolUse-Bash", "PostToolUse-Bash", "PreToolUse-Edit", "PostToolUse-Edit") * 2,
    "PreToolUse-Read",
    "PostToolUse-Read",
]
ASKS = "PermissionRequest-Bash"


def spawn(command: str, stdin: Path, output: int | None = None) -> int:
    """Run a command as an agent does, with nothing of Python's subprocess in between; its pid."""
    given = os.open(stdin, os.O_RDONLY)
    ends = [(given, 0)] if output is None else [(given, 0), (output, 1), (output, 2)]
    try:
        return os.posix_spawn(
            "/bin/sh",
            ["/bin/sh", "-c", command],
            {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            file_actions=[(os.POSIX_SPAWN_DUP2, *each) for each in ends],
        )
    finally:
        os.close(given)


WARM_UP = 5
MEDIAN, P90 = 2.0, 3.0  # times fork+exec


def hookwait(rounds: int, _: float) -> Report:
    """Run each command in turns, beside `fork+exec`, a shell that becomes `true`."""
    columns = "what | p50 ms | p90 ms | max ms | p50 ratio | p90 ratio | failed or printed"
    report = Report("hookwait", "the installed hook command beside fork+exec", columns)
    with directory() as path, bridge(path / "bridge") as ours:
        small, large = path / "small.json", path / "large.json"
        event = fixture("PreToolUse-Bash")
        small.write_text(json.dumps(event))
        large.write_text(json.dumps(event | {"tool_input": {"command": "x" * 200_000}}))
        installed = Agent(ours, path / "settings.json").command("PreToolUse")
        commands = {"fork+exec": ("exec true", small)}
        commands |= {"hook": (installed, small), "hook, 200 kB": (installed, large)}
        _compare(report, "bridge up", commands, rounds)
        asyncio.run(_answer(report, ours))
        _wait(report, ours.data / "spool")
        ours.stop()
        _compare(report, "bridge down", commands, rounds)
    return report


WATCHED_SECONDS = 10.0


ANSWERS = 50


def _beside() -> dict[str, str]:
    """What a hook knows that may wait: this process is the program that shows the dialog."""
    return os.environ | {"CLAUDE_CODE_ENTRYPOINT": "cli", "CLAUDE_PID": str(os.getpid())}


def _wait(report: Report, spool: Path) -> None:
    """Measure what a hook takes while it waits for an answer beside a dialog (D66)."""
    with subprocess.Popen(
        ["/bin/sh", "-c", answer_command(str(spool))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_beside(),
    ) as hook:
        assert hook.stdin
        hook.stdin.write(json.dumps(fixture(ASKS)).encode())
        hook.stdin.close()
        time.sleep(BRIDGE_SECONDS + 1)  # by then only the bridge can keep it
        process = Path("/proc", str(hook.pid))
        before = _cpu_ms(process)
        time.sleep(WATCHED_SECONDS)
        cpu = (_cpu_ms(process) - before) * 3600 / WATCHED_SECONDS
        megabytes = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / MB
        report.goal("a hook that waits, MB", megabytes, 3.0)
        report.goal("a hook that waits, ms of CPU an hour", cpu, 20.0)
        hook.terminate()


async def _answer(report: Report, ours: Bridge) -> None:
    """Measure from the hook's start to the phone, and from there until the hook has answered."""
    session, shown, taken = new_session(), list[float](), list[float]()
    ours.accept(hook("SessionStart", session))
    phone = await connect(ours, ours.device_token(), session)
    command = answer_command(str(ours.data / "spool"))
    for number in range(WARM_UP + ANSWERS):
        call = {"session_id": session, "tool_input": {"command": f"touch {number}"}}
        start = clock()
        waits = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", command), stdin=PIPE, stdout=PIPE, env=_beside()
        )
        printed = asyncio.create_task(_printed(waits, json.dumps(fixture(ASKS) | call).encode()))
        card = (await phone.expect("approval_required"))["payload"]
        shown.append((clock() - start) * 1e3)
        decided = {"decision": "approved", "modifications": None}
        about = {"session_id": session, "tool_call_id": card["tool_call_id"]}
        start = clock()
        await phone.ask("approval_response", "approval_recorded", **about, **decided)
        text, end = await printed
        assert b'"allow"' in text, text
        taken.append((end - start) * 1e3)
    phone.close()
    for what, took, most in (("to the card", shown, 100.0), ("from the tap", taken, 150.0)):
        del took[:WARM_UP]
        report.add(f"{what} (D66)", median(took), quantile(took, 0.9), max(took), "", "", 0)
        report.goal(f"a dialog {what}, p50", median(took), most, "ms")


async def _printed(waits: asyncio.subprocess.Process, event: bytes) -> tuple[bytes, float]:
    """What a hook has said at its end, and when that was."""
    text, _ = await waits.communicate(event)
    return text, clock()


def _cpu_ms(process: Path) -> float:
    return int((process / "schedstat").read_text().split()[0]) / 1e6


def _compare(
    report: Report, state: str, commands: dict[str, tuple[str, Path]], rounds: int
) -> None:
    times: dict[str, list[float]] = defaultdict(list)
    wrong: dict[str, int] = defaultdict(int)
    for _ in range(rounds + WARM_UP):
        for name, command in commands.items():
            said, path = tempfile.mkstemp()
            os.unlink(path)
            start = clock()
            status = os.waitpid(spawn(*command, said), 0)[1]
            times[name].append((clock() - start) * 1e3)
            wrong[name] += status != 0 or os.fstat(said).st_size > 0
            os.close(said)
    progress(f"hookwait: {state}")
    least = times["fork+exec"][WARM_UP:]
    for name, took in times.items():
        del took[:WARM_UP]
        p50, p90 = median(took), quantile(took, 0.9)
        ratios = p50 / median(least), p90 / quantile(least, 0.9)
        report.add(f"{name}, {state}", p50, p90, max(took), *ratios, wrong[name])
        if name != "fork+exec":
            report.goal(f"{name}, {state}, p50", ratios[0], MEDIAN, "times fork+exec")
            report.goal(f"{name}, {state}, p90", ratios[1], P90, "times fork+exec")
            report.goal(f"{name}, {state}, runs that failed or printed", wrong[name], 0)


SESSIONS = [f"agent-{number}" for number in range(5)]
STORY = [(name, session) for name in WORK for session in SESSIONS]
AT_ONCE, ALL_WITHIN = 500, 2.0  # seconds
STILL_SECONDS = 30.0  # nothing came for this long: nothing more will
SERIAL = re.compile(rb'"prompt_id":"way-(\d+)"')
# What → (p50, p99) in milliseconds at most (None: no goal).
GOALS = {"2 a second": (7.0, 25.0), "20 a second": (12.0, 80.0), "permission request": (30.0, None)}


class Way:
    """Fires captured hooks, and remembers when each was fired and when it arrived."""

    def __init__(self, command: str, path: Path) -> None:
        self.command, self.path = command, path
        self.fired: dict[int, float] = {}
        self.came: dict[int, float] = {}
        self.wrong = 0  # doubled, or out of order in its session
        self._calls: dict[str, str] = {}  # session → id of its newest call
        self._moments: dict[str, str] = defaultdict(str)  # session → time of its newest event
        self.newest = 0.0  # when something came
        self._running: list[int] = []

    def write(self, name: str, session: str) -> int:
        """A captured file as one of this session, with a serial number; not fired yet."""
        serial = len(self.fired)
        self.fired[serial] = 0.0
        raw = fixture(name) | {"session_id": session, "prompt_id": f"way-{serial}"}
        if name.startswith("PreToolUse"):
            self._calls[session] = f"call-{serial}"
        if "tool_use_id" in raw:
            raw["tool_use_id"] = self._calls[session]
        (self.path / f"{serial}.json").write_text(json.dumps(raw))
        return serial

    def fire(self, serial: int) -> None:
        self.fired[serial] = clock()
        self._running.append(spawn(self.command, self.path / f"{serial}.json"))

    async def finish(self) -> None:
        """Wait until everything has arrived, or nothing has for a while."""
        self.newest = clock()
        while len(self.came) < len(self.fired) and clock() - self.newest < STILL_SECONDS:
            await asyncio.sleep(0.05)
        while self._running:
            os.waitpid(self._running.pop(), 0)

    def look(self, text: bytes, at: float) -> None:
        found = SERIAL.search(text)
        if not found or b'"type":"agent_event"' not in text[:200]:
            return
        serial, payload = int(found[1]), json.loads(text)["payload"]
        session, moment = payload["session_id"], payload["timestamp"]
        self.wrong += serial in self.came or moment < self._moments[session]
        self.came.setdefault(serial, at)
        self.newest, self._moments[session] = at, moment

    async def rate(self, rate: int, seconds: float) -> tuple[list[int], list[int]]:
        """Fire so many a second, and beside them a permission request a second; both's serials."""
        others, asked, began = list[int](), list[int](), clock()
        for number, (name, session) in enumerate(islice(cycle(STORY), int(rate * seconds))):
            await asyncio.sleep(max(0.0, began + number / rate - clock()))
            others.append(self.write(name, session))
            self.fire(others[-1])
            if rate > 5 and number % rate == rate // 2:
                asked.append(self.write(ASKS, session))
                self.fire(asked[-1])
        await self.finish()
        progress(f"hookway: {rate} a second")
        return others, asked

    async def at_once(self) -> float:
        """Seconds until the last of them is there."""
        serials = [self.write(*step) for step in islice(cycle(STORY), AT_ONCE)]
        for serial in serials:
            self.fire(serial)
            await asyncio.sleep(0)
        await self.finish()
        progress(f"hookway: {AT_ONCE} at once")
        return max(self.came.get(serial, 0.0) for serial in serials) - self.fired[serials[0]]


def hookway(rounds: int, seconds: float) -> Report:
    """Each rate for ``seconds``; 500 at once ``rounds`` times; rate limits are on."""
    columns = "what | events | p50 ms | p99 ms | max ms"
    report = Report("hookway", f"hook command to phone, {len(SESSIONS)} sessions", columns)

    async def measure(way: Way) -> None:
        ours.accept(*[hook("SessionStart", session) for session in SESSIONS])
        phone = await connect(ours, ours.device_token(), *SESSIONS)
        phone.on_text = way.look
        await way.rate(5, 2)  # warm up
        slow, _ = await way.rate(2, seconds)
        fast, asked = await way.rate(20, seconds)
        for what, serials in zip(GOALS, (slow, fast, asked), strict=True):
            times = [(way.came[n] - way.fired[n]) * 1e3 for n in serials if n in way.came]
            parts = quantile(times, 0.5), quantile(times, 0.99)
            report.add(what, len(serials), *parts, max(times, default=0.0))
            for name, part, limit in zip(("p50", "p99"), parts, GOALS[what], strict=True):
                if limit is not None:
                    report.goal(f"{what}, {name}", part, limit, "ms")
        took = max([await way.at_once() for _ in range(rounds)])
        report.add(f"{AT_ONCE} at once", rounds * AT_ONCE, "", "", took * 1e3)
        report.goal(f"{AT_ONCE} at once, all there", took, ALL_WITHIN, "s")
        wrong = len(way.fired) - len(way.came) + way.wrong
        report.goal("lost, doubled or out of order in a session", wrong, 0)
        phone.close()

    with directory() as path, bridge(path / "bridge", BRIDGE_RATE_LIMITS="on") as ours:
        command = Agent(ours, path / "settings.json").command("PreToolUse")
        asyncio.run(measure(Way(command, path)))
    return report
