"""What is told of a turn that gives no sign, and of a session in which nothing is said (D35)."""

from pathlib import Path

import pytest

from tests.conformance.agent_tools import bridge_of, script_of, wait_status
from tests.conformance.agents import begin, end, say, tool
from tests.conformance.approvals import assert_refused, decide, notifications
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.short import SHORT, short

SECONDS = SHORT["TURN_SILENCE_SECONDS"]
SOONER = short("TURN_SILENCE_SECONDS", "AGENT_IDLE_SECONDS")
script, bridge = script_of("plain"), bridge_of(BRIDGE_DEMO_SHELL="1", **SOONER)


def low(phone: Phone, session_id: str) -> list[str]:
    found = notifications(phone, session_id, "agent_notification")
    return [one["body"] for one in found if one["priority"] == "low"]


@pytest.mark.slow
def test_a_turn_without_a_sign(bridge: Bridge, tmp_path: Path) -> None:
    """Every device is told once, and why; not where a person is waited for, or an agent thinks."""
    with bridge.phones(2) as (phone, other):
        waits = begin(bridge, phone)
        tool(phone, waits)
        thinks = begin(bridge, phone, agent="plain")
        thinking = "say('hm ', 'agent_thought_chunk'); time.sleep(0.5)"
        say(phone, thinks, f"/do for _ in range({3 * SECONDS}): {thinking}")
        silent = begin(bridge, phone, agent="plain")
        say(phone, silent, "/deaf")
        runs = begin(bridge, phone)
        go_on = tmp_path / "go on"
        command = f"until [ -e '{go_on}' ]; do sleep 0.1; done"
        decide(phone, runs, tool(phone, runs, command=command)["tool_call_id"], "approved")
        works = f"Bash: {command} (no sign for {SECONDS} s)"
        other.collect(lambda: bool(low(other, silent) and low(other, runs)), "both are explained")
        assert low(other, silent)[0].startswith(
            f"plain gave no sign for {SECONDS} s: it is thinking"
        )
        go_on.touch()
        phone.expect("stream_end", session_id=runs, finish_reason="stop")
        phone.expect("stream_end", session_id=thinks, finish_reason="stop")
        other.ping()
        assert low(other, runs).count(works) == 1 and not low(other, waits) + low(other, thinks)
        for session_id in (waits, silent, runs, thinks):
            end(phone, session_id)


@pytest.mark.slow
def test_an_idle_session_is_paused(bridge: Bridge, phone: Phone) -> None:
    """D35: but not while a turn runs; told as agent_idle."""
    busy = begin(bridge, phone)
    say(phone, busy, "/sleep 600")
    idle = begin(bridge, phone)
    phone.expect("notification", session_id=idle, notification_type="agent_idle")
    wait_status(bridge, idle, "paused")
    refused = phone.request("message", {"session_id": idle, "content": "x", "role": "user"})
    assert_refused(refused, "SESS_NOT_ACTIVE", True, idle)
    assert bridge.session(busy)["status"] == "active"
    for session_id in (busy, idle):
        end(phone, session_id)
