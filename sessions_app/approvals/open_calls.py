"""Match what an agent says of a call to the open call that it means (D37).

``begin`` and ``end`` are one statement each, for nine of ten events are about calls without an
approval.
"""
# ruff: noqa: S608 - only our own names are put into statements

import uuid
from typing import NamedTuple

from django.db.models import QuerySet

from bridge_project.kernel.text import printable
from sessions_app.approvals.tool_call import Call
from sessions_app.log.outbox import Outbox
from sessions_app.models import Session, ToolCall

_CALL = ToolCall._meta.db_table
# No two calls share an id: one whose id the session has had gets another.
_BEGIN = f"""
    INSERT INTO "{_CALL}" (
        session_id, tool_call_id, tool, same, risk_level, created_at,
        forwarded, description, params, source, decided_by, reason, frame
    )
    SELECT
        %(session)s,
        CASE
            WHEN EXISTS (
                SELECT 1 FROM "{_CALL}" WHERE session_id = %(session)s AND tool_call_id = %(id)s
            ) THEN %(other_id)s
            ELSE COALESCE(%(id)s, %(other_id)s)
        END,
        %(tool)s, %(same)s, %(risk_level)s, %(now)s,
        FALSE, '', '', '', '', '', ''
    WHERE NOT EXISTS (
        SELECT 1 FROM "{_CALL}"
        WHERE session_id = %(session)s AND finished_at IS NULL
            AND tool_call_id = %(id)s AND same = %(same)s
    )
    RETURNING tool_call_id
"""
# The open call that ran: the equal one with that id, else the one that waits, else the oldest equal
# one, else the one with that id. When an agent uses one id for two calls, the one that ran must not
# approve the other. A call that was refused at the machine does not run.
_END = f"""
    UPDATE "{_CALL}" SET finished_at = %(now)s
    WHERE id = COALESCE(
        (
            SELECT id FROM "{_CALL}"
            WHERE session_id = %(session)s AND finished_at IS NULL AND same = %(same)s AND (
                tool_call_id = %(id)s
                OR decision IS NULL OR decision <> 'rejected' OR decided_by <> 'agent'
            )
            ORDER BY
                CASE WHEN tool_call_id = %(id)s THEN 0 WHEN decision = 'pending' THEN 1 ELSE 2 END,
                id
            LIMIT 1
        ),
        (
            SELECT id FROM "{_CALL}"
            WHERE session_id = %(session)s AND finished_at IS NULL AND tool_call_id = %(id)s
        )
    )
    RETURNING id, tool_call_id, decision
"""


class Ended(NamedTuple):
    """Hold the key of a call that has ended, and what was decided about it."""

    key: int
    tool_call_id: str
    decision: str | None


def of(session: Session) -> QuerySet[ToolCall]:
    """Return a session's open calls, oldest first."""
    return ToolCall.objects.filter(session=session, finished_at=None).order_by("pk")


def name_of(call: Call) -> str:
    """Return the name of a call's tool as it is stored."""
    return printable(call.tool)[:128] or "unknown"


def asked_about(session: Session, call: Call, *, of_open_call: bool) -> ToolCall | None:
    """Return the open call with the id, tool and parameters of one that asks.

    ``of_open_call``: else the newest equal one that nobody was asked about, for an interrupted one
    stays open; or a pending one.
    """
    equal = of(session).filter(same=call.digest)
    found = equal.filter(tool_call_id=call.id).first() if call.id else None
    if found is None and of_open_call:
        found = (
            equal.filter(decision=None).last()
            or equal.filter(decision=ToolCall.Decision.PENDING).first()
        )
    return found


def begin(box: Outbox, session: Session, call: Call) -> str | None:
    """Record a call that asks nobody; return its id, None if it is open already."""
    values = {
        "session": session.pk,
        "id": call.id,
        "other_id": str(uuid.uuid4()),
        "tool": name_of(call),
        "same": call.digest,
        "risk_level": call.risk_level,
        "now": box.moment,
    }
    box.cursor.execute(_BEGIN, values)
    row = box.cursor.fetchone()
    return str(row[0]) if row else None


def end(box: Outbox, session: Session, call: Call) -> Ended | None:
    """End the open call that ran; return it, None if there is none."""
    values = {"session": session.pk, "id": call.id, "same": call.digest, "now": box.moment}
    box.cursor.execute(_END, values)
    row = box.cursor.fetchone()
    return Ended(*row) if row else None
