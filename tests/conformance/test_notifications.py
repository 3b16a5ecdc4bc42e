"""Notifications (spec, Notification and Offline behavior; D13, D26 to D28, D51): from what, to
whom, once.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.approvals import ask, decide, notifications, of, post, pre
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import away
from tests.conformance.https import assert_error, is_uuid
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import hook, new_id, prompt

pytestmark = pytest.mark.usefixtures("database")

FIELDS = {"notification_id", "session_id", "notification_type", "title", "body", "priority", "data"}
TYPES = {
    "approval_required",
    "approval_decided",
    "task_complete",
    "error",
    "agent_idle",
    "agent_notification",
}
IDLE = {
    "message": "The agent is waiting for your input",
    "level": "info",
    "notification_type": "idle_prompt",
}
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
    assert payload["notification_type"] == kind and kind in TYPES, payload
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


@pytest.mark.spec("notification.type.approval_decided")
@pytest.mark.parametrize("decision", ["approved", "rejected", "modified"])
def test_a_decision(bridge: Bridge, sid: str, joined: Phone, decision: str) -> None:
    """D13: approval_decided, data has tool_call_id and decision."""
    call_id = ask(bridge, joined, sid)
    decide(joined, sid, call_id, decision)
    message = joined.expect("notification", session_id=sid, notification_type="approval_decided")
    payload = assert_notification(message, sid, "approval_decided")
    assert payload["data"]["tool_call_id"] == call_id and payload["data"]["decision"] == decision


@pytest.mark.spec("notification.type.task_complete", "event.Stop")
def test_a_stop(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D13: the agent has finished: task_complete, each time it does."""
    for turn in (1, 2):
        (message,) = told(
            bridge,
            phone,
            sid,
            prompt(sid, turn),
            hook("Stop", sid, {"reason": "task_completed", "message": f"Turn {turn} is done"}),
        )
        assert_notification(message, sid, "task_complete")


@pytest.mark.spec("notification.type.error", "severity.error")
@pytest.mark.parametrize("reason", ["error", "tool_error"])
def test_a_stop_by_an_error(bridge: Bridge, sid: str, phone: Phone, reason: str) -> None:
    """D13, D51: what failed is a notification of type error."""
    (message,) = told(
        bridge,
        phone,
        sid,
        hook("Stop", sid, {"reason": reason, "message": "The model refused to answer"}),
    )
    assert_notification(message, sid, "error")


@pytest.mark.parametrize("reason", ["user_request", "max_tokens", "safety"])
def test_other_stops(bridge: Bridge, sid: str, phone: Phone, reason: str) -> None:
    """D5, D13: of the other reasons at most one notification comes."""
    messages = told(bridge, phone, sid, hook("Stop", sid, {"reason": reason}))
    assert len(messages) <= 1
    for message in messages:
        assert_notification(message, sid, message["payload"]["notification_type"])


@pytest.mark.spec("event.SessionEnd")
@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"exit_reason": "completion", "duration_seconds": 12.5},
        {"exit_reason": "error", "exit_code": 1},
    ],
    ids=str,
)
def test_the_end_of_a_session(
    bridge: Bridge, sid: str, phone: Phone, payload: dict[str, Any]
) -> None:
    """D13; issue: from SessionEnd: one, of type error when it ended by one."""
    (message,) = told(bridge, phone, sid, prompt(sid, 1), hook("SessionEnd", sid, payload))
    kind = message["payload"]["notification_type"]
    assert (
        kind == "error"
        if payload.get("exit_reason") == "error"
        else kind in ("task_complete", "agent_notification", "agent_idle")
    ), kind
    assert_notification(message, sid, kind)


@pytest.mark.spec("notification.type.agent_notification", "event.Notification")
@pytest.mark.parametrize(
    "payload", [{"message": "Build ready", "level": "info"}, {"message": "Build ready"}], ids=str
)
def test_a_notification_of_the_agent(
    bridge: Bridge, sid: str, phone: Phone, payload: dict[str, Any]
) -> None:
    """D13: agent_notification, with what the agent said."""
    (message,) = told(bridge, phone, sid, hook("Notification", sid, payload))
    body = assert_notification(message, sid, "agent_notification")
    assert "Build ready" in body["title"] + body["body"]


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"message": 5},
        {"message": ""},
        {"message": None, "level": []},
        {"message": "x" * 100_000},
    ],
    ids=lambda p: str(p)[:20],
)
def test_a_notification_of_any_shape(
    bridge: Bridge, sid: str, phone: Phone, payload: dict[str, Any]
) -> None:
    """D5: the payload is only checked as an object: what comes of it is a whole notification."""
    for message in told(bridge, phone, sid, hook("Notification", sid, payload)):
        assert_notification(message, sid, "agent_notification")


@pytest.mark.spec("notification.type.agent_idle")
def test_an_idle_agent(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D13: an agent that waits for input: agent_idle."""
    (message,) = told(bridge, phone, sid, hook("Notification", sid, IDLE))
    assert_notification(message, sid, "agent_idle")


def test_events_that_notify_nobody(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D13: the other events are no notifications."""
    events = [
        hook(event, sid)
        for event in (
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "SubagentStop",
            "PreCompact",
        )
    ]
    assert told(bridge, phone, sid, *events) == []


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


def test_a_refused_event(bridge: Bridge, sid: str, phone: Phone) -> None:
    """Spec: only an accepted event has effects."""
    answer = bridge.post_hook(pre(sid, approval=True, risk="none"))
    assert_error(answer, 400)
    assert told(bridge, phone, sid, prompt(sid, 1)) == []


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
    assert [payload["notification_type"] for payload in notifications(device, sid)][:2] == [
        "task_complete",
        "agent_idle",
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


def test_devices_acknowledge_for_themselves(bridge: Bridge, sid: str) -> None:
    """D27: each device has its own position: what one has seen, the other still gets."""
    first, second = bridge.phone(), bridge.phone()
    away(first)
    away(second)
    bridge.accept(hook("Stop", sid))
    first.ready()
    first.expect("notification", session_id=sid)
    first.ack(*[message for message in first.messages if "id" in message])
    first.close()
    second.ready()
    second.expect("notification", session_id=sid)
    second.close()
    first.ready()
    bridge.fence(first)
    assert notifications(first, sid) == []
    first.close()


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
