"""What may go wrong between a person, the log and an agent (D13, D30, D38, D40, D60)."""

import time
from typing import Any

import pytest

from bridge_project.kernel import limits
from sessions_app.agents.acp.permissions import CHANGED
from tests.conformance.agent_tools import (
    CHAT,
    Script,
    begun,
    bridge_of,
    http_say,
    script_of,
    session_of,
)
from tests.conformance.agents import ask, asked, begin, end, reasons, resume, say, words
from tests.conformance.approvals import assert_refused, decide, decision_of, of
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import send
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id
from tests.faults.quick import with_limits
from tests.servers import wait_until

WAITING, LEASE, REPLAYED, GRACE = 2, 2, 10, 2
SMALL = with_limits(
    AGENT_CLOSE_SECONDS=300,
    AGENT_END_SECONDS=300,  # an agent that lingers is not killed
    AGENT_PROMPTS_WAITING=WAITING,
    INTERRUPT_SECONDS=120,
    LEASE_SECONDS=LEASE,
    LEASE_RENEWAL_SECONDS=0.5,
    REPLAY_BUFFER_SECONDS=REPLAYED,
)
script = script_of("plain", "lingers", "cancelling")
bridge = bridge_of(first=SMALL, BRIDGE_SESSION_GRACE_SECONDS=str(GRACE))
session = session_of("plain")


def test_the_end_of_a_turn(bridge: Bridge, script: Script) -> None:
    """D13, D56: a notification task_complete, whether a device has joined the session or none."""
    script.go.unlink(missing_ok=True)
    wanted: Any = {"notification_type": "task_complete", "body": "followed"}
    with bridge.phones(2) as (phone, other):
        session = begin(bridge, phone, agent="plain")
        ask(phone, session, "followed")
        other.expect("notification", session_id=session, **wanted)
        say(phone, session, "/do while not os.path.exists(JOURNAL + '-go'): time.sleep(0.01)")
        phone.close()
        seen = hook("Notification", session)
        wait_until(lambda: bridge.post_hook(seen).json()["broadcast_count"] == 0)
        script.go.touch()
        other.expect("notification", session_id=session, **wanted)


def test_what_an_agent_says_is_what_a_phone_can_take(phone: Phone, session: str) -> None:
    """D30: each message stays small; a tool's output is cut, and says so. Issue, bad input: what is
    no Unicode or no JSON is made so.
    """
    size = limits.TOOL_OUTPUT_BYTES + 1
    said = ask(
        phone,
        session,
        "/do say('ü' * 100_000)\nsay('\\ud800')\n"
        f"text = {{'type': 'content', 'content': {{'type': 'text', 'text': 'x' * {size}}}}}\n"
        "update('tool_call', toolCallId='c', title='Look', kind='search', status='completed',"
        " content=[text])",
    )
    chunks = [one["payload"]["content"] for one in said if one["type"] == "stream_chunk"]
    assert "".join(chunks) == "ü" * 100_000 + "\ufffd"
    assert max(map(len, chunks)) <= limits.STREAM_CHUNK_CHARS
    [result] = [one["payload"]["result"] for one in said if one["type"] == "tool_result"]
    assert result["content"].endswith(f"[cut: {size} bytes in all]")
    assert len(result["content"]) < limits.TOOL_OUTPUT_BYTES + 100
    said = ask(
        phone,
        session,
        "/do given = {'command': '\\ud800', 'number': float('nan')}\n"
        "update('tool_call', toolCallId='\\x00 odd', title='L\\udc00k', kind='search',"
        " rawInput=given, status='pending')\n"
        "update('tool_call_update', toolCallId='\\x00 odd', status='completed',"
        " rawOutput={'a': '\\ud800'})",
    )
    [call, result] = [one["payload"] for one in said if one["type"].startswith("tool_")]
    assert call["params"]["command"] == "\ufffd" and call["params"]["number"] is None
    assert result["tool_call_id"] == call["tool_call_id"] and result["result"]["success"]
    assert words(ask(phone, session, "on")).endswith("on")


def test_what_waits_for_an_agent_is_bounded(bridge: Bridge, phone: Phone, script: Script) -> None:
    """Issue, limits: a phone that says more than the agent can take is told so."""
    session = begun(bridge, phone, "/rate x 6000 100")
    for number in range(WAITING):
        say(phone, session, f"waits {number}")
    answer = phone.request("message", {"session_id": session} | CHAT)
    refused = assert_refused(answer, "RATE_LIMITED", True)
    assert refused["details"]["retry_after"] > 0
    phone.send("session_interrupt", {"session_id": session})
    phone.collect(lambda: len(of(phone, "stream_end", session)) == 1 + WAITING, "their ends")
    phone.untaken.clear()
    assert words(ask(phone, session, "has room")).endswith("has room")
    assert script.prompts()[-3:] == ["waits 0", "waits 1", "has room"]
    end(phone, session)


def test_a_prompt_of_a_revoked_device(bridge: Bridge, phone: Phone, script: Script) -> None:
    """D15: what it sent and no agent has begun with is withdrawn, which every device is told."""
    session, pairing = begun(bridge, phone, "/rate x 6000 100"), bridge.pairing()
    thief = bridge.phone(pairing).ready()
    thief.join(session)
    sent = say(thief, session, "of the thief")
    phone.until(lambda message: "of the thief" in str(message), "it was accepted")
    say(phone, session, "of the owner")
    bridge.manage("revoke_device", pairing.name)
    phone.expect("notification", session_id=session, title="Messages were withdrawn")
    phone.expect("message_state", session_id=session, message_id=sent, state="withdrawn")
    phone.send("session_interrupt", {"session_id": session})
    wait_until(lambda: script.prompts()[-1] == "of the owner")
    assert "of the thief" not in script.prompts()
    end(phone, session)


def test_a_yes_that_comes_behind_an_interrupt_starts_nothing(
    bridge: Bridge, phone: Phone, session: str, script: Script
) -> None:
    """D40: who had stopped the turn has stopped it."""
    call_id = asked(phone, session, "/run touch made")
    phone.send("session_interrupt", {"session_id": session})
    phone.send("approval_response", decision_of(session, call_id, "approved"))
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    wait_until(lambda: [line for line in script.lines("decided") if line["call"] == call_id])
    assert not (bridge.root / "made").exists()


def test_a_decision_while_the_lease_has_run_out_is_told(
    bridge: Bridge, phone: Phone, session: str, script: Script
) -> None:
    """D38: a machine that slept has no lease when it wakes, and its agent still waits."""
    call_id = asked(phone, session)
    with bridge.asleep():
        phone.send("approval_response", decision_of(session, call_id, "approved"))
        time.sleep(LEASE + 1)
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    assert script.lines("decided")[-1]["outcome"]["optionId"] == "allow_once"


def test_a_watched_session_while_nothing_can_be_written(
    bridge: Bridge, phone: Phone, session: str, script: Script
) -> None:
    """D35: a phone that is connected watches it, also when the lease cannot be renewed."""
    wait_until(lambda: len(script.processes()) == 1, "no other test's agent is there")
    agents = script.processes()
    with bridge.locked():
        phone.stay(LEASE + GRACE + 2)
    assert bridge.session(session)["status"] == "active"
    assert words(ask(phone, session, "still there")).endswith("still there")
    assert script.processes() == agents


def test_a_prompt_while_the_timer_closes(bridge: Bridge, phone: Phone, script: Script) -> None:
    """D60: it was accepted, so it waits for the resume. D31: one that was refused is new."""
    script.go.unlink(missing_ok=True)
    with bridge.phones(1) as (leaves,):
        session = begin(bridge, leaves, agent="lingers")
        ask(leaves, session, "hello")
    wait_until(lambda: script.lines("over"))
    said = http_say(bridge, session, {"type": "user_message", "content": "just in time"})
    assert said.json()["accepted"] is True, "its agent has not ended yet"
    script.go.touch()
    wait_until(lambda: bridge.session(session)["status"] == "closed")
    id_, late = new_id(), {"session_id": session, "content": "too late", "role": "user"}
    assert_refused(send(phone, "message", id_, late), "SESS_CLOSED", False)
    assert resume(bridge, phone, session)["type"] == "session_ready"
    wait_until(lambda: script.prompts()[-1] == "just in time")
    phone.send("message", late, id=id_)
    wait_until(lambda: script.prompts()[-1] == "too late")
    assert script.prompts().count("just in time") == 1
    end(phone, session)


@pytest.mark.parametrize("agent", ["plain", "cancelling"])
def test_changed_parameters(bridge: Bridge, phone: Phone, agent: str) -> None:
    """docs/agents.md: an agent that cannot run a call with them is told them, in the same turn."""
    told = bridge.get("/api/v1/info", bridge.hook_token).json()["agents"]
    assert {one["name"]: one["can_modify"] for one in told}[agent] is False
    session = begin(bridge, phone, agent=agent)
    call_id = asked(phone, session, "/ask make one")
    recorded = decide(phone, session, call_id, "modified", {"command": "make two"})["payload"]
    assert (recorded["decision"], recorded["forwarded"]) == ("modified", True)
    told = phone.expect("tool_result", session_id=session, tool_call_id=call_id)
    result = told["payload"]["result"]
    assert (result["success"], result["error"]) == (False, CHANGED)
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    assert '"command": "make two"' in words(phone.messages), "it repeats what it is told"
    assert reasons(phone, session) == ["tool_call", "tool_call", "stop"]
    end(phone, session)


@pytest.mark.slow
def test_what_is_too_old_is_not_replayed(bridge: Bridge, phone: Phone, session: str) -> None:
    """D30: 30 minutes of a session, oldest first out; what was cut is known."""
    old = ask(phone, session, "old")
    time.sleep(REPLAYED)
    young = ask(phone, session, "young")
    with bridge.phones(1) as (other,):
        other.join(session)
        buffer = other.expect("replay_buffer", session_id=session)["payload"]
    assert young[-1] in buffer["messages"] and not buffer["complete"]
    assert not [one for one in old if one in buffer["messages"]]
