"""What it costs that agents run in processes of their own (D79)."""

import statistics
import time
from pathlib import Path

import psutil

from tests.conformance.agent_tools import Script, status
from tests.conformance.agents import begin, end, say
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.performance.report import Report, progress
from tests.performance.servers import bridge, directory
from tests.servers import wait_until

SESSIONS, PIECES, EACH_SECONDS = 10, 50, 0.15
DELIVERY_MS, SESSION_MB, BACK_SECONDS = 15.0, 25.0, 3.0
# Each piece is the moment in which it is said.
SPEAK = f"/do for _ in range({PIECES}): say('%d ' % time.time_ns()); time.sleep({EACH_SECONDS})"


def agents(rounds: int, _seconds: float) -> Report:
    """Deliver an agent's text; weigh ten sessions without their agents; kill the bridge."""
    report = Report("agents", f"the bridge with {SESSIONS} agents", "what | p50 | most")
    deliveries, backs, sizes = list[float](), list[float](), list[float]()
    with directory() as path:
        script = Script(path, "plain")
        with bridge(path, BRIDGE_ACP_AGENTS=script.setting, BRIDGE_MAX_SESSIONS="50") as ours:
            ours.pin = ours.pairing().pin
            phone = ours.phone().ready()
            for number in range(rounds):
                sessions = [begin(ours, phone, agent="plain") for _ in range(SESSIONS)]
                deliveries += delivered(phone, sessions[0])
                sizes.append(size_without_agents(ours) / SESSIONS)
                backs.append(seconds_to_come_back(ours, sessions))
                phone.vanish()
                phone.ready()
                for session_id in sessions:
                    phone.join(session_id)
                    end(phone, session_id)
                script.assert_gone()
                progress(f"agents: round {number + 1}")
    for name, measured in (
        ("an agent's text on the phone, ms", deliveries),
        ("PSS of a session without its agent, MB", sizes),
        ("killed, until all sessions are back, s", backs),
    ):
        report.add(name, statistics.median(measured), max(measured))
    report.goal("text on the phone, p50", statistics.median(deliveries), DELIVERY_MS, "ms")
    report.goal("a session without its agent", statistics.median(sizes), SESSION_MB, "MB")
    report.goal("all sessions back", statistics.median(backs), BACK_SECONDS, "s")
    return report


def delivered(phone: Phone, session_id: str) -> list[float]:
    """The milliseconds from each piece that the agent says to the phone."""
    say(phone, session_id, SPEAK)
    found = []
    while True:
        message = phone.receive(60)
        now = time.time_ns()
        if message["type"] == "stream_chunk":
            found.append((now - int(message["payload"]["content"].split()[0])) / 1e6)
        if message["type"] == "stream_end":
            return found


def size_without_agents(bridge: Bridge) -> float:
    """The megabytes of memory that all below the bridge have, but for the agents."""
    below = psutil.Process(bridge.running.pid).children(recursive=True)
    ours = [one for one in below if "scripted_agent" not in " ".join(one.cmdline())]
    return sum(_pss(one.pid) for one in ours) / 2**10


def _pss(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


def seconds_to_come_back(bridge: Bridge, sessions: list[str]) -> float:
    bridge.kill()
    began = time.monotonic()
    bridge.start()
    wait_until(lambda: all(status(bridge, one) == "active" for one in sessions))
    return time.monotonic() - began
