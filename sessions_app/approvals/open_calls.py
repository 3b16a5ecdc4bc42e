"""Create, find and end the records of tool calls that are still open (D37)."""
# ruff: noqa: S608 - only our own names are put into statements

import uuid

from django.db.models import QuerySet

from sessions_app.approvals.tool_call import Call
from sessions_app.log.outbox import Outbox
from sessions_app.models import Session, ToolCall

_PENDING, _REJECTED = ToolCall.Decision.PENDING, ToolCall.Decision.REJECTED


def find_open(session: Session) -> QuerySet[ToolCall]:
    return ToolCall.objects.filter(session=session, finished_at=None).order_by("pk")


def seen_before(session: Session, call: Call, *, of_open_call: bool) -> ToolCall | None:
    """Return the open call with the same id, tool and parameters, if any.

    ``of_open_call``: else the oldest equal one that nobody was asked about, or a pending one.
    """
    equal = find_open(session).filter(same=call.same)
    found = equal.filter(tool_call_id=call.id).first() if call.id else None
    if found is None and of_open_call:
        found = equal.filter(decision=None).first() or equal.filter(decision=_PENDING).first()
    return found


def asked_before(box: Outbox, session: Session, call: Call) -> ToolCall | None:
    """Return the open call with the same id; the bridge's own agents use unique ids.

    Its parameters may have changed as long as nobody was asked. When it was decided and is asked
    about again, that is another call, and the first has ended.
    """
    record = find_open(session).filter(tool_call_id=call.id).first() if call.id else None
    if record is None or record.decision is None:
        return record
    if record.decision != _PENDING:
        record.finished_at = box.now
        record.save(update_fields=["finished_at"])
        return None
    return record if record.same == call.same else None


# One statement each: nine of ten events are about calls without an approval.
_CALL = ToolCall._meta.db_table
_NAMED = "session_id = %s AND tool_call_id = %s"
_EMPTY = "description params source decided_by reason frame"
_OPEN = f'SELECT id FROM "{_CALL}" WHERE finished_at IS NULL AND '
# No two calls share an id: one whose id the session has had gets another.
_BEGIN = (
    f'INSERT INTO "{_CALL}" (session_id, tool_call_id, tool, same, risk_level, created_at, '
    f"forwarded, {_EMPTY.replace(' ', ', ')}) SELECT %s, "
    f'CASE WHEN EXISTS (SELECT 1 FROM "{_CALL}" WHERE {_NAMED}) THEN %s ELSE %s END, '
    f"%s, %s, %s, %s, %s{', %s' * len(_EMPTY.split())} "
    f"WHERE NOT EXISTS ({_OPEN} {_NAMED} AND same = %s) RETURNING tool_call_id"
)
# An equal call counts before a call with the same id: when an agent uses one id for two calls, the
# one that ran must not approve the other. A call that was refused at the machine does not run.
_END = (
    f'UPDATE "{_CALL}" SET finished_at = %s WHERE id = COALESCE('
    f"({_OPEN} session_id = %s AND same = %s AND (tool_call_id = %s OR decision IS NULL "
    "OR decision <> %s OR decided_by <> %s) "
    "ORDER BY CASE WHEN tool_call_id = %s THEN 0 ELSE 1 END, id LIMIT 1), "
    f"({_OPEN} {_NAMED})) RETURNING id, tool_call_id, decision"
)


def begin_call(box: Outbox, session: Session, call: Call, tool: str) -> str | None:
    """Store a call without an approval; return its id, None if it is open already."""
    same, other_id = call.same, str(uuid.uuid4())
    own = (session.pk, call.id or "")
    id_, unset = (other_id, call.id or other_id), ("",) * len(_EMPTY.split())
    about = (tool, same, call.risk_level, box.moment, False)
    box.cursor.execute(_BEGIN, (session.pk, *own, *id_, *about, *unset, *own, same))
    return row[0] if (row := box.cursor.fetchone()) else None


def end_call(box: Outbox, session: Session, call: Call) -> tuple[int, str, str | None] | None:
    """Mark the open call that ran as ended; return its key, id and decision.

    It is the equal call with that id, else the oldest equal one, else the one with that id.
    """
    own = (session.pk, call.id or "")
    refused = (_REJECTED, ToolCall.DecidedBy.AGENT)
    box.cursor.execute(_END, (box.moment, session.pk, call.same, own[1], *refused, own[1], *own))
    found: tuple[int, str, str | None] | None = box.cursor.fetchone()
    return found
