"""Decide about a tool call; the first decision stands, whoever makes it (D38)."""

import json
from collections.abc import Mapping
from typing import Any

from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import jsontext
from bridge_project.protocol.catalogue import Encoded, encode, encode_raw
from bridge_project.protocol.server_messages import ApprovalRecorded
from bridge_project.protocol.types import Decision, now_text
from devices_app import audit
from devices_app.models import Device
from sessions_app import leases, notifications
from sessions_app.agents import inbox
from sessions_app.approvals.tool_call import usable_id
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import LogRow, Session, ToolCall


def decide(
    device: Device,
    session_id: str,
    tool_call_id: str,
    decision: Decision,
    modifications: Mapping[str, Any] | None,
) -> ApprovalRecorded:
    """Store a device's decision; answer the same one again when it is repeated.

    Raises BridgeError SESSION_NOT_FOUND, SESS_CLOSED, TOOL_CALL_NOT_FOUND, or TOOL_ALREADY_DECIDED
    with the decision that stands in ``details``.
    """
    given = jsontext.dumps(modifications) if decision == "modified" else None
    with outbox() as box:  # which holds the head of the log: one decision at a time
        session = Session.objects.select_related("feed").filter(session_id=session_id).first()
        if session is None:
            raise BridgeError("SESSION_NOT_FOUND", session_id=session_id)
        known = ToolCall.objects.select_related("device").filter(
            session=session, tool_call_id=usable_id(tool_call_id) or ""
        )
        record = known.exclude(decision=None).first()
        stands = record is not None and (record.decision, record.modifications) == (decision, given)
        if session.status == Session.Status.CLOSED and not stands:
            raise BridgeError("SESS_CLOSED", session_id=session_id)
        if record is None:
            raise BridgeError("TOOL_CALL_NOT_FOUND", session_id=session_id)
        if record.decision == ToolCall.Decision.PENDING:
            record.modifications = given
            record.forwarded = _forward(session, record, decision, modifications)
            settle(box, session, record, decision, by=ToolCall.DecidedBy.DEVICE, device=device)
            session.last_activity_at = box.now
            session.decided_by_device = session.kind == Session.Kind.OBSERVED
            changed = ("pending_approvals", "turn", "last_activity_at", "decided_by_device")
            session.save(update_fields=changed)
        elif not stands:
            raise _already_decided(session_id, record)
    assert record.decided_at is not None
    return ApprovalRecorded(
        session_id=session_id,
        tool_call_id=tool_call_id,
        decision=decision,
        forwarded=record.forwarded,
        decided_at=now_text(record.decided_at),
    )


def _forward(
    session: Session, record: ToolCall, decision: Decision, modifications: Mapping[str, Any] | None
) -> bool:
    """Queue the decision for an agent of the bridge; return whether its process lives.

    A process whose lease has run out may only have been suspended: then its agent still waits. If it
    is dead, the command is deleted with the agent.
    """
    active = session.kind == Session.Kind.BRIDGE and session.status == Session.Status.ACTIVE
    if not active or session.owner is None:
        return False
    inbox.add(
        session,
        inbox.Kind.DECIDE,
        tool_call_id=record.tool_call_id,
        decision=decision,
        modifications=modifications,
    )
    return leases.lives(session.owner)


def settle(
    box: Outbox,
    session: Session,
    record: ToolCall,
    decision: str,
    *,
    by: str,
    device: Device | None = None,
    reason: str = "",
) -> None:
    """Store the decision about a pending call, and tell every device.

    The caller saves the session. ``by``: a ToolCall.DecidedBy; ``reason``: why the bridge decided.
    """
    record.decision, record.decided_by, record.reason = decision, by, reason
    record.device, record.decided_at = device, box.now
    record.save(
        update_fields=[
            *("decision", "decided_by", "reason", "device", "decided_at"),
            *("modifications", "forwarded"),
        ]
    )
    session.pending_approvals -= 1
    # The agent of an observed session still waits for the person at its machine.
    if session.kind == Session.Kind.BRIDGE and not session.pending_approvals:
        session.turn = Session.Turn.WORKING
    box.append_to_all(encode(notifications.approval_decided(session, record)))
    box.amend(_decided(record))
    audit.record(
        "decision",
        actor=by,
        device=device,
        session_id=session.session_id,
        subject=record.tool_call_id,
        decision=decision,
        tool=record.tool,
        reason=reason,
    )


def _decided(record: ToolCall) -> Encoded:
    """Add the decision to an ``approval_required``, so that nobody is asked again."""
    assert record.decided_at is not None
    asked = json.loads(record.frame)
    decided = {
        "decision": record.decision,
        "decided_at": now_text(record.decided_at),
        "decided_by": record.decided_by,
    }
    payload = asked["payload"] | decided
    return encode_raw(asked["type"], payload, id=asked["id"], timestamp=asked["timestamp"])


def _already_decided(session_id: str, record: ToolCall) -> BridgeError:
    assert record.decided_at is not None
    details = {
        "tool_call_id": record.tool_call_id,
        "decision": record.decision,
        "decided_by": record.decided_by,
        "decided_at": now_text(record.decided_at),
    }
    if record.device:
        who = f"on {record.device.name}"
        details["device"] = record.device.name
    else:
        places = {"agent": "at the machine", "bridge": "by the bridge"}
        who = places.get(record.decided_by, "on a device")
    if record.reason:
        details["reason"] = record.reason
    return BridgeError(
        "TOOL_ALREADY_DECIDED",
        f"This was {record.decision} {who} already.",
        session_id=session_id,
        details=details,
    )


def pending_frames(upto: int) -> list[tuple[str, str]]:
    """Return (message id, frame) of every pending ``approval_required``, oldest first.

    They are for every device that connects (D28); those after the log's row ``upto`` are live.
    """
    pending = ToolCall.objects.filter(decision=ToolCall.Decision.PENDING).order_by("pk")
    frames = {json.loads(frame)["id"]: frame for frame in pending.values_list("frame", flat=True)}
    if frames:
        later = LogRow.objects.filter(seq__gt=upto, type="approval_required")
        for message_id in later.values_list("message_id", flat=True):
            frames.pop(message_id, None)
    return list(frames.items())
