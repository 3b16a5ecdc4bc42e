"""A bridge that runs an ACP agent: from the phone to the agent's process and back, with approvals, files, and a bridge that is killed (D35, D38, D41)."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.drive import carrying, command
from tests.conformance.agents import ask, begin, end, say, words
from tests.conformance.approvals import decide
from tests.conformance.bridge import Bridge

AGENTS = {"demo-acp": "sessions_app.agents.demo_acp", "strange": "tests.agents.strange"}


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    lines = [f"{name}={shlex.join(command(module))}" for name, module in AGENTS.items()]
    bridge = Bridge(tmp_path_factory.mktemp("acp bridge"), BRIDGE_ACP_AGENTS="; ".join([*lines, "absent=no-such-agent --acp"]))
    bridge.start()
    bridge.pin = bridge.pairing().pin
    yield bridge
    bridge.stop()


def test_what_can_start_is_offered(bridge: Bridge) -> None:
    """D41: `supported_agents` lists what can start here and now."""
    offered = bridge.get("/api/v1/info", token=bridge.admin_token).json()["supported_agents"]
    assert {"demo", "demo-acp", "strange"} <= set(offered) and "absent" not in offered


def test_a_conversation_with_approvals(bridge: Bridge) -> None:
    """Text, a call of the agent's own, a write that the bridge does for it, and one that is refused, as a phone sees them."""
    with bridge.phones(1) as (phone,):
        session = begin(bridge, phone, agent="demo-acp")
        assert "good morning" in words(ask(phone, session, "good morning"))

        say(phone, session, '/tool Bash {"command": "make"}')
        asked = phone.expect("approval_required", session_id=session)["payload"]
        assert (asked["tool"], asked["params"], asked["source"], asked["risk_level"]) == ("Bash", {"command": "make"}, "agent_sdk", "high")
        assert decide(phone, session, asked["tool_call_id"], "approved")["payload"]["forwarded"] is True
        assert phone.expect("tool_result", session_id=session)["payload"]["result"]["success"] is True

        for decision, written in (("rejected", False), ("approved", True)):
            say(phone, session, f"/write {decision}.txt from the phone")
            asked = phone.expect("approval_required", session_id=session)["payload"]
            assert asked["tool"] == "Write" and asked["params"]["content"] == "from the phone"
            decide(phone, session, asked["tool_call_id"], decision)
            assert phone.expect("tool_result", session_id=session)["payload"]["result"]["success"] is written
            assert (bridge.root / f"{decision}.txt").exists() is written
        end(phone, session)


def test_an_agent_that_dies_leaves_its_session_in_error(bridge: Bridge) -> None:
    """D35: error, with the reason."""
    with bridge.phones(1) as (phone,):
        session = begin(bridge, phone, agent="strange")
        say(phone, session, "/exit 7")
        error = phone.expect("error", session_id=session)["payload"]
        assert error["code"] == "AGENT_ERROR" and "ended with code 7" in error["message"]
        assert bridge.session(session)["status"] == "error"


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
def test_after_a_killed_bridge_nothing_of_the_agent_is_left(bridge: Bridge) -> None:
    """D35: `kill -9` of the bridge, with an agent that has started processes in sessions of their own; the next start ends them all, and the session is resumed."""
    mark = f"{time.time_ns()}"
    with bridge.phones(1) as (phone,):
        session = begin(bridge, phone, agent="strange")
        ask(phone, session, f"/spawn {mark}")
        assert carrying(mark)
        bridge.kill()
    bridge.start()
    assert carrying(mark) == []
    assert bridge.session(session)["status"] == "paused"
