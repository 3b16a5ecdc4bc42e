"""What `doctor` says of the agents: which can start here, why one cannot, the command that mends
it; demo is really started (D41, D43).
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.drive import carrying
from tests.conformance.agent_tools import PROGRAM
from tests.faults.quick import QuickBridge, nursery
from tests.servers import wait_until

# As a terminal starts a command: who runs tests in the background may have them ignore Ctrl-C, and
# what they start with them.
INTERRUPTIBLE = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


MARK = f"never-{uuid.uuid4()}"
# A semicolon would end the command in BRIDGE_ACP_AGENTS.
MUTE = [sys.executable, "-c", "__import__('time').sleep(600)", MARK]


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickBridge]:
    """One that is not started, with three agents of the Agent Client Protocol."""
    place = tmp_path_factory.mktemp("agents")
    agents = {
        "acp": [sys.executable, "-IS", str(PROGRAM), "plain", str(place / "journal")],
        "gone": ["no-such-agent", "--acp"],
        "mute": MUTE,
    }
    lines = "; ".join(f"{name}={shlex.join(words)}" for name, words in agents.items())
    made = QuickBridge(place, BRIDGE_ACP_AGENTS=lines)
    yield made
    nursery.forget(made.environment)


def doctor(bridge: QuickBridge, *words: str, **settings: str) -> list[dict[str, Any]]:
    """All that the command says of agents, in order."""
    before = dict(bridge.settings)
    bridge.settings |= settings
    try:
        done = bridge.manage("doctor", "--json", *words, check=False)
    finally:
        if settings:
            nursery.forget(bridge.environment)
        bridge.settings = before
    assert done.stdout, done.stderr
    return [one for one in json.loads(done.stdout)["checks"] if "agent" in one["check"]]


def test_the_command_starts_the_one_that_is_asked_for(bridge: QuickBridge) -> None:
    """`doctor --agent NAME`; the version of such an agent is known when it has been started. One
    that cannot start is a fault when it is asked for.
    """
    told = doctor(bridge, "--agent", "acp")
    said = {one["text"].split()[0]: one for one in told}
    assert "answered a prompt" in said["demo"]["text"] and said["demo"]["level"] == "ok"
    assert said["gone"]["level"] == "warning" and said["gone"]["mend"]
    last = told[-1]["text"]
    assert last.startswith("acp (") and "started, was closed, without a prompt" in last
    assert "version unknown" not in last
    for name, words in (("gone", "no-such-agent"), ("nobody", "known are: ")):
        last_said = doctor(bridge, "--agent", name)[-1]
        assert last_said["level"] == "broken" and words in last_said["text"], last_said
        assert last_said["mend"]


def test_the_one_that_sessions_depend_on(bridge: QuickBridge) -> None:
    told = doctor(bridge, BRIDGE_DEFAULT_AGENT="gone")
    (default,) = [one for one in told if one["level"] == "broken"]
    assert "gone" in default["text"] and default["mend"], told


def test_one_that_never_answers_is_ended(bridge: QuickBridge) -> None:
    """It has a time of its own, and its process is gone when that is over."""
    bridge.first = "from bridge_project.operations.doctor import agents; agents.REAL_SECONDS = 2\n"
    try:
        told = doctor(bridge, "--agent", "mute")[-1]
    finally:
        bridge.first = ""
    assert told["level"] == "broken" and "did not start within 2 s" in told["text"]
    assert carrying(MARK) == []


def test_it_can_be_interrupted(bridge: QuickBridge, tmp_path: Path) -> None:
    """Ctrl-C while an agent is being started ends the agent too."""
    words = ["-c", "manage.py", "doctor", "--agent", "mute"]
    with (tmp_path / "doctor.log").open("ab") as log:
        doctor = nursery.spawn(words, bridge.environment, log, log, INTERRUPTIBLE)
    try:
        # the doctor has the mark in its settings, the agent's process in its command line
        wait_until(lambda: started() - {doctor.pid}, "the agent is started")
        os.kill(doctor.pid, signal.SIGINT)
        assert doctor.wait(180) == 130, (tmp_path / "doctor.log").read_text()
        assert [pid for pid in carrying(MARK) if pid != doctor.pid] == []
    finally:
        if doctor.poll() is None:
            doctor.kill()


def started() -> set[int]:
    found = subprocess.run(["pgrep", "-f", MARK], capture_output=True, text=True)
    return {int(pid) for pid in found.stdout.split()}
