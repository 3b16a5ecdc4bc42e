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
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridge_project import __version__
from bridge_project.kernel.config import Conf
from bridge_project.operations.doctor import agents
from bridge_project.operations.doctor.findings import Finding, Level
from bridge_project.operations.doctor.snapshot import Snapshot
from sessions_app.agents import registry
from sessions_app.agents.acp.driver import AcpDriver
from sessions_app.agents.claude import agent
from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import AgentKind, CannotStart
from sessions_app.agents.events import AgentDied, Chunk, TurnEnded
from sessions_app.agents.process import groups
from tests.agents.drive import carrying, command
from tests.faults.quick import QuickBridge, nursery
from tests.run.findings import only
from tests.servers import wait_until
from tests.sessions.agent_driver import Scripted

Add = Callable[..., list[Scripted]]
ABSENT = "It is not installed."
# As a terminal starts a command: who runs tests in the background may have them ignore Ctrl-C, and
# what they start with them.
INTERRUPTIBLE = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    """A bridge with this data directory that does not run, and no kind of agent yet; whatever is
    made for a moment is made in ``tmp_path/brief``.
    """
    monkeypatch.setattr(registry, "load", lambda: None)
    monkeypatch.setattr(registry, "KINDS", {})
    monkeypatch.setattr(groups, "_instance", groups._instance)
    (tmp_path / "brief").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "brief"))
    return Snapshot(Conf(bridge_data_dir=tmp_path, bridge_acp_agents="named=named --acp"))


@pytest.fixture
def add(seen: Snapshot, monkeypatch: pytest.MonkeyPatch) -> Add:
    """Add a kind of agent; returns the drivers that are made of it."""

    def add(
        name: str,
        *,
        why_not: str | None = None,
        real: bool = True,
        version: Callable[[], str] = lambda: "1.2",
        **script: Any,
    ) -> list[Scripted]:
        made: list[Scripted] = []

        def make() -> Scripted:
            made.append(type("Of" + str(len(made)), (Scripted,), script)())
            return made[-1]

        mend = "" if name == "named" else f"install {name}"
        registry.KINDS[name] = AgentKind(name, make, lambda: why_not, version, real, lambda: mend)
        return made

    return add


# -- without starting it ---------------------------------------------------------------------------

OK, WARNING, BROKEN = Level.OK, Level.WARNING, Level.BROKEN


@pytest.mark.parametrize(
    ("name", "why_not", "default", "level", "said", "mend"),
    [
        (
            "real",
            None,
            "",
            OK,
            'not started; BRIDGE_DATA_DIR=* make doctor ARGS="--agent real"',
            "",
        ),
        ("other", ABSENT, "", OK, f"other cannot start here: {ABSENT}", ""),
        ("named", ABSENT, "", WARNING, ABSENT, "BRIDGE_ACP_AGENTS='named=…'*"),
        ("real", ABSENT, "real", BROKEN, ABSENT, "install real"),
        ("real", None, "reel", BROKEN, "no agent reel; known are: real", "BRIDGE_DEFAULT_AGENT= *"),
    ],
)
def test_one_agent(
    add: Add,
    seen: Snapshot,
    name: str,
    why_not: str | None,
    default: str,
    level: Level,
    said: str,
    mend: str,
) -> None:
    """It is a fault when sessions depend on it; a real one is started only when asked for."""
    made = add(name, why_not=why_not)
    conf = seen.conf.model_copy(update={"bridge_default_agent": default})
    found = agents.agents(replace(seen, conf=conf))[-1]
    assert found.level is level and fnmatch(found.text, f"*{said}*")
    assert fnmatch(found.mend[0], mend) if mend else not found.mend
    assert made == []


def test_a_version_that_does_not_come(
    add: Add, seen: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version of one agent keeps nobody: it may run a program."""
    free = threading.Event()

    def never() -> str:
        free.wait(180)
        return "late"

    monkeypatch.setattr(agents, "ASK_SECONDS", 0.2)
    add("slow", version=never)
    add("broken", version=lambda: str(1 // 0))
    began = time.monotonic()
    try:
        found = agents.agents(seen)
    finally:
        free.set()
    assert time.monotonic() - began < 60
    slow, broken = (one.text for one in found)
    assert "version unknown" in slow and "version unknown: ZeroDivisionError" in broken


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"agents": [{"name": "real", "can_start": False, "reason": "It is not on the PATH."}]},
            "It is not on the PATH.",
        ),
        ({"agents": [{"name": "else", "can_start": True}]}, "does not know"),
        ({"agents": [{"name": "real", "can_start": True}]}, ""),
        ({"code": "RATE_LIMITED"}, ""),
    ],
)
def test_the_bridge_that_runs_sees_it_otherwise(
    add: Add, seen: Snapshot, body: dict[str, Any], said: str
) -> None:
    """A service has another PATH than a terminal: what counts is what the bridge can start."""
    add("real")
    found = only(agents.agents(replace(seen, info=body)), Level.WARNING if said else Level.OK)
    assert said in found.text


def test_claude_code_says_what_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reason goes to devices: it names what is missing and the command, and no path of the
    machine.
    """
    for package, words in ((None, "pip install -r"), (tmp_path, "--force-reinstall")):
        monkeypatch.setattr(agent, "_package", lambda package=package: package)
        monkeypatch.setenv("PATH", str(tmp_path))
        reason = agent.why_not()
        assert reason and words in reason and agent.mend() in reason and str(tmp_path) not in reason


# -- starting it -----------------------------------------------------------------------------------


def test_the_demo_is_really_started(
    seen: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo itself: started, prompted, answered, closed, and nothing is left of it."""
    demo = AgentKind("demo", DemoDriver, version=lambda: __version__, real=False)
    monkeypatch.setattr(registry, "KINDS", {"demo": demo})
    found = only(agents.agents(seen), Level.OK)
    assert "demo (scripted" in found.text and "answered a prompt" in found.text
    assert list((tmp_path / "brief").iterdir()) == []


@pytest.mark.parametrize(
    ("says", "said"),
    [
        ((TurnEnded("error", error="No idea."),), "No idea."),
        ((Chunk("Something else."), TurnEnded("stop")), "Something else."),
        ((AgentDied("Out of memory."),), "Out of memory."),
        ((), "within 0.2 s"),
    ],
)
def test_a_demo_that_does_not_answer(
    add: Add, seen: Snapshot, monkeypatch: pytest.MonkeyPatch, says: tuple[Any, ...], said: str
) -> None:
    monkeypatch.setattr(agents, "DEMO_SECONDS", 20.0 if says else 0.2)
    made = add("demo", real=False, on_prompt=lambda driver: driver.say(*says))
    found = only(agents.agents(seen), Level.BROKEN)
    assert said in found.text and found.mend
    assert made[0].closed.is_set()


def test_a_real_one_is_started_and_closed_only(add: Add, seen: Snapshot) -> None:
    """A prompt would cost something."""
    made = add("real")
    found = agents.trial(seen, "real")
    assert (
        found.level is Level.OK and "real (1.2) started, was closed, without a prompt" in found.text
    )
    (driver,) = made
    assert driver.prompts == [] and driver.closed.is_set()


async def refuses(driver: Scripted) -> None:
    raise CannotStart("It wants a login.")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("refusing", "It wants a login."),
        ("absent", ABSENT),
        ("nobody", "known are: refusing, absent"),
    ],
)
def test_a_real_one_that_does_not_start(add: Add, seen: Snapshot, name: str, said: str) -> None:
    add("refusing", on_start=refuses)
    add("absent", why_not=ABSENT)
    found: Finding = agents.trial(seen, name)
    assert found.level is Level.BROKEN and said in found.text and found.mend


def test_one_that_never_answers_is_ended(seen: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a time of its own, and its process is gone when that is over."""
    mark = f"never-{uuid.uuid4()}"
    monkeypatch.setattr(agents, "REAL_SECONDS", 0.5)
    mute = AgentKind("mute", partial(AcpDriver, "mute", _mute(mark)), lambda: None, str)
    monkeypatch.setattr(registry, "KINDS", {"mute": mute})
    found = agents.trial(seen, "mute")
    assert found.level is Level.BROKEN and "did not start within 0.5 s" in found.text
    assert carrying(mark) == []


def _mute(mark: str) -> list[str]:
    """A semicolon would end the command in BRIDGE_ACP_AGENTS."""
    return [sys.executable, "-c", "__import__('time').sleep(600)", mark]


# -- the command -----------------------------------------------------------------------------------

MARK = f"never-{uuid.uuid4()}"


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickBridge]:
    """One that is not started, with three agents of the Agent Client Protocol."""
    agents = {
        "acp": command("tests.agents.acp_agent"),
        "gone": ["no-such-agent", "--acp"],
        "mute": _mute(MARK),
    }
    lines = "; ".join(f"{name}={shlex.join(words)}" for name, words in agents.items())
    made = QuickBridge(tmp_path_factory.mktemp("agents"), BRIDGE_ACP_AGENTS=lines)
    yield made
    nursery.forget(made.environment)


def test_the_command_starts_the_one_that_is_asked_for(bridge: QuickBridge) -> None:
    """`doctor --agent NAME`; the version of such an agent is known when it has been started."""
    done = bridge.manage("doctor", "--json", "--agent", "acp", check=False)
    told = json.loads(done.stdout)["checks"]
    said = {one["text"].split()[0]: one for one in told if one["check"] == "agents"}
    assert "answered a prompt" in said["demo"]["text"] and said["demo"]["level"] == "ok"
    assert said["gone"]["level"] == "warning"
    last = told[-1]["text"]
    assert last.startswith("acp (") and "started, was closed" in last
    assert "version unknown" not in last


def test_it_can_be_interrupted(bridge: QuickBridge, tmp_path: Path) -> None:
    """Ctrl-C while an agent is being started ends the agent too."""
    words = ["-c", "manage.py", "doctor", "--agent", "mute"]
    with (tmp_path / "doctor.log").open("ab") as log:
        doctor = nursery.spawn(words, bridge.environment, log, log, INTERRUPTIBLE)
    try:
        wait_until(lambda: _started(MARK, doctor.pid), 30, "the agent is started")
        os.kill(doctor.pid, signal.SIGINT)
        assert doctor.wait(180) == 130, (tmp_path / "doctor.log").read_text()
        assert [pid for pid in carrying(MARK) if pid != doctor.pid] == []
    finally:
        if doctor.poll() is None:
            doctor.kill()


def _started(mark: str, doctor: int) -> bool:
    """Tell whether the agent's own process has the mark, which the doctor has in its settings."""
    found = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False)
    return any(int(pid) != doctor for pid in found.stdout.split())
