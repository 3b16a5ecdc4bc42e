"""The notifications that this room sends, each built in one place (D13)."""

from __future__ import annotations

import uuid
from typing import Any

from bridge_project.kernel.failure_alerts import Failure
from bridge_project.protocol.server_messages import Notification
from bridge_project.protocol.types import NotificationType, Priority
from devices_app.models import Device
from sessions_app.models import Session, ToolCall

BODY_CHARS = 500


def _notification(
    type_: NotificationType,
    title: str,
    body: str,
    *,
    priority: Priority = "normal",
    session_id: str | None = None,
    **data: Any,
) -> Notification:
    return Notification(
        notification_id=str(uuid.uuid4()),
        session_id=session_id,
        notification_type=type_,
        title=title,
        body=body,
        priority=priority,
        data=data,
    )


def gap(session_id: str | None) -> Notification:
    """A device missed rows of a feed that are no longer kept (D29)."""
    where = "of this session" if session_id else "for all devices"
    body = f"Older messages {where} were discarded before this device received them."
    return _notification(
        "error", "Messages were missed", body, session_id=session_id, code="MESSAGES_DISCARDED"
    )


def paired(device: Device, address: str) -> Notification:
    """A device was claimed, which its owner should know if it was not him (D15)."""
    body = f"{device.name} was paired" + (f" from {address}." if address else ".")
    return _notification("agent_notification", "New device", body, device=device.name)


def session_of(feed_id: int) -> str | None:
    """The id of the session whose feed this is; None for the feed for all."""
    return Session.objects.filter(feed_id=feed_id).values_list("session_id", flat=True).first()


# -- approvals -------------------------------------------------------------------------------------


def approval_required(session: Session, call: ToolCall) -> Notification:
    """Somebody must decide about a tool call."""
    title = f"{call.tool} needs approval"
    data = {"tool_call_id": call.tool_call_id, "risk_level": call.risk_level, "screen": "approval"}
    return _notification(
        "approval_required",
        title,
        shorten(call.description),
        priority="high",
        session_id=session.session_id,
        **data,
    )


_WHY = {
    "session_closed": "because the session ended",
    "session_paused": "because the session was paused",
    "agent_died": "because the agent ended",
    "interrupted": "because the agent was told to stop",
    "turn_ended": "because the agent went on without it",
}


def approval_decided(session: Session, call: ToolCall) -> Notification:
    """A decision stands, wherever it was taken."""
    where = {
        "agent": "at the machine",
        "bridge": _WHY.get(call.reason, _WHY["session_closed"]),
    }.get(call.decided_by) or (f"on {call.device.name}" if call.device else "")
    body = f"{call.tool} was {call.decision} {where}".strip() + "."
    data: dict[str, Any] = {
        "tool_call_id": call.tool_call_id,
        "decision": call.decision,
        "decided_by": call.decided_by,
    }
    data |= {"device": call.device.name} if call.device else {}
    data |= {"reason": call.reason} if call.reason else {}
    return _notification(
        "approval_decided",
        f"{call.tool}: {call.decision}",
        body,
        session_id=session.session_id,
        **data,
    )


def ran_anyway(session: Session, call: ToolCall) -> Notification:
    """A call that was rejected ran all the same: hooks cannot stop an agent."""
    body = f"{call.tool} ran although it had been rejected: {shorten(call.description)}"
    data = {"tool_call_id": call.tool_call_id, "code": "REJECTED_CALL_RAN"}
    return _notification(
        "error",
        "A rejected tool call ran",
        body,
        priority="high",
        session_id=session.session_id,
        **data,
    )


# -- what agents report ----------------------------------------------------------------------------


def reported(
    session_id: str, type_: NotificationType, title: str, body: str, priority: Priority, **data: Any
) -> Notification:
    """What a hook event makes a person want to know."""
    return _notification(
        type_, title, shorten(body), priority=priority, session_id=session_id, **data
    )


# -- what the bridge reports of itself -------------------------------------------------------------


def failed(failure: Failure) -> Notification:
    """Something failed that nobody foresaw, or an agent did (D51)."""
    where = (
        f"The bridge's log has more, at {failure.reference}."
        if failure.reference
        else failure.row.remedy
    )
    data: dict[str, Any] = {"code": failure.row.code} | (
        {"reference": failure.reference} if failure.reference else {}
    )
    title, body = failure.row.message.rstrip("."), f"{failure.row.message} {where}"
    return _notification("error", title, body, session_id=failure.session_id, **data)


def shorten(text: str) -> str:
    """A text as it fits into a notification."""
    text = " ".join(text.split())
    return text if len(text) <= BODY_CHARS else text[: BODY_CHARS - 1] + "…"
