"""Decide about a tool call; the first decision stands, whoever makes it (D38)."""

import json
from typing import Any

from django.db import transaction

from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import jsontext
from bridge_project.protocol.catalogue import encode, encode_raw
from bridge_project.protocol.client_messages import ApprovalResponse
from bridge_project.protocol.server_messages import ApprovalRecorded, ApprovalState
from bridge_project.protocol.types import now_text
from devices_app import audit, pairing
from devices_app.models import Device
from sessions_app import leases, notifications
from sessions_app.agents import inbox
from sessions_app.approvals import held_hooks
from sessions_app.approvals.hook_answer import UNCHANGED
from sessions_app.approvals.rules import store as rules
from sessions_app.approvals.tool_call import QUESTION, usable_id
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import LogRow, Session, ToolCall

_KINDS = {"approved": "allow_once", "rejected": "reject_once"}


def decide(device: Device, asked: ApprovalResponse) -> tuple[ApprovalRecorded, str]:
    """Store a device's decision once, and queue it for its taker, if there is one.

    Takers are an agent that the bridge runs, and a hook that waits for the answer (D66); return the
    nonce of such a hook too, or "". Raises BridgeError SESSION_NOT_FOUND, SESS_CLOSED,
    TOOL_CALL_NOT_FOUND, PROTO_INVALID_MESSAGE for an option that the call does not have,
    TOOL_ALREADY_DECIDED with the decision that stands in ``details``, or AUTH_FAILED for a device
    that was revoked meanwhile.
    """
    session_id, decision = asked.session_id, asked.decision
    given = jsontext.dumps(asked.modifications) if decision == "modified" else None
    with outbox() as box:  # which holds the head of the log: one decision at a time
        pairing.check_not_revoked(device.pk)
        session = Session.objects.select_related("feed").filter(session_id=session_id).first()
        if session is None:
            raise BridgeError("SESSION_NOT_FOUND", session_id=session_id)
        known = ToolCall.objects.filter(session=session).exclude(decision=None)
        id_ = usable_id(asked.tool_call_id) or ""
        record = known.filter(tool_call_id=id_).select_related("device").first()
        shown = json.loads(record.frame)["payload"] if record is not None and record.frame else {}
        option = _option(shown, asked)
        rule = _rule_offered(shown, asked)
        stands = record is not None and (
            (record.decision, record.modifications, shown.get("option_id"), shown.get("remembered"))
            == (decision, given, option, asked.remember)
        )
        if session.status == Session.Status.CLOSED and not stands:
            raise BridgeError("SESS_CLOSED", session_id=session_id)
        if record is None:
            raise BridgeError("TOOL_CALL_NOT_FOUND", session_id=session_id)
        if record.decision == ToolCall.Decision.PENDING:
            _check_taker(session, record, decision)
            record.modifications = given
            chosen = {"option_id": option, "remembered": asked.remember}
            if chosen := {name: value for name, value in chosen.items() if value is not None}:
                frame = json.loads(record.frame)
                frame["payload"] |= chosen
                record.frame = jsontext.dumps(frame)
            if rule is not None:
                rules.keep(session, rule, record, device, box.now)
            record.forwarded = _forward(session, record, asked, option)
            store_decision(
                box, session, record, decision, by=ToolCall.DecidedBy.DEVICE, device=device
            )
            session.last_activity_at = box.now
            session.decided_by_device = session.kind == Session.Kind.OBSERVED
            changed = ("pending_approvals", "turn", "doing", "decided_by_device", "rules")
            session.save(update_fields=(*changed, "last_activity_at"))
        elif not stands:
            raise _already_decided(session_id, record)
    assert record.decided_at is not None
    recorded = ApprovalRecorded(
        session_id=session_id,
        tool_call_id=asked.tool_call_id,
        decision=decision,
        forwarded=record.forwarded,
        decided_at=now_text(record.decided_at),
    )
    return recorded, record.hook


def _check_taker(session: Session, record: ToolCall, decision: str) -> None:
    """Check a decision for what its hook can say. Raises PROTO_INVALID_MESSAGE."""
    if record.hook and record.tool == QUESTION and decision == "approved":
        words = "A question is answered by `modified`, with its answers; it still waits."
    elif record.hook and decision == "modified" and session.agent_type in UNCHANGED:
        words = "This agent runs its call as it is, or not at all; it still waits."
    else:
        return
    raise BridgeError("PROTO_INVALID_MESSAGE", words, session_id=session.session_id)


def _option(shown: dict[str, Any], asked: ApprovalResponse) -> str | None:
    """Return the option that a decision takes, None where there is no choice.

    ``shown``: the payload of the call's ``approval_required``.
    """
    options, kind = shown.get("options") or [], _KINDS.get(asked.decision)
    ids = [one["id"] for one in options if one["kind"] == kind]
    if asked.option_id is not None and asked.option_id not in ids:
        words = f"option_id: this call has no such option with which it is {asked.decision}."
        raise BridgeError("PROTO_INVALID_MESSAGE", words, session_id=asked.session_id)
    if asked.option_id is None and kind == "allow_once" and len(ids) > 1:
        words = f"option_id: name one of the {len(ids)} ways to allow this call; it still waits."
        raise BridgeError("PROTO_INVALID_MESSAGE", words, session_id=asked.session_id)
    return asked.option_id if asked.option_id is not None or not ids else ids[0]


def _rule_offered(shown: dict[str, Any], asked: ApprovalResponse) -> dict[str, Any] | None:
    """Return the offer, as devices were sent it, of the rule to keep, if any.

    Raises PROTO_INVALID_MESSAGE for one that was not offered with the call.
    """
    if asked.remember is None:
        return None
    offered: dict[str, dict[str, Any]] = {one["id"]: one for one in shown.get("remember") or []}
    if asked.decision != "approved" or asked.remember not in offered:
        words = "remember: no such rule is offered with this call; it still waits."
        raise BridgeError("PROTO_INVALID_MESSAGE", words, session_id=asked.session_id)
    return offered[asked.remember]


def approve_by_rule(box: Outbox, session: Session, record: ToolCall, rule: rules.Rule) -> None:
    """Approve a call that a rule covers, and queue the decision for the agent (D68)."""
    device = Device.objects.filter(pk=rule["device_pk"]).first()
    record.decision, record.decided_by = ToolCall.Decision.APPROVED, ToolCall.DecidedBy.RULE
    record.device, record.decided_at, record.forwarded = device, box.now, True
    record.save()
    rules.count(session, rule)
    decided = {"decision": record.decision, "modifications": None}
    inbox.add(session, inbox.Kind.DECIDE, tool_call_id=record.tool_call_id, **decided)
    _audit(session, record, rule=rule["label"])


def remove_rule(device: Device, session_id: str, rule_id: str) -> Session:
    """Take a rule back (D68).

    Raises BridgeError SESSION_NOT_FOUND, or PROTO_INVALID_MESSAGE for a rule that is not there.
    """
    with outbox():  # so a call is judged either before or after
        session = Session.objects.filter(session_id=session_id).first()
        if session is None:
            raise BridgeError("SESSION_NOT_FOUND", session_id=session_id)
        if (label := rules.remove(session, rule_id)) is None:
            words = "rule_id: the session has no such rule."
            raise BridgeError("PROTO_INVALID_MESSAGE", words, session_id=session_id)
        session.save(update_fields=["rules"])
        audit.record("rule_removed", device=device, session_id=session_id, subject=label)
    return session


def _forward(
    session: Session, record: ToolCall, asked: ApprovalResponse, option: str | None
) -> bool:
    """Queue the decision for its taker; return whether an agent of the bridge has it.

    A process whose lease has run out may only have been suspended: then its agent still waits. If
    it is dead, the command is deleted with the agent. Whether a hook has taken it is known later.
    """
    active = session.kind == Session.Kind.BRIDGE and session.status == Session.Status.ACTIVE
    driven = active and session.owner is not None
    if not driven and not record.hook:
        return False
    decided = {"decision": asked.decision, "modifications": asked.modifications}
    said = {"reason": asked.reason, "option_id": option}
    inbox.add(session, inbox.Kind.DECIDE, tool_call_id=record.tool_call_id, **decided, **said)
    return session.owner is not None and leases.is_alive(session.owner)


def store_decision(
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
    if by != ToolCall.DecidedBy.DEVICE:
        end_wait(box, session, record)
    record.save()
    session.pending_approvals -= 1
    # The agent of an observed session still waits for the person at its machine.
    if session.kind == Session.Kind.BRIDGE and session.turn == Session.Turn.WAITING:
        waited = record.tool_call_id
        session.set_calls(
            [one | {"waits": one["waits"] and one["id"] != waited} for one in session.calls]
        )
    box.append_to_all(encode(notifications.approval_decided(session, record)))
    _amend(box, session, record)  # nobody is asked again
    _audit(session, record, reason=reason)


def _audit(session: Session, record: ToolCall, **more: str) -> None:
    """Enter a decision in the audit trail, whoever made it."""
    about = {"session_id": session.session_id, "subject": record.tool_call_id}
    about |= {"tool": record.tool, "decision": record.decision or ""}
    audit.record("decision", actor=record.decided_by, device=record.device, **about, **more)


def _amend(box: Outbox, session: Session, record: ToolCall) -> None:
    """Have an ``approval_required`` that is sent from now on say how the call stands."""
    asked = json.loads(record.frame)
    payload = asked["payload"]
    if record.hook or "answerable" in payload:
        payload["answerable"] = record.hook != ""
    record.frame = jsontext.dumps_unicode(asked)
    if record.decision != ToolCall.Decision.PENDING:
        payload |= _shown(record) | notifications.changes_of(record)
    if record.decided_by == ToolCall.DecidedBy.DEVICE and record.outcome:
        payload["outcome"] = record.outcome
    amended = encode_raw(asked["type"], payload, id=asked["id"], timestamp=asked["timestamp"])
    box.amend(session.feed, amended)


def begin_wait(box: Outbox, session: Session, record: ToolCall, nonce: str) -> None:
    """Store that a hook waits for the answer to a call that was asked about (D66)."""
    record.hook, record.holder = nonce, leases.current()
    _amend(box, session, record)
    record.save(update_fields=["hook", "holder", "frame"])
    count_waiting(session)
    _tell_state(box, session, record)


def end_wait(box: Outbox, session: Session, record: ToolCall) -> None:
    """Store that no hook waits any more, tell every device, and send it away (D66).

    The process that has handed a decision over stays the record's holder until `settle`.
    """
    if not record.hook:
        return
    nonce, record.hook = record.hook, ""
    if not record.forwarded:
        record.holder = None
    _amend(box, session, record)
    record.save(update_fields=["hook", "holder", "forwarded", "frame"])
    count_waiting(session)
    _tell_state(box, session, record)
    transaction.on_commit(lambda: held_hooks.release(nonce))


def count_waiting(session: Session) -> None:
    """Store how many of a session's calls devices can answer at the desk (D66)."""
    session.answerable = ToolCall.objects.filter(session=session).exclude(hook="").count()
    session.save(update_fields=["answerable"])


def _tell_state(box: Outbox, session: Session, record: ToolCall) -> None:
    about = {"session_id": session.session_id, "tool_call_id": record.tool_call_id}
    box.append_to_all(encode(ApprovalState(**about, answerable=record.hook != "")))


def settle(box: Outbox, session: Session, record: ToolCall, outcome: str) -> None:
    """Store and tell what came of a decision about a call in a terminal (D66).

    ``outcome`` "": no hook took it, and the dialog still stands. The caller saves the session.
    """
    record.outcome, record.holder = outcome, None
    _amend(box, session, record)
    record.save(update_fields=["outcome", "holder"])
    if outcome and session.turn == Session.Turn.WAITING:
        over = record.tool_call_id
        refused = record.decision == ToolCall.Decision.REJECTED
        left = [one for one in session.calls if not (refused and one["id"] == over)]
        session.set_calls([one | {"waits": one["waits"] and one["id"] != over} for one in left])
    box.append_to_all(encode(notifications.approval_decided(session, record)))


def _shown(record: ToolCall) -> dict[str, str | None]:
    assert record.decided_at is not None
    at = now_text(record.decided_at)
    return {"decision": record.decision, "decided_at": at, "decided_by": record.decided_by}


def _already_decided(session_id: str, record: ToolCall) -> BridgeError:
    device = record.device.name if record.device else ""
    details = {
        "tool_call_id": record.tool_call_id,
        **_shown(record),
        **({"device": device} if device else {}),
        **({"reason": record.reason} if record.reason else {}),
    }
    places = {"agent": "at the machine", "bridge": "by the bridge"}
    who = f"on {device}" if device else places.get(record.decided_by, "on a device")
    words = f"This was {record.decision} {who} already."
    return BridgeError("TOOL_ALREADY_DECIDED", words, session_id=session_id, details=details)


def pending_calls() -> list[int]:
    """Return the keys of calls that wait, oldest first, for each connection (D28)."""
    pending = ToolCall.objects.filter(decision=ToolCall.Decision.PENDING)
    return list(pending.order_by("pk").values_list("pk", flat=True))


def pending_frame(key: int, upto: int) -> tuple[str, str] | None:
    """Return message id and frame of ``approval_required`` while a call waits.

    None also for one after the log's row ``upto``, which is live.
    """
    pending = ToolCall.objects.filter(pk=key, decision=ToolCall.Decision.PENDING)
    frame = pending.values_list("frame", flat=True).first()
    message_id = json.loads(frame)["id"] if frame else ""
    if not frame or LogRow.objects.filter(message_id=message_id, seq__gt=upto).exists():
        return None
    return message_id, frame
