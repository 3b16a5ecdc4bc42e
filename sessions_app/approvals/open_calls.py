"""Match what an agent says of a call to the open call that it means (D37).

``begin``, ``end`` and ``end_unasked`` are one statement each, for nine of ten events are about
calls without an approval.
"""
# ruff: noqa: S608 - only our own names are put into statements

import uuid
from typing import NamedTuple

from django.db.models import QuerySet

from bridge_project.kernel.text import printable
from sessions_app.approvals.tool_call import ID_MAX_CHARS, Call
from sessions_app.log.outbox import Outbox
from sessions_app.models import Session, ToolCall

UUID_CHARS = 36
_MADE = "~"  # with which the ids begin of calls that their agent gave none
_CALL = ToolCall._meta.db_table
# No two calls share an id: one whose id the session has had gets another, which begins with it. An
# agent that asks about a call before it says that it begins has no id for it yet.
_BEGIN = f"""
    INSERT INTO "{_CALL}" (
        session_id, tool_call_id, tool, agent_id, agent_type, same, risk_level, created_at,
        forwarded, description, params, source, decided_by, reason, frame, hook, outcome
    )
    SELECT
        %(session)s,
        CASE
            WHEN EXISTS (
                SELECT 1 FROM "{_CALL}" WHERE session_id = %(session)s AND tool_call_id = %(id)s
            ) THEN %(other_id)s
            ELSE COALESCE(%(id)s, %(other_id)s)
        END,
        %(tool)s, %(agent_id)s, %(agent_type)s, %(same)s, %(risk_level)s, %(now)s,
        FALSE, '', '', '', '', '', '', '', ''
    WHERE NOT EXISTS (
        SELECT 1 FROM "{_CALL}"
        WHERE session_id = %(session)s AND finished_at IS NULL
            AND same = %(same)s AND (
                tool_call_id = %(id)s
                OR (
                    COALESCE(%(id)s, '') <> '' AND decision <> 'rejected'
                    AND substr(tool_call_id, 1, 1) = '{_MADE}'
                )
            )
    )
    RETURNING tool_call_id
"""
_OF_THAT_ID = """
    (tool_call_id = %(id)s OR substr(tool_call_id, 1, %(length)s) = %(begins)s)
"""
# The open call that ran: one that the agent began under that id, the equal one first, for a hook
# may have changed its parameters (D65); else, where no call of the session had that id, the equal
# one that waits, else the oldest equal one. When an agent uses one id for two calls, the one that
# ran must not approve the other. A call that was refused at the machine does not run.
_END = f"""
    UPDATE "{_CALL}" SET finished_at = %(now)s
    WHERE id = COALESCE(
        (
            SELECT id FROM "{_CALL}"
            WHERE session_id = %(session)s AND finished_at IS NULL AND {_OF_THAT_ID}
            ORDER BY CASE WHEN same = %(same)s THEN 0 ELSE 1 END, id
            LIMIT 1
        ),
        (
            SELECT id FROM "{_CALL}"
            WHERE session_id = %(session)s AND finished_at IS NULL AND same = %(same)s
                AND (decision IS NULL OR decision <> 'rejected' OR decided_by <> 'agent')
                AND NOT EXISTS (
                    SELECT 1 FROM "{_CALL}"
                    WHERE session_id = %(session)s AND tool_call_id = %(id)s
                )
            ORDER BY CASE WHEN decision = 'pending' THEN 0 ELSE 1 END, id
            LIMIT 1
        )
    )
    RETURNING id, tool_call_id, decision, same <> %(same)s
"""


_END_UNASKED = f"""
    UPDATE "{_CALL}" SET finished_at = %(now)s
    WHERE session_id = %(session)s AND finished_at IS NULL AND decision IS NULL
    RETURNING tool_call_id
"""
_END_UNASKED_OF = _END_UNASKED.replace("RETURNING", "AND agent_id = %(agent_id)s RETURNING")


class Ended(NamedTuple):
    """Hold the key of a call that has ended, and what was decided about it.

    ``changed``: it ran with other parameters than those that were reported.
    """

    key: int
    tool_call_id: str
    decision: str | None
    changed: bool


def of(session: Session) -> QuerySet[ToolCall]:
    """Return a session's open calls, oldest first."""
    return ToolCall.objects.filter(session=session, finished_at=None).order_by("pk")


def name_of(call: Call) -> str:
    """Return the name of a call's tool as it is stored."""
    return printable(call.tool)[:128] or "unknown"


def asked_about(session: Session, call: Call, *, of_open_call: bool) -> ToolCall | None:
    """Return the open call with the id, tool and parameters of one that asks.

    ``of_open_call``: else the newest equal one that nobody was asked about, for an interrupted one
    stays open; or a pending one for which no hook waits, for each hook has its own (D66); or the
    oldest of that agent and tool that nobody was asked about, whose parameters a hook has changed
    (D65).
    """
    equal = of(session).filter(same=call.digest)
    found = equal.filter(tool_call_id=call.id).first() if call.id else None
    if found is None and of_open_call:
        found = (
            equal.filter(decision=None).last()
            or equal.filter(decision=ToolCall.Decision.PENDING, hook="").first()
            or of(session).filter(decision=None, tool=name_of(call), agent_id=call.agent.id).first()
        )
    return found


def free_id(session: Session, call: Call) -> str:
    """Return a call's id, or another if the session has had that."""
    taken = call.id and ToolCall.objects.filter(session=session, tool_call_id=call.id).exists()
    return other_id(call) if taken or not call.id else call.id


def other_id(call: Call) -> str:
    """Return an id for a call whose own is taken, or that has none."""
    return f"{_begins(call)}{uuid.uuid4()}"


def has_made_id(record: ToolCall) -> bool:
    """Return whether the agent gave a call no id: its parameters tell which it is."""
    return record.tool_call_id.startswith(_MADE)


def is_changed(record: ToolCall, call: Call) -> bool:
    """Return whether a call asks with other parameters than it was reported with.

    Who gives no ids only words it differently, and says by the first ones how it went.
    """
    return record.same not in ("", call.digest) and not has_made_id(record)


def _begins(call: Call) -> str:
    """Return how the ids begin that other calls of that id were given."""
    return f"{(call.id or '')[: ID_MAX_CHARS - UUID_CHARS - 1]}~"


def end_unasked(box: Outbox, session: Session, agent_id: str | None = None) -> list[str]:
    """End open calls that nobody was asked about, for their turn is over; return ids.

    ``agent_id``: those of that subagent only.
    """
    values = {"session": session.pk, "now": box.moment, "agent_id": agent_id}
    box.cursor.execute(_END_UNASKED if agent_id is None else _END_UNASKED_OF, values)
    return [tool_call_id for (tool_call_id,) in box.cursor.fetchall()]


def open_as(session: Session, call: Call) -> ToolCall | None:
    """Return the record of a call that began before: asked about, or told twice."""
    equal = of(session).filter(same=call.digest)
    made = equal.filter(tool_call_id__startswith=_MADE).exclude(decision=None)
    return equal.filter(tool_call_id=call.id).first() or made.first()


def begin(box: Outbox, session: Session, call: Call) -> str | None:
    """Record a call that asks nobody; return its id, None if it is open already."""
    values = {
        "session": session.pk,
        "id": call.id,
        "other_id": other_id(call),
        "tool": name_of(call),
        "agent_id": call.agent.id,
        "agent_type": call.agent.type,
        "same": call.digest,
        "risk_level": call.risk_level,
        "now": box.moment,
    }
    box.cursor.execute(_BEGIN, values)
    row = box.cursor.fetchone()
    return str(row[0]) if row else None


def end(box: Outbox, session: Session, call: Call) -> Ended | None:
    """End the open call that ran; return it, None if there is none."""
    begins = _begins(call) if call.id else ""
    values = {
        "session": session.pk,
        "id": call.id,
        "begins": begins,
        "length": len(begins) or 1,  # then no id begins with an empty text
        "same": call.digest,
        "now": box.moment,
    }
    box.cursor.execute(_END, values)
    row = box.cursor.fetchone()
    return Ended(*row) if row else None
