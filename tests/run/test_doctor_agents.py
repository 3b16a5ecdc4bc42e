"""What `doctor` says of the agents: which can start here, and why one cannot (D41, D43)."""

import json
import shlex
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents.drive import carrying
from tests.conformance.agent_tools import PROGRAM
from tests.faults.quick import QuickBridge, nursery
from tests.run.test_doctor import doctor

# A busy machine may take longer than a person would wait.
PATIENT = """
from bridge_project.operations.doctor import agents, checks
agents.DEMO_SECONDS = checks.CHECK_SECONDS = 300
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


def said_of_agents(
    bridge: QuickBridge, *words: str, first: str = PATIENT, **more: str
) -> list[dict[str, Any]]:
    """All that the command says of them, in order."""
    checks = json.loads(doctor(bridge, *words, first=first, **more).stdout)["checks"]
    return [one for one in checks if "agent" in one["check"]]


def test_the_command_starts_the_one_that_is_asked_for(bridge: QuickBridge) -> None:
    """`doctor --agent NAME`: one that cannot start is a fault when it is asked for."""
    told = said_of_agents(bridge, "--agent", "acp")
    said = {one["text"].split()[0]: one for one in told}
    assert "answered a prompt" in said["demo"]["text"] and said["demo"]["level"] == "ok"
    assert said["gone"]["level"] == "warning" and said["gone"]["mend"]
    last = told[-1]["text"]
    assert last.startswith("acp (") and "started, was closed, without a prompt" in last
    assert "version unknown" not in last
    for name, words in (("gone", "no-such-agent"), ("nobody", "known are: ")):
        last_said = said_of_agents(bridge, "--agent", name)[-1]
        assert last_said["level"] == "broken" and words in last_said["text"], last_said
        assert last_said["mend"]


def test_the_one_that_sessions_depend_on(bridge: QuickBridge) -> None:
    told = said_of_agents(bridge, BRIDGE_DEFAULT_AGENT="gone")
    (default,) = [one for one in told if one["level"] == "broken"]
    assert "gone" in default["text"] and default["mend"], told


def test_one_that_never_answers_is_ended(bridge: QuickBridge) -> None:
    """It has a time of its own, and its process is gone when that is over."""
    first = f"{PATIENT}agents.REAL_SECONDS = 2\n"
    told = said_of_agents(bridge, "--agent", "mute", first=first)[-1]
    assert told["level"] == "broken" and "did not start within 2 s" in told["text"]
    assert carrying(MARK) == []
