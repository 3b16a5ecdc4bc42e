"""Tool calls and who decides about them: opened, asked for, decided once, finished (D37, D38).
Everything here runs inside an outbox.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.text import printable
from bridge_project.protocol import jsontext
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.resources import ToolErrorDetails, ToolOutcome
from bridge_project.protocol.types import ApprovalSource, Decision, now_text
from devices_app import audit
from devices_app.models import Device
from sessions_app import leases, notifications
from sessions_app.agents import inbox
from sessions_app.approvals.tool_call import Call, usable_id
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import LogRow, Session, ToolCall

_PENDING = ToolCall.Decision.PENDING
FORGET_CALLS = 500  # in one transaction


# -- opening ---------------------------------------------------------------------------------------


def report(box: Outbox, session: Session, call: Call) -> ToolCall:
    """A call about which nobody is asked; ``tool_call`` says that it has begun, once."""
    known = _by_id(session, call)
    if known is not None:
        return known
    record = _create(box, session, call)
    message = s.ToolCall(
        session_id=session.session_id,
        tool_call_id=record.tool_call_id,
        tool=call.tool,
        params=dict(call.params),
        description=call.description,
    )
    box.append(session.feed, encode(message))
    return record


def ask(
    box: Outbox,
    session: Session,
    call: Call,
    *,
    source: ApprovalSource = "hooks",
    of_open_call: bool = False,
) -> ToolCall:
    """A call that waits for a person: ``approval_required`` and a notification, once.

    ``of_open_call``: a permission request, which is about a call that has been reported already if
    there is one (D37). A session that has ended has nobody to wait: there the call is on record as
    rejected.
    """
    known = _by_id(session, call) if source == "hooks" else _said_before(box, session, call)
    record = (
        known or (_unasked(session, call) if of_open_call else None) or _create(box, session, call)
    )
    if record.decision is not None:
        return record
    record.tool, record.same = _name(call), call.same
    record.decision, record.risk_level, record.source = _PENDING, call.risk_level, source
    record.description, record.reasoning = (
        call.description.replace("\x00", " "),
        call.reasoning and call.reasoning.replace("\x00", " "),
    )
    record.params = jsontext.dumps(call.params)
    session.pending_approvals += 1
    message = encode(
        s.ApprovalRequired(
            session_id=session.session_id,
            tool_call_id=record.tool_call_id,
            tool=call.tool,
            params=dict(call.params),
            description=call.description,
            risk_level=call.risk_level,
            source=source,
            reasoning=call.reasoning,
        )
    )
    record.frame = message.text
    record.save(
        update_fields=[
            "tool",
            "same",
            "decision",
            "risk_level",
            "source",
            "description",
            "reasoning",
            "params",
            "frame",
        ]
    )
    box.append(session.feed, message)
    box.append_to_all(encode(notifications.approval_required(session, record)))
    if session.status == Session.Status.CLOSED:
        reject_pending(box, session, by=ToolCall.DecidedBy.BRIDGE, reason="session_closed")
    return record


def _create(box: Outbox, session: Session, call: Call) -> ToolCall:
    """A new record; one whose id is taken in the session gets another, so that no decision is ever
    about two calls.

    What the call was in full is in the log; the record keeps it only when somebody is asked.
    """
    free = (
        call.id is not None
        and not ToolCall.objects.filter(session=session, tool_call_id=call.id).exists()
    )
    return ToolCall.objects.create(
        session=session,
        tool_call_id=call.id if call.id is not None and free else str(uuid.uuid4()),
        tool=_name(call),
        same=call.same,
        risk_level=call.risk_level,
        created_at=box.now,
    )


def _name(call: Call) -> str:
    return printable(call.tool)[:128] or "unknown"


def _open(session: Session) -> QuerySet[ToolCall]:
    return ToolCall.objects.filter(session=session, finished_at=None).order_by("pk")


def _by_id(session: Session, call: Call) -> ToolCall | None:
    """The equal open call of that id: the same call, seen again."""
    return _open(session).filter(tool_call_id=call.id, same=call.same).first() if call.id else None


def _said_before(box: Outbox, session: Session, call: Call) -> ToolCall | None:
    """The open call of that id of an agent that the bridge runs, which asks about nothing twice
    without wanting an answer twice.

    One about which nobody was asked may have got other parameters since; one that is decided and
    asked about again is another call.
    """
    record = _open(session).filter(tool_call_id=call.id).first() if call.id else None
    if (
        record is None
        or record.decision is None
        or (record.decision == _PENDING and record.same == call.same)
    ):
        return record
    if record.decision != _PENDING:
        record.finished_at = box.now
        record.save(update_fields=["finished_at"])
    return None


def _unasked(session: Session, call: Call) -> ToolCall | None:
    """The oldest equal open call about which nobody was asked yet, else one that is waiting
    already.
    """
    equal = _open(session).filter(same=call.same)
    return equal.filter(decision=None).first() or equal.filter(decision=_PENDING).first()


# -- finishing -------------------------------------------------------------------------------------


def finish(box: Outbox, session: Session, call: Call, outcome: ToolOutcome) -> None:
    """The tool has run: ``tool_result``, and ``tool_error`` if it failed. That it ran says who
    decided, if nobody had (D37).

    A rejected call that ran anyway is said.
    """
    record = _that_ran(session, call)
    tool_call_id = record.tool_call_id if record else call.id or str(uuid.uuid4())
    box.append(
        session.feed,
        encode(
            s.ToolResult(
                session_id=session.session_id,
                tool_call_id=tool_call_id,
                tool=call.tool,
                result=outcome,
            )
        ),
    )
    if not outcome.success:
        box.append(session.feed, encode(_tool_error(session, tool_call_id, call, outcome)))
    if record is not None:
        _finished(box, session, record, outcome, ran=True)


def _finished(
    box: Outbox, session: Session, record: ToolCall, outcome: ToolOutcome, *, ran: bool
) -> None:
    record.finished_at = box.now
    record.result = jsontext.dumps(outcome.wire()) if record.decision is not None else None
    record.save(update_fields=["finished_at", "result"])
    if record.decision == _PENDING:
        _settle(
            box,
            session,
            record,
            ToolCall.Decision.APPROVED if ran else ToolCall.Decision.REJECTED,
            by=ToolCall.DecidedBy.AGENT,
        )
    elif record.decision == ToolCall.Decision.REJECTED and ran:
        box.append_to_all(encode(notifications.ran_anyway(session, record)))


def _tool_error(
    session: Session, tool_call_id: str, call: Call, outcome: ToolOutcome
) -> s.ToolError:
    """Why a tool failed. The agent tries again by itself or does not: the bridge did not run it."""
    return s.ToolError(
        session_id=session.session_id,
        tool_call_id=tool_call_id,
        tool=call.tool,
        code="TOOL_EXECUTION_FAILED",
        message=outcome.error or "The tool failed.",
        details=ToolErrorDetails(stderr=outcome.error, execution_time_ms=outcome.duration_ms),
        retryable=False,
        max_retries=0,
    )


def _that_ran(session: Session, call: Call) -> ToolCall | None:
    """The open call of that id, else the oldest equal one. What was refused at the machine is not
    waiting to run.

    An id that an agent has used for two calls names the equal one: what ran must not pass for the
    approval of what did not.
    """
    by_id = _open(session).filter(tool_call_id=call.id).first() if call.id else None
    if by_id is not None and by_id.same == call.same:
        return by_id
    refused = Q(decision=ToolCall.Decision.REJECTED, decided_by=ToolCall.DecidedBy.AGENT)
    return _open(session).filter(~refused, same=call.same).first() or by_id


def conclude(
    box: Outbox,
    session: Session,
    tool_call_id: str,
    call: Call,
    outcome: ToolOutcome,
    error: s.ToolError | None = None,
) -> None:
    """A call of an agent that the bridge runs is over: ``tool_result``, and ``tool_error`` if the
    tool failed.

    A refusal has a result too, and that is no tool that ran; only one that was rejected and
    succeeded all the same is said.
    """
    box.append(
        session.feed,
        encode(
            s.ToolResult(
                session_id=session.session_id,
                tool_call_id=tool_call_id,
                tool=call.tool,
                result=outcome,
            )
        ),
    )
    if error is not None:
        box.append(session.feed, encode(error))
    record = _open(session).filter(tool_call_id=tool_call_id).first()
    if record is not None:
        _finished(box, session, record, outcome, ran=outcome.success)


def withdraw(box: Outbox, session: Session, tool_call_id: str, *, reason: str) -> None:
    """The agent no longer waits for a decision about a call."""
    record = _open(session).filter(tool_call_id=tool_call_id, decision=_PENDING).first()
    if record is not None:
        _settle(
            box,
            session,
            record,
            ToolCall.Decision.REJECTED,
            by=ToolCall.DecidedBy.BRIDGE,
            reason=reason,
        )


def abandon(box: Outbox, session: Session) -> None:
    """The agent is gone: no call of it will ever end."""
    _open(session).update(finished_at=box.now)


def moved_on(box: Outbox, session: Session) -> None:
    """The session went on without running what was pending: it was refused at the machine (D37)."""
    reject_pending(box, session, by=ToolCall.DecidedBy.AGENT)


def close(box: Outbox, session: Session, *, by: str) -> None:
    """The session has ended, and with it every open call (D38)."""
    reject_pending(box, session, by=by, reason="session_closed")
    abandon(box, session)


def reject_pending(box: Outbox, session: Session, *, by: str, reason: str = "") -> None:
    """Reject what is pending of a session, for a ``reason`` of the bridge's own or because the
    machine did.
    """
    if session.pending_approvals:
        for record in _open(session).filter(decision=_PENDING):
            _settle(box, session, record, ToolCall.Decision.REJECTED, by=by, reason=reason)


# -- deciding --------------------------------------------------------------------------------------


def decide(
    device: Device,
    session_id: str,
    tool_call_id: str,
    decision: Decision,
    modifications: Mapping[str, Any] | None,
) -> s.ApprovalRecorded:
    """A device's decision. The first one stands, whichever process it reaches; the same one again
    is answered again (D38).

    Raises BridgeError SESSION_NOT_FOUND, SESS_CLOSED, TOOL_CALL_NOT_FOUND, or TOOL_ALREADY_DECIDED
    with what stands in ``details``.
    """
    given = jsontext.dumps(modifications) if decision == "modified" else None
    with outbox() as box:
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
        if record.decision == _PENDING:
            record.modifications = given
            record.forwarded = _forward(session, record, decision, modifications)
            _settle(box, session, record, decision, by=ToolCall.DecidedBy.DEVICE, device=device)
            Session.objects.filter(pk=session.pk).update(
                pending_approvals=session.pending_approvals
            )
            audit.record(
                "decision",
                device=device,
                session_id=session_id,
                subject=tool_call_id,
                decision=decision,
                tool=record.tool,
            )
        elif not stands:
            raise _already(session_id, record)
    assert record.decided_at is not None
    return s.ApprovalRecorded(
        session_id=session_id,
        tool_call_id=tool_call_id,
        decision=decision,
        forwarded=record.forwarded,
        decided_at=now_text(record.decided_at),
    )


def _forward(
    session: Session, record: ToolCall, decision: Decision, modifications: Mapping[str, Any] | None
) -> bool:
    """Have the agent told, if the bridge runs it, as soon as this commits; whether its process
    lives, as far as one can tell.

    A process whose lease has run out may only have slept, and then its agent still waits; of a dead
    one the command goes with the agent.
    """
    if (
        session.kind != Session.Kind.BRIDGE
        or session.status != Session.Status.ACTIVE
        or session.owner is None
    ):
        return False
    inbox.add(
        session,
        inbox.Kind.DECIDE,
        tool_call_id=record.tool_call_id,
        decision=decision,
        modifications=modifications,
    )
    return leases.lives(session.owner)


def _settle(
    box: Outbox,
    session: Session,
    record: ToolCall,
    decision: str,
    *,
    by: str,
    device: Device | None = None,
    reason: str = "",
) -> None:
    """Write a decision where none stands yet, and tell everybody. The head of the log is held, so
    nobody else decides meanwhile.
    """
    record.decision, record.decided_by, record.device, record.reason, record.decided_at = (
        decision,
        by,
        device,
        reason,
        box.now,
    )
    record.save(
        update_fields=[
            "decision",
            "decided_by",
            "device",
            "reason",
            "decided_at",
            "modifications",
            "forwarded",
        ]
    )
    session.pending_approvals -= 1
    box.append_to_all(encode(notifications.approval_decided(session, record)))
    if by != ToolCall.DecidedBy.DEVICE:
        audit.record(
            "decision",
            actor=by,
            session_id=session.session_id,
            subject=record.tool_call_id,
            decision=decision,
            tool=record.tool,
            reason=reason,
        )


def _already(session_id: str, record: ToolCall) -> BridgeError:
    assert record.decided_at is not None
    who = (
        f"on {record.device.name}"
        if record.device
        else {"agent": "at the machine", "bridge": "by the bridge"}.get(
            record.decided_by, "on a device"
        )
    )
    details = {
        "tool_call_id": record.tool_call_id,
        "decision": record.decision,
        "decided_by": record.decided_by,
        "decided_at": now_text(record.decided_at),
    }
    details |= {"device": record.device.name} if record.device else {}
    details |= {"reason": record.reason} if record.reason else {}
    return BridgeError(
        "TOOL_ALREADY_DECIDED",
        f"This was {record.decision} {who} already.",
        session_id=session_id,
        details=details,
    )


def pending_frames(upto: int) -> list[tuple[str, str]]:
    """(message id, frame) of every ``approval_required`` that is still pending, oldest first, but
    for those after the log's row ``upto``.

    They are for every device that connects (D28); what was asked after that is live.
    """
    frames = (
        ToolCall.objects.filter(decision=_PENDING).order_by("pk").values_list("frame", flat=True)
    )
    pending = [(json.loads(frame)["id"], frame) for frame in frames]
    later = (
        set(
            LogRow.objects.filter(seq__gt=upto, type="approval_required").values_list(
                "message_id", flat=True
            )
        )
        if pending
        else set()
    )
    return [(id_, frame) for id_, frame in pending if id_ not in later]


def forget_old() -> int:
    """Drop finished and abandoned calls about which nobody was asked; approvals stay as long as
    their session. Returns how many.
    """
    old, forgotten = (
        ToolCall.objects.filter(
            decision=None,
            created_at__lt=timezone.now() - timedelta(seconds=limits.TOOL_CALL_KEEP_SECONDS),
        ),
        0,
    )
    while keys := list(old.order_by().values_list("pk", flat=True)[:FORGET_CALLS]):
        with outbox():  # a call about which somebody is asked just now stays
            forgotten += old.filter(pk__in=keys).delete()[0]
        if len(keys) < FORGET_CALLS:
            break
    return forgotten
