"""The same real agents behind a bridge, as a phone has them: text, approvals, a command that fails,
and a bridge that is killed (D35, D38; `make test-agents`).
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.real.conftest import Real
from tests.agents.real.test_npm_agents import make_older
from tests.conformance.agent_tools import status
from tests.conformance.agents import begin, end, log_of, say, words
from tests.conformance.approvals import decide
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Message, Phone
from tests.faults.quick import QuickBridge, nursery

pytestmark = [pytest.mark.agents, pytest.mark.timeout(180)]
SECONDS = 60.0  # for a turn: the agents take seconds to start
RESUME = {"agent": "", "working_directory": "", "resume": True}


@pytest.fixture
def bridge(agent: Real, tmp_path: Path) -> Iterator[Bridge]:
    bridge = QuickBridge(
        tmp_path / "bridge", BRIDGE_ACP_AGENTS=f"{agent.name}={shlex.join(agent.command)}"
    )
    try:
        bridge.start()
        bridge.pin = bridge.pairing().pin
        yield bridge
        bridge.stop()
        eventually(lambda: not working_in(bridge.root))
    finally:
        nursery.forget(bridge.environment)


def working_in(directory: Path) -> list[int]:
    """Processes whose directory it is: the agents, and what they started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):  # it has just ended
            if entry.readlink() == directory:
                found.append(int(entry.parent.name))
    return found


def turn(phone: Phone, session: str, content: str, decision: str = "") -> list[Message]:
    """A prompt, of which the phone decides whatever is asked; the messages of the session up to the
    end of the turn.
    """
    before = len(phone.messages)
    say(phone, session, content)
    while True:
        message = phone.until(
            lambda m: (
                m["type"] in ("approval_required", "stream_end")
                and m["payload"]["session_id"] == session
            ),
            content,
            SECONDS,
        )
        if message["type"] == "approval_required":
            assert decision, message
            answer = decide(phone, session, message["payload"]["tool_call_id"], decision)
            assert (
                answer["type"] == "approval_recorded" and answer["payload"]["forwarded"] is True
            ), answer
        elif message["payload"]["finish_reason"] != "tool_call":
            return [
                message
                for message in phone.messages[before:]
                if message["type"] != "replay_buffer"
                and message["payload"].get("session_id") == session
            ]


def test_a_session_across_a_kill(bridge: Bridge, agent: Real, tmp_path: Path) -> None:
    """Text in pieces, a command that is approved and one that is rejected, a write that the agent
    may not do; kill -9 of the bridge, resumed, and another turn.
    """
    with bridge.phones(1) as (phone,):
        session = begin(bridge, phone, agent=agent.name)
        said = turn(phone, session, "do: say Good morning from the model")
        assert (
            words(said) == "Good morning from the model"
            and len([message for message in said if message["type"] == "stream_chunk"]) > 1
        )

        said = turn(phone, session, "do: run touch approved", "approved")
        [asked] = [message["payload"] for message in said if message["type"] == "approval_required"]
        assert (asked["tool"], asked["params"]["command"], asked["source"]) == (
            "Bash",
            "touch approved",
            "agent_sdk",
        )
        [result] = [message["payload"] for message in said if message["type"] == "tool_result"]
        assert (
            result["tool_call_id"] == asked["tool_call_id"] and result["result"]["success"] is True
        )
        assert (bridge.root / "approved").exists() and words(said).endswith("All done.")

        turn(phone, session, "do: run touch rejected", "rejected")
        assert not (bridge.root / "rejected").exists()

        failed = turn(phone, session, f"do: write {tmp_path}/outside hello", "approved")
        [result] = [message["payload"] for message in failed if message["type"] == "tool_result"]
        [error] = [message["payload"] for message in failed if message["type"] == "tool_error"]
        assert (error["tool_call_id"], error["tool"], error["code"]) == (
            result["tool_call_id"],
            "Edit",
            "TOOL_EXECUTION_FAILED",
        )
        assert (
            result["result"]["success"] is False
            and error["message"] == result["result"]["error"] != ""
        )
        assert (
            failed[-1]["payload"]["finish_reason"] == "stop" and not (tmp_path / "outside").exists()
        )

        assert working_in(bridge.root)
        say(phone, session, "do: count 2000")
        phone.expect("stream_chunk", SECONDS, session_id=session, content="0 ")
        bridge.kill()
        bridge.start()
        make_older(tmp_path / "home")
        eventually(lambda: not working_in(bridge.root))
        phone.ready()
        assert status(bridge, session) == "paused", "D35"
        phone.join(session)
        assert [
            message["payload"]["finish_reason"]
            for message in log_of(phone, session)
            if message["type"] == "stream_end"
        ][-1] == "error"
        assert (
            phone.request("session_start", RESUME | {"session_id": session}, SECONDS)["type"]
            == "session_ready"
        )
        assert words(turn(phone, session, "do: say and on we go")) == "and on we go"
        assert end(phone, session)["type"] == "session_end"
