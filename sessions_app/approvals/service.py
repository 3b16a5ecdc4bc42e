"""Record tool calls: announced, waiting for approval, ended (D37, D38).

Everything here but ``forget_old`` runs inside an outbox. Decisions are made in decisions.py.
"""

import uuid
from datetime import timedelta

from django.db.models import Q

from bridge_project.kernel import limits
from bridge_project.kernel.ages import ages
from bridge_project.kernel.text import printable
from bridge_project.protocol import jsontext
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.resources import ToolOutcome
from bridge_project.protocol.types import ApprovalSource
from sessions_app import notifications
from sessions_app.approvals import open_calls
from sessions_app.approvals.decisions import store_decision
from sessions_app.approvals.tool_call import Call
from sessions_app.approvals.tool_result import Failure
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import Session, ToolCall

_PENDING, _REJECTED = ToolCall.Decision.PENDING, ToolCall.Decision.REJECTED
FORGET_CALLS = 500  # in one transaction


# -- a call begins ---------------------------------------------------------------------------------


def report(box: Outbox, session: Session, call: Call) -> str:
    """Record a call without an approval, announce it once; return its id for devices."""
    if tool_call_id := open_calls.begin_call(box, session, call, _name(call)):
        ids = {"session_id": session.session_id, "tool_call_id": tool_call_id, "tool": call.tool}
        message = s.ToolCall(**ids, params=dict(call.params), description=call.description)
        box.append(session.feed, encode(message))
    session.set_turn(Session.Turn.WORKING, call.doing(box.now))
    return tool_call_id or call.id or ""


def ask(box: Outbox, session: Session, call: Call, *, of_open_call: bool = False) -> ToolCall:
    """Record a call that waits for a person, with ``approval_required``, once.

    ``of_open_call``: a permission request, which is about a call that has been reported already if
    there is one (D37). In a session that has ended nobody waits: there the call is rejected.
    """
    source: ApprovalSource = "hooks" if session.kind == Session.Kind.OBSERVED else "agent_sdk"
    if source == "hooks":
        record = open_calls.seen_before(session, call, of_open_call=of_open_call)
    else:
        record = open_calls.asked_before(box, session, call)
    if record is None:
        id_ = _free_id(session, call)
        record = ToolCall(session=session, tool_call_id=id_, created_at=box.now)
    if record.decision is not None:
        return record
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
    # What was asked is kept in full; of any other call that is in the log only.
    record.tool, record.same, record.source = _name(call), call.same, source
    record.risk_level, record.decision = call.risk_level, _PENDING
    record.description = call.description.replace("\x00", " ")
    record.reasoning = call.reasoning and call.reasoning.replace("\x00", " ")
    record.params, record.frame = jsontext.dumps(call.params), message.text
    record.save()
    session.pending_approvals += 1
    session.set_turn(Session.Turn.WAITING, call.doing(box.now))
    box.append(session.feed, message)
    box.append_to_all(encode(notifications.approval_required(session, record)))
    if session.status == Session.Status.CLOSED:
        reject_pending(box, session, reason="session_closed")
    return record


def _free_id(session: Session, call: Call) -> str:
    """Return the call's id, or a fresh one if it is taken: ids name one call each."""
    id_ = call.id or str(uuid.uuid4())
    taken = ToolCall.objects.filter(session=session, tool_call_id=id_).exists()
    return str(uuid.uuid4()) if taken else id_


def _name(call: Call) -> str:
    return printable(call.tool)[:128] or "unknown"


# -- a call ends -----------------------------------------------------------------------------------


def record_hook_outcome(
    box: Outbox, session: Session, call: Call, outcome: ToolOutcome, failure: Failure | None
) -> None:
    """Record a tool's outcome from its hooks; append ``tool_result`` or ``tool_error``.

    That it ran says who decided, if nobody had (D37).
    """
    ended = open_calls.end_call(box, session, call)
    tool_call_id = (ended[1] if ended else call.id) or str(uuid.uuid4())
    _append_result(box, session, tool_call_id, call.tool, outcome, failure)
    if ended and ended[2] is not None:  # somebody was asked
        _end(box, session, ToolCall.objects.get(pk=ended[0]), outcome, ran=True)
    _go_on(session)


def record_outcome(
    box: Outbox,
    session: Session,
    id_: str,
    tool: str,
    outcome: ToolOutcome,
    failure: Failure | None,
) -> None:
    """Record the outcome of a tool call in a session that the bridge runs.

    A refusal has a result too, and that is no tool that ran.
    """
    _append_result(box, session, id_, tool, outcome, failure)
    record = open_calls.find_open(session).filter(tool_call_id=id_).first()
    if record is not None:
        _end(box, session, record, outcome, ran=outcome.success)
    _go_on(session)


def _go_on(session: Session) -> None:
    """Set the turn to working or waiting after a call; a turn that is over stays over."""
    if session.turn != Session.Turn.IDLE:
        waits = session.pending_approvals > 0
        session.set_turn(Session.Turn.WAITING if waits else Session.Turn.WORKING)


def _append_result(
    box: Outbox,
    session: Session,
    id_: str,
    tool: str,
    outcome: ToolOutcome,
    failure: Failure | None,
) -> None:
    ids = {"session_id": session.session_id, "tool_call_id": id_, "tool": tool}
    box.append(session.feed, encode(s.ToolResult(**ids, result=outcome)))
    if failure is not None:
        error = s.ToolError(
            **ids,
            code=failure.code,
            message=failure.message,
            details=failure.details,
            retryable=failure.retries > 0,
            max_retries=failure.retries,
        )
        box.append(session.feed, encode(error))


def _end(
    box: Outbox, session: Session, record: ToolCall, outcome: ToolOutcome, *, ran: bool
) -> None:
    """Close a record; tell every device when a rejected call ran all the same."""
    record.finished_at = box.now
    record.result = jsontext.dumps(outcome.wire()) if record.decision is not None else None
    record.save(update_fields=["finished_at", "result"])
    if record.decision == _PENDING and session.kind == Session.Kind.BRIDGE:  # it did not wait
        by = ToolCall.DecidedBy.BRIDGE
        store_decision(box, session, record, _REJECTED, by=by, reason="turn_ended")
    elif record.decision == _PENDING:
        decision = ToolCall.Decision.APPROVED if ran else _REJECTED
        store_decision(box, session, record, decision, by=ToolCall.DecidedBy.AGENT)
        return
    if record.decision == _REJECTED and ran:
        box.append_to_all(encode(notifications.ran_anyway(session, record)))


def report_ran_anyway(box: Outbox, session: Session, id_: str) -> None:
    """Notify every device that a refused call of a bridge-run session ran all the same."""
    for record in ToolCall.objects.filter(session=session, tool_call_id=id_):
        box.append_to_all(encode(notifications.ran_anyway(session, record)))


# -- ending calls without a result -----------------------------------------------------------------


def reject_pending(
    box: Outbox,
    session: Session,
    *,
    by: str = ToolCall.DecidedBy.BRIDGE,
    reason: str = "",
    **which: str,
) -> None:
    """Reject a session's pending calls, or ``which`` of them; ``by``: a ToolCall.DecidedBy."""
    if session.pending_approvals:
        for record in open_calls.find_open(session).filter(decision=_PENDING, **which):
            store_decision(box, session, record, _REJECTED, by=by, reason=reason)


def reject_passed_over(box: Outbox, session: Session) -> None:
    """Reject pending calls as refused at the machine: the agent has gone on without them."""
    reject_pending(box, session, by=ToolCall.DecidedBy.AGENT)
    _report_not_run(box, session)


def _report_not_run(box: Outbox, session: Session) -> None:
    """Notify every device of calls that devices decided about and that did not run."""
    if session.decided_by_device:
        session.decided_by_device = False
        decided = open_calls.find_open(session).filter(decided_by=ToolCall.DecidedBy.DEVICE)
        for record in decided.filter(reason=""):
            record.reason = "not_run"
            record.save(update_fields=["reason"])
            box.append_to_all(encode(notifications.was_not_run(session, record)))


def fail_open_calls(box: Outbox, session: Session, reason: str) -> None:
    """End every open call with a failed ``tool_result``: the agent is gone (D35)."""
    why = f"The call has no result {notifications.WHY[reason]}."
    outcome = ToolOutcome(success=False, content="", error=why)
    for record in open_calls.find_open(session):
        _append_result(box, session, record.tool_call_id, record.tool, outcome, None)
        _end(box, session, record, outcome, ran=False)


def close_calls(box: Outbox, session: Session, *, by: str) -> None:
    """Reject pending calls and end the open ones: the session has ended (D38).

    What a device has rejected stays open: its tool may be reported to have run only now (D37).
    """
    reject_pending(box, session, by=by, reason="session_closed")
    _report_not_run(box, session)
    refused = Q(decision=_REJECTED, decided_by=ToolCall.DecidedBy.DEVICE)
    open_calls.find_open(session).exclude(refused).update(finished_at=box.now)


def forget_old() -> int:
    """Delete old calls that needed no approval; return how many."""
    before = ages.now() - timedelta(seconds=limits.TOOL_CALL_KEEP_SECONDS)
    old = ToolCall.objects.filter(decision=None, created_at__lt=before)
    forgotten = 0
    while keys := list(old.order_by().values_list("pk", flat=True)[:FORGET_CALLS]):
        with outbox():  # a call about which somebody is asked just now stays
            forgotten += old.filter(pk__in=keys).delete()[0]
        if len(keys) < FORGET_CALLS:
            break
    return forgotten
