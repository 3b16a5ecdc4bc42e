"""Find the record of a tool call that has not ended (D37)."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from sessions_app.approvals.tool_call import Call
from sessions_app.log.outbox import Outbox
from sessions_app.models import Session, ToolCall

_PENDING, _REJECTED = ToolCall.Decision.PENDING, ToolCall.Decision.REJECTED


def open_calls(session: Session) -> QuerySet[ToolCall]:
    return ToolCall.objects.filter(session=session, finished_at=None).order_by("pk")


def seen_before(session: Session, call: Call) -> ToolCall | None:
    """The equal open call of that id: the same call, seen again."""
    return (
        open_calls(session).filter(tool_call_id=call.id, same=call.same).first()
        if call.id
        else None
    )


def asked_before(box: Outbox, session: Session, call: Call) -> ToolCall | None:
    """The open call of that id, of an agent that the bridge runs: its ids are unique.

    One about which nobody was asked may have got other parameters since; one that is decided and
    asked about again is another call, and so the first has ended.
    """
    record = open_calls(session).filter(tool_call_id=call.id).first() if call.id else None
    if record is None or record.decision is None:
        return record
    if record.decision != _PENDING:
        record.finished_at = box.now
        record.save(update_fields=["finished_at"])
        return None
    return record if record.same == call.same else None


def equal_not_decided(session: Session, call: Call) -> ToolCall | None:
    """The oldest equal open call about which nobody was asked yet, else one that is pending."""
    equal = open_calls(session).filter(same=call.same)
    return equal.filter(decision=None).first() or equal.filter(decision=_PENDING).first()


def that_ran(session: Session, call: Call) -> ToolCall | None:
    """The equal open call of that id, else the oldest equal one, else the one of that id.

    Equal before id: an id that an agent has used for two calls must not make what ran pass for the
    approval of what did not. What was refused at the machine is not waiting to run.
    """
    by_id = open_calls(session).filter(tool_call_id=call.id).first() if call.id else None
    if by_id is not None and by_id.same == call.same:
        return by_id
    refused = Q(decision=_REJECTED, decided_by=ToolCall.DecidedBy.AGENT)
    return open_calls(session).filter(~refused, same=call.same).first() or by_id
