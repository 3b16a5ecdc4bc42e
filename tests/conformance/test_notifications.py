"""Notifications (spec, Notification and Offline behavior; D13, D26 to D28, D51): from what, to
whom, once.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.approvals import ask, notifications, of, post, pre
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import away
from tests.conformance.https import is_uuid
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import EVENTS, hook, new_id, prompt

FIELDS = {"notification_id", "session_id", "notification_type", "title", "body", "priority", "data"}
IDLE = {
    "message": "The agent is waiting for your input",
    "level": "info",
    "notification_type": "idle_prompt",
}
NOTIFYING = ("Stop", "SessionEnd", "Notification")
PERMISSION = {
    "message": "The agent needs your permission",
    "level": "warning",
    "notification_type": "permission_prompt",
}


def assert_notification(
    message: Message, session_id: str, kind: str, *priorities: str
) -> dict[str, Any]:
    """Spec, Notification: all fields; D13: the types, the priorities, notification_id equal to the
    envelope's id.
    """
    payload = dict(message["payload"])
    assert set(payload) >= FIELDS and payload["session_id"] == session_id, payload
    assert payload["notification_id"] == message["id"] and is_uuid(message["id"]), message
    assert payload["notification_type"] == kind, payload
    assert payload["priority"] in (priorities or ("low", "normal", "high")), payload
    assert isinstance(payload["title"], str) and payload["title"].strip(), payload
    assert isinstance(payload["body"], str) and isinstance(payload["data"], dict), payload
    return payload


def told(bridge: Bridge, phone: Phone, session_id: str, *events: dict[str, Any]) -> list[Message]:
    """The notifications about the session that these events bring a connected phone."""
    before = len(of(phone, "notification", session_id))
    bridge.accept(*events)
    bridge.fence(phone)
    return of(phone, "notification", session_id)[before:]


@pytest.mark.spec(
    "ws.notification",
    "notification.session_id",
    "notification.notification_type",
    "notification.title",
    "notification.body",
    "notification.priority",
    "notification.data",
    "notification.id",
    "notification.type.approval_required",
)
def test_an_approval(bridge: Bridge, sid: str, phone: Phone) -> None:
    """Spec, Notification: approval_required, priority high; D13: data has tool_call_id. To a device
    that has joined nothing.
    """
    (message,) = told(
        bridge, phone, sid, pre(sid, {"command": "rm -r build"}, approval=True, tool_call_id="x")
    )
    payload = assert_notification(message, sid, "approval_required", "high")
    assert payload["data"]["tool_call_id"] == "x"
    bridge.accept(hook("SessionEnd", sid))


SAYS = {"message": "Build ready", "level": "info"}


@pytest.mark.spec(
    "notification.type.task_complete",
    "notification.type.error",
    "notification.type.agent_notification",
    "notification.type.agent_idle",
    "event.Stop",
    "event.SessionEnd",
    "event.Notification",
    "severity.error",
)
def test_what_an_event_notifies(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D13, D51: one of its type for each event that is told, each time; what failed is an error;
    what the agent said is in it. Other events notify nobody.
    """
    expected: list[tuple[str, dict[str, Any], str, str]] = [
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
    messages = told(bridge, phone, sid, *silent, *events)
    for message, (_, _, kind, priority) in zip(messages, expected, strict=True):
        assert_notification(message, sid, kind, priority)
    said = messages[[payload for _, payload, *_ in expected].index(SAYS)]["payload"]
    assert SAYS["message"] in said["title"] + said["body"]


def test_a_permission_prompt_beside_its_approval(bridge: Bridge, sid: str, joined: Phone) -> None:
    """Issue: no notification twice for the same thing: the agent's own word for a question that is
    asked already. Without one it is told.
    """
    (message,) = told(bridge, joined, sid, hook("Notification", sid, PERMISSION))
    assert_notification(message, sid, "agent_notification")
    ask(bridge, joined, sid)
    bridge.accept(hook("Notification", sid, PERMISSION))
    bridge.fence(joined)
    assert [payload["notification_type"] for payload in notifications(joined, sid)] == [
        "agent_notification",
        "approval_required",
    ]


def test_a_repeated_event(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D31; issue: none twice for the same thing: the same event_id again is the same event."""
    body = hook("Stop", sid, event_id=new_id())
    assert len(told(bridge, phone, sid, body, body)) == 1
    assert told(bridge, phone, sid, body) == []


@pytest.mark.usefixtures("database")
@pytest.mark.spec("offline.pending", "offline.replay", "ws.notification_ack")
def test_an_absent_device(bridge: Bridge, sid: str, device: Phone) -> None:
    """Spec, Offline behavior; D27, D28: it gets them on its next connection, in order, with the
    same ids, until it has acknowledged them.
    """
    away(device)
    bridge.accept(
        prompt(sid, 0), hook("Stop", sid), hook("Notification", sid, IDLE), hook("SessionEnd", sid)
    )
    seen = []
    for _ in range(2):
        device.ready()
        device.collect(lambda: len(notifications(device, sid)) >= 3, "three notifications")
        bridge.fence(device)
        seen.append([message["id"] for message in of(device, "notification", sid)])
        last = list(device.messages)
        device.close()
    assert seen[0] == seen[1] and len(seen[0]) == 3
    assert [payload["notification_type"] for payload in notifications(device, sid)] == [
        "task_complete",
        "agent_idle",
        "task_complete",
    ]
    device.ready()
    device.collect(lambda: len(notifications(device, sid)) >= 3, "three notifications")
    device.send(
        "notification_ack",
        {"notification_ids": [message["id"] for message in last if "id" in message]},
    )
    device.ping()
    device.close()
    device.ready()
    bridge.fence(device)
    assert notifications(device, sid) == []


@pytest.mark.usefixtures("database")
def test_no_history_for_a_new_device(bridge: Bridge, sid: str, device: Phone) -> None:
    """D28; issue: none for history that was already seen: a new device starts at the present, also
    when it joins.
    """
    bridge.accept(
        hook("Stop", sid),
        hook("Notification", sid),
        pre(sid, approval=True, tool_call_id="x"),
        post(sid, tool_call_id="x"),
    )
    device.ready()
    device.join(sid)
    bridge.fence(device)
    assert notifications(device, sid) == []


def test_none_again_with_a_join_or_a_replay(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D26: a notification is a row of the feed for all alone: neither joining nor asking for the
    session's past brings it again.
    """
    assert len(told(bridge, phone, sid, hook("Stop", sid))) == 1
    phone.join(sid)
    buffer = phone.request("replay_request", {"session_id": sid})
    assert not [
        message for message in buffer["payload"]["messages"] if message["type"] == "notification"
    ]
    bridge.fence(phone)
    assert len(of(phone, "notification", sid)) == 1
