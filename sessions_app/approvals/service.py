"""Record tool calls: announced, waiting for approval, ended (D37, D38).

Everything here but ``forget_old`` runs inside an outbox. Which open call is meant is matched in
open_calls.py, decisions are made in decisions.py.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from bridge_project.kernel import limits
from bridge_project.kernel.ages import ages
from bridge_project.kernel.database import delete_in_steps
from bridge_project.kernel.process_note import ProcessNote
from bridge_project.protocol import jsontext
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.resources import ApprovalOption, ToolOutcome
from bridge_project.protocol.types import ApprovalSource
from sessions_app import leases, notifications
from sessions_app.approvals import decisions, held_hooks, open_calls
from sessions_app.approvals.decisions import approve_by_rule, store_decision
from sessions_app.approvals.rules import store as rules
from sessions_app.approvals.rules.matching import ASKS, Judgement
from sessions_app.approvals.tool_call import DIALOGS, Call
from sessions_app.approvals.tool_result import Failure
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import Session, ToolCall

_PENDING, _REJECTED = ToolCall.Decision.PENDING, ToolCall.Decision.REJECTED
# then a call that ran although a device rejected it may have been allowed at the desk (D66)
_PERHAPS_DESK = (ToolCall.Outcome.DESK_FIRST, ToolCall.Outcome.NOT_CONFIRMED)


def _asked_before(box: Outbox, session: Session, call: Call) -> ToolCall | None:
    """Return the open call with the same id; the bridge's own agents use unique ids.

    Its parameters may have changed as long as nobody was asked. When it was decided and is asked
    about again, that is another call, and the first has ended.
    """
    record = open_calls.of(session).filter(tool_call_id=call.id).first() if call.id else None
    if record is None or record.decision is None:
        return record
    if record.decision != _PENDING:
        record.finished_at = box.now
        record.save(update_fields=["finished_at"])
        _go_on(session, record.tool_call_id)
        return None
    return record if record.same == call.digest else None


def _reads_alike(record: ToolCall, call: Call) -> bool:
    """Return whether a person who is asked about a record reads what a call says."""
    if record.decision is None:
        return True  # nobody was asked yet
    shown = (record.description, record.risk_level, record.reasoning)
    return shown == _shown_of(call)


def _shown_of(call: Call) -> tuple[str, str, str | None]:
    words = (call.description, call.reasoning)
    description, reasoning = (text and text.replace("\x00", " ") for text in words)
    return description or "", call.risk_level, reasoning


def report(box: Outbox, session: Session, call: Call) -> str:
    """Record a call that nobody is asked about, once; return the id devices know."""
    if tool_call_id := open_calls.begin(box, session, call):
        _begin(session, call, tool_call_id, box.now)
        announce(box, session, call, tool_call_id)
        return tool_call_id
    record = open_calls.open_as(session, call)
    if record is not None and open_calls.has_made_id(record):  # it was asked about, and begins now
        _show_decided(box, session, record, call)
        if record.decision == _PENDING:
            by = ToolCall.DecidedBy.AGENT
            store_decision(box, session, record, ToolCall.Decision.APPROVED, by=by)
    tool_call_id = record.tool_call_id if record is not None else call.id or ""
    _begin(session, call, tool_call_id, box.now)
    return tool_call_id


def announce(
    box: Outbox, session: Session, call: Call, id_: str, rule: rules.Rule | None = None
) -> None:
    """Append ``tool_call``: of a call that nobody is asked about."""
    message = s.ToolCall(
        session_id=session.session_id,
        tool_call_id=id_,
        tool=call.tool,
        params=dict(call.params),
        description=call.description,
        agent=call.agent.wire(),
        decided_by=None if rule is None else "rule",
        rule=None if rule is None else rules.use_of(rule),
    )
    box.append(session.feed, encode(message))


def ask(
    box: Outbox,
    session: Session,
    call: Call,
    *,
    of_open_call: bool = False,
    options: Sequence[ApprovalOption] = (),
    judgement: Judgement = ASKS,
    rule: rules.Rule | None = None,
    process: ProcessNote | None = None,
) -> ToolCall:
    """Record a call that waits for a person, with ``approval_required``, once.

    ``of_open_call``: a permission request, which is about a call that has been reported already if
    there is one (D37). In a session that has ended nobody waits: there the call is rejected.
    ``judgement``: which rules a person is offered; ``rule``: the one that approves the call instead
    of a person, with ``tool_call`` (D68).
    ``process``: whose hook may wait for the answer (D66).
    """
    hook = held_hooks.hold(process, subagent=bool(call.agent.id))
    source: ApprovalSource = "hooks" if session.kind == Session.Kind.OBSERVED else "agent_sdk"
    if source == "hooks":
        record = open_calls.asked_about(session, call, of_open_call=of_open_call)
        if hook is not None and record is not None and not _reads_alike(record, call):
            record = None  # a person must have read what the hook itself has reported
    else:
        record = _asked_before(box, session, call)
    if record is None:
        id_ = open_calls.free_id(session, call)
        record = ToolCall(session=session, tool_call_id=id_, created_at=box.now)
    if record.decision is not None:
        if hook is not None and record.decision == _PENDING and not record.hook:
            decisions.begin_wait(box, session, record, hook.nonce)
        return record  # a hook that has no record is let go of
    # Calls that ask are kept in full; the details of others are in the log only.
    changed = source == "hooks" and open_calls.is_changed(record, call)
    record.same = call.digest if changed else record.same or call.digest
    record.tool, record.source = open_calls.name_of(call), source
    record.agent_id, record.agent_type = call.agent
    record.description, record.risk_level, record.reasoning = _shown_of(call)
    record.decision = _PENDING
    record.params, record.exact = jsontext.dumps(call.params), judgement.digest
    if rule is not None:
        _begin(session, call, record.tool_call_id, box.now)
        announce(box, session, call, record.tool_call_id, rule)
        approve_by_rule(box, session, record, rule)
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
            agent=call.agent.wire(),
            changed=changed or None,
            options=list(options) or None,
            remember=list(judgement.offers) or None,
            answerable=True if hook is not None else None,
        )
    )
    record.frame = message.text
    if hook is not None:
        record.hook, record.holder = hook.nonce, leases.current()
    record.save()
    if hook is not None:
        decisions.count_waiting(session)
    session.pending_approvals += 1
    _begin(session, call, record.tool_call_id, box.now, waits=True)
    box.append(session.feed, message)
    box.append_to_all(encode(notifications.approval_required(session, record)))
    if session.status == Session.Status.CLOSED:
        reject_pending(box, session, reason="session_closed")
    return record


def record_hook_outcome(
    box: Outbox, session: Session, call: Call, outcome: ToolOutcome, failure: Failure | None
) -> None:
    """Record a tool's outcome from a hook; append ``tool_result`` or ``tool_error``.

    That it ran says who decided, if nobody had (D37).
    """
    ended = open_calls.end(box, session, call)
    tool_call_id = (ended and ended.tool_call_id) or call.id or str(uuid.uuid4())
    # a dialog's answers are in the parameters with which it ends
    changed = ended is not None and ended.changed and call.tool not in DIALOGS
    _append_result(
        box,
        session,
        tool_call_id,
        call.tool,
        outcome,
        failure,
        agent=call.agent.wire(),
        changed=changed or None,
        params=dict(call.params) if changed else None,
    )
    if ended and ended.decision is not None:  # somebody was asked
        record = ToolCall.objects.select_related("device").get(pk=ended.key)
        _show_decided(box, session, record, call)
        _end(box, session, record, outcome, ran=True)
    _go_on(session, tool_call_id)


def _is_unsettled(record: ToolCall) -> bool:
    """Return whether nothing shows yet what came of a decision for a hook (D66)."""
    by_device = record.decided_by == ToolCall.DecidedBy.DEVICE
    return by_device and not record.outcome and (record.forwarded or record.hook != "")


def _show_decided(box: Outbox, session: Session, record: ToolCall, call: Call) -> None:
    """Tell what came of a decision for a hook, if nothing has shown it yet (D66)."""
    if _is_unsettled(record):
        decisions.end_wait(box, session, record)
        decisions.settle(box, session, record, _outcome_shown(record, call))


def _outcome_shown(record: ToolCall, call: Call) -> ToolCall.Outcome:
    """Return who answered first, as a call that ran shows it (D66)."""
    if record.hook or record.decision == _REJECTED:
        return ToolCall.Outcome.DESK_FIRST
    if record.decision == ToolCall.Decision.MODIFIED:
        wanted = jsontext.loads(record.modifications or "{}")
        answered = call.params.get("answers") == wanted.get("answers")
        if not (answered if call.tool in DIALOGS else call.digest != record.same):
            return ToolCall.Outcome.DESK_FIRST
    return ToolCall.Outcome.TAKEN


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
    record = open_calls.of(session).filter(tool_call_id=id_).first()
    if record is not None:
        _end(box, session, record, outcome, ran=outcome.success)
    _go_on(session, id_)


def _begin(session: Session, call: Call, id_: str, now: datetime, *, waits: bool = False) -> None:
    """Add a call that begins or waits to what the session is doing (D54)."""
    others = [one for one in session.calls if one["id"] != id_]
    session.set_calls([*others, {"id": id_, **call.doing(now), "waits": waits}])


def _go_on(session: Session, id_: str) -> None:
    """Remove an ended call from what the session is doing, while the turn goes on."""
    if session.turn != Session.Turn.IDLE:
        session.set_calls([one for one in session.calls if one["id"] != id_])


def _append_result(
    box: Outbox,
    session: Session,
    id_: str,
    tool: str,
    outcome: ToolOutcome,
    failure: Failure | None,
    **added: Any,
) -> None:
    ids: dict[str, Any] = {"session_id": session.session_id, "tool_call_id": id_, "tool": tool}
    box.append(session.feed, encode(s.ToolResult(**ids, result=outcome, **added)))
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
    # what was rejected on no device was allowed at the machine after all
    at_desk = session.kind == Session.Kind.OBSERVED and record.device_id is None
    at_desk = at_desk or record.outcome in _PERHAPS_DESK
    if record.decision == _REJECTED and ran and not at_desk:
        box.append_to_all(encode(notifications.ran_anyway(session, record)))


def reject_pending(
    box: Outbox,
    session: Session,
    *,
    by: str = ToolCall.DecidedBy.BRIDGE,
    reason: str = "",
    **which: str,
) -> None:
    """Reject a session's pending calls, or those whose fields are ``which``."""
    if session.pending_approvals:
        for record in open_calls.of(session).filter(decision=_PENDING, **which):
            store_decision(box, session, record, _REJECTED, by=by, reason=reason)


def reject_passed_over(box: Outbox, session: Session) -> None:
    """End the calls of a turn that is over, for its agent went on.

    Those that wait are rejected; it is recorded as decided at the machine.
    """
    reject_pending(box, session, by=ToolCall.DecidedBy.AGENT)
    _report_without_result(box, session)
    if session.calls:
        open_calls.end_unasked(box, session)


def end_subagent(box: Outbox, session: Session, agent_id: str) -> None:
    """End the calls of a subagent that has ended, as `reject_passed_over` does."""
    if not session.calls:
        return
    waiting = open_calls.of(session).filter(decision=_PENDING, agent_id=agent_id)
    over = {*waiting.values_list("tool_call_id", flat=True)}
    reject_pending(box, session, by=ToolCall.DecidedBy.AGENT, agent_id=agent_id)
    over |= {*open_calls.end_unasked(box, session, agent_id)}
    if over:
        session.set_calls([one for one in session.calls if one["id"] not in over])


def _report_without_result(box: Outbox, session: Session) -> None:
    """Notify every device of calls that devices decided about and that have no result."""
    if session.decided_by_device:
        session.decided_by_device = False
        decided = open_calls.of(session).filter(decided_by=ToolCall.DecidedBy.DEVICE)
        for record in decided.filter(reason="").select_related("device"):
            record.reason = "no_result"
            record.save(update_fields=["reason"])
            refused = record.decision == _REJECTED
            if _is_unsettled(record):
                none = ToolCall.Outcome.NOT_CONFIRMED
                decisions.settle(box, session, record, ToolCall.Outcome.TAKEN if refused else none)
            if refused and record.forwarded:
                continue  # that it has none is what was wanted
            box.append_to_all(encode(notifications.without_result(session, record)))


def fail_unfinished_calls(box: Outbox, session: Session, reason: str) -> None:
    """End every open call with a failed ``tool_result``: the agent is gone (D35)."""
    why = f"The call has no result {notifications.WHY[reason]}."
    outcome = ToolOutcome(success=False, content="", error=why)
    for record in open_calls.of(session):
        _append_result(box, session, record.tool_call_id, record.tool, outcome, None)
        _end(box, session, record, outcome, ran=False)


def close_calls(box: Outbox, session: Session, *, by: str, reason: str = "session_closed") -> None:
    """Reject pending calls and end the open ones: the session has ended (D38, D67).

    What a device has rejected stays open: its tool may be reported to have run only now (D37).
    """
    reject_pending(box, session, by=by, reason=reason)
    _report_without_result(box, session)
    refused = Q(decision=_REJECTED, decided_by=ToolCall.DecidedBy.DEVICE)
    open_calls.of(session).exclude(refused).update(finished_at=box.now)


def forget_old() -> int:
    """Delete old calls that needed no approval; return how many."""
    before = ages.now() - timedelta(seconds=limits.TOOL_CALL_KEEP_SECONDS)
    old = ToolCall.objects.filter(decision=None, created_at__lt=before)
    return delete_in_steps(old, outbox)  # a call about which somebody is asked just now stays
