"""What a phone decides about an observed session's call is only noted, and it is said (D37, D38)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.approvals import DECISIONS, ask, decide, notifications, post
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import hook

pytestmark = pytest.mark.usefixtures("database")

NOTED = "Noted. The agent still waits for an answer at the machine."


def not_run(phone: Phone, session_id: str) -> list[dict[str, Any]]:
    return [one for one in notifications(phone, session_id) if one["data"].get("ran") is False]


@pytest.mark.parametrize("event", ["UserPromptSubmit", "Stop", "SessionEnd"])
def test_what_was_not_run(bridge: Bridge, sid: str, joined: Phone, event: str) -> None:
    """Every device is told, once, of each call that has not run when the session goes on, whatever
    was decided; a device that is away finds it later.
    """
    with bridge.phones(2) as (other, away):
        bridge.fence(away)
        away.close()
        calls = {f"call {decision}": decision for decision in DECISIONS}
        for call_id, decision in calls.items():
            ask(bridge, joined, sid, {"command": call_id}, tool_call_id=call_id)
            answer = decide(joined, sid, call_id, decision)
            assert answer["payload"]["forwarded"] is False
        ask(bridge, joined, sid, {"command": "ran"}, tool_call_id="ran")
        decide(joined, sid, "ran", "approved")
        bridge.accept(post(sid, {"command": "ran"}, tool_call_id="ran"))
        bridge.fence(joined, other)
        for phone in (joined, other):
            titles = [one["title"] for one in notifications(phone, sid, "approval_required")]
            assert all("asks at the machine" in title for title in titles) and len(titles) == 4
            decided = notifications(phone, sid, "approval_decided")
            assert [one["body"] for one in decided] == [NOTED] * 4
            assert not_run(phone, sid) == []
        bridge.accept(hook(event, sid), hook("Stop", sid), hook("SessionEnd", sid))
        away.ready()
        bridge.fence(joined, other, away)
        for phone in (joined, other, away):
            told = not_run(phone, sid)
            assert [one["data"] for one in told] == [
                {"tool_call_id": call_id, "ran": False} for call_id in calls
            ]
            assert {one["notification_type"] for one in told} == {"agent_notification"}
            assert all("was not run" in one["body"] for one in told)


def test_what_nobody_had_decided(bridge: Bridge, sid: str, joined: Phone) -> None:
    """It is told once, by its approval_decided: refused at the machine, and not run."""
    call_id = ask(bridge, joined, sid)
    bridge.accept(hook("Stop", sid))
    bridge.fence(joined)
    (told,) = not_run(joined, sid)
    assert told["notification_type"] == "approval_decided"
    assert (told["data"]["tool_call_id"], told["data"]["decided_by"]) == (call_id, "agent")
    assert "at the machine" in told["body"] and "was not run" in told["body"]


def test_it_runs_after_all(bridge: Bridge, sid: str, joined: Phone) -> None:
    """A rejected call that runs after the turn in which it was asked still raises the alarm."""
    call_id = ask(bridge, joined, sid, tool_call_id="x")
    decide(joined, sid, call_id, "rejected")
    bridge.accept(hook("Stop", sid), post(sid, tool_call_id="x"))
    bridge.fence(joined)
    assert len(not_run(joined, sid)) == len(notifications(joined, sid, "error")) == 1
