"""Notifications (spec, Notification; D13, D37, D38, D51): from what, to whom, once."""

from typing import Any

import pytest

from tests.conformance.approvals import DECISIONS, ask, decide, notifications, of, post
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_types, is_uuid
from tests.conformance.phone import Phone
from tests.conformance.samples import EVENTS, PAYLOADS, hook

IDLE = {"message": "Waiting for your input", "level": "info", "notification_type": "idle_prompt"}
NOTIFYING = ("Stop", "SessionEnd", "Notification")
PERMISSION = IDLE | {"level": "warning", "notification_type": "permission_prompt"}
ASKS = PAYLOADS["PreToolUse"] | {"requires_approval": True, "tool_call_id": "x"}
RAN = PAYLOADS["PostToolUse"] | {"tool_call_id": "x"}
SAYS = {"message": "Build ready", "level": "info"}


@pytest.mark.spec(
    "ws.notification notification.* event.Stop event.SessionEnd event.Notification severity.error"
)
def test_what_an_event_notifies(bridge: Bridge, sid: str, phone: Phone) -> None:
    """One for each time, with what the agent said, all fields of the specification and D13's; other
    events notify nobody, nor does the agent's prompt for a permission beside its approval.
    """
    expected: list[tuple[str, dict[str, Any], str, str]] = [
        ("Notification", PERMISSION, "agent_notification", "high"),
        ("PreToolUse", ASKS, "approval_required", "high"),
        ("PostToolUse", RAN, "approval_decided", "normal"),
        ("Stop", {"reason": "task_completed", "message": "Done"}, "task_complete", "normal"),
        ("Stop", {"reason": "task_completed", "message": "Done"}, "task_complete", "normal"),
        ("Stop", {"reason": "user_request"}, "task_complete", "low"),
        ("Stop", {"reason": ["odd"]}, "task_complete", "normal"),
        ("Stop", {"reason": "error", "message": "The model refused"}, "error", "high"),
        ("Stop", {"reason": "tool_error"}, "error", "high"),
        ("Stop", {"reason": "max_tokens"}, "error", "normal"),
        ("Stop", {"reason": "safety"}, "error", "high"),
        ("Notification", SAYS, "agent_notification", "normal"),
        ("Notification", {"message": "x" * 100_000}, "agent_notification", "normal"),
        ("Notification", {"message": 5, "level": []}, "agent_notification", "normal"),
        ("Notification", {"message": "hi", "level": "warning"}, "agent_notification", "high"),
        ("Notification", {"message": "hi", "level": "error"}, "error", "high"),
        ("Notification", IDLE, "agent_idle", "normal"),
        ("SessionEnd", {"exit_reason": "error", "exit_code": 1}, "error", "normal"),
    ]
    silent = [hook(event, sid) for event in EVENTS if event not in NOTIFYING]
    events = [hook(event, sid, payload) for event, payload, *_ in expected]
    beside = hook("Notification", sid, PERMISSION)
    bridge.accept(*silent, *events[:2], beside, *events[2:])
    bridge.fence(phone)
    messages = of(phone, "notification", sid)
    for message, (_, _, kind, priority) in zip(messages, expected, strict=True):
        payload = message["payload"]
        assert_types(payload, title=str, body=str, data=dict)
        assert (payload["notification_id"], payload["session_id"]) == (message["id"], sid)
        assert is_uuid(message["id"]) and payload["title"].strip(), payload
        assert (payload["notification_type"], payload["priority"]) == (kind, priority), payload
    said = messages[[payload for _, payload, *_ in expected].index(SAYS)]["payload"]
    assert SAYS["message"] in said["title"] + said["body"]
    assert [one["payload"]["data"]["tool_call_id"] for one in messages[1:3]] == ["x", "x"]


NOTED = "Recorded. The agent still waits for an answer at the machine."


def without_result(phone: Phone, session_id: str) -> list[dict[str, Any]]:
    return [one for one in notifications(phone, session_id) if "result" in one["data"]]


@pytest.mark.parametrize("event", ["UserPromptSubmit", "Stop", "SessionEnd"])
def test_what_has_no_result(bridge: Bridge, sid: str, joined: Phone, event: str) -> None:
    """Every device is told once, now or later, of each call that was not seen to run."""
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
            assert without_result(phone, sid) == []
        bridge.accept(hook(event, sid), hook("Stop", sid), hook("SessionEnd", sid))
        away.ready()
        bridge.fence(joined, other, away)
        for phone in (joined, other, away):
            told = without_result(phone, sid)
            expected = [{"tool_call_id": call_id, "result": "none"} for call_id in calls]
            assert [one["data"] for one in told] == expected
            assert {one["notification_type"] for one in told} == {"agent_notification"}
            assert all("refused at the machine, interrupted" in one["body"] for one in told)
