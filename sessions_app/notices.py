"""The notifications that this room sends, each built in one place (D13)."""

from __future__ import annotations

import uuid
from typing import Any

from bridge_project.protocol.server import Notification
from bridge_project.protocol.types import NotificationType, Priority
from devices_app.models import Device
from sessions_app.models import Session


def _notification(type_: NotificationType, title: str, body: str, *, priority: Priority = "normal", session_id: str | None = None, **data: Any) -> Notification:
    return Notification(notification_id=str(uuid.uuid4()), session_id=session_id, notification_type=type_, title=title, body=body, priority=priority, data=data)


def gap(session_id: str | None) -> Notification:
    """A device missed rows of a feed that are no longer kept (D29)."""
    where = "of this session" if session_id else "for all devices"
    body = f"Older messages {where} were discarded before this device received them."
    return _notification("error", "Messages were missed", body, session_id=session_id, code="MESSAGES_DISCARDED")


def paired(device: Device, address: str) -> Notification:
    """A device was claimed, which its owner should know if it was not him (D15)."""
    body = f"{device.name} was paired" + (f" from {address}." if address else ".")
    return _notification("agent_notification", "New device", body, device=device.name)


def session_of(feed_id: int) -> str | None:
    """The id of the session whose feed this is; None for the feed for all."""
    return Session.objects.filter(feed_id=feed_id).values_list("session_id", flat=True).first()
