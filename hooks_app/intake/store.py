"""Store hook events with their messages and effects (D26, D31 to D37).

``store`` is an event's one way into the log, and has three callers: the fast path, for a Django
request costs more than storing; the view, for all that is not ordinary, and batches; the forwarder
of this machine's spool, which needs no request. The first and the last call it by group_commit.py.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Q

from bridge_project.kernel import limits, metrics
from bridge_project.kernel.ages import ages
from bridge_project.kernel.database import delete_in_steps
from bridge_project.kernel.process_note import ProcessNote
from bridge_project.kernel.text import printable
from bridge_project.protocol.hooks import HookEvent
from bridge_project.protocol.types import now_text, parse_timestamp
from hooks_app.intake import observed, projection
from hooks_app.models import HookEvent as StoredEvent
from sessions_app import attachments
from sessions_app.agents import giving_way
from sessions_app.log import ingest_sql
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import LogRow, Session
from sessions_app.observed import desk
from sessions_app.observed import sessions as observed_sessions

_WRITE_RECORD = ingest_sql.insert_into(
    StoredEvent,
    ("event_id", "event", "session_id", "tool", "seq", "broadcast_count", "received_at"),
)
_READ_RECORDS = (
    f'SELECT event_id, broadcast_count FROM "{StoredEvent._meta.db_table}" WHERE event_id'  # noqa: S608
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Hold the answer to an event's sender.

    ``event_id``: its first id if the event was sent before (D31); ``broadcast_count``: how many
    connections had joined the session (D33).
    """

    event_id: str
    broadcast_count: int

    def body(self) -> dict[str, Any]:
        """Return the body of the 200."""
        return {
            "received": True,
            "event_id": self.event_id,
            "broadcast_count": self.broadcast_count,
            "timestamp": now_text(),
        }


class Posted(NamedTuple):
    """Hold an event and its X-Hook-Source, which names the session's agent (D6).

    ``process``: the agent's, of an event of this machine's spool (D65).
    """

    event: HookEvent
    source: str = ""
    process: ProcessNote | None = None


def find_receipts(event_ids: Sequence[str]) -> dict[str, Receipt]:
    """Return by id the receipts of those events that were stored before (D31)."""
    with connection.cursor() as cursor:
        return _receipts(cursor, event_ids)


def _receipts(cursor: Any, event_ids: Sequence[str]) -> dict[str, Receipt]:
    found = ingest_sql.read_where_in(cursor, _READ_RECORDS, event_ids) if event_ids else []
    return {row[0]: Receipt(*row) for row in found}


def store(posted: Sequence[Posted]) -> list[Receipt]:
    """Store events with their messages in one transaction; return receipts.

    Files of pictures are written first: nobody waits for the disk. 1. Lock the head of the log.
    2. Read what is known: events that were stored before, sessions, who has joined them. 3. Accept
    each event in order (see ``_Group.accept``). 4. Write the records of the events and their
    sessions; the outbox writes the rows. 5. After the commit: count.
    """
    _write_pictures([event for event, *_ in posted if event.pictures])
    # From here to the commit nobody else holds the head. Of two requests with one event, the second
    # reads what the first has stored, and of two first events of a session only one makes it.
    with outbox() as box:
        group = _Group(box, posted)
        receipts = [group.accept(*one) for one in posted]
        group.write()
    group.count()
    return receipts


def _write_pictures(events: Sequence[HookEvent]) -> None:
    """Write the files of known sessions' pictures; ``accept`` writes those of others.

    A file whose event is not stored has no row, and is removed as a leftover.
    """
    for event in events:
        ours = Q(session_id=event.session_id) | Q(resume_id=event.session_id)
        for session_pk in Session.objects.filter(ours).values_list("pk", flat=True):
            attachments.write_pictures(session_pk, event.pictures)


class _Group:
    """Hold what one transaction reads, changes and writes for its events."""

    def __init__(self, box: Outbox, posted: Sequence[Posted]) -> None:
        self._box = box
        self._receipts = _receipts(
            box.cursor, [one.event.event_id for one in posted if one.event.event_id]
        )
        self._sessions = ingest_sql.read_sessions(
            box.cursor, {one.event.session_id for one in posted}
        )
        # the agent's own id of a session that the bridge runs, or has run (D67)
        unknown = {one.event.session_id for one in posted} - self._sessions.keys()
        by_own_id = ingest_sql.read_sessions(box.cursor, unknown, by="resume_id")
        self._run_by_bridge = {
            one.resume_id: self._sessions.setdefault(one.session_id, one)
            for one in by_own_id.values()
        }
        keys = [session.pk for session in self._sessions.values()]
        self._joined = ingest_sql.count_joins(box.cursor, keys, box.now)
        self._touched: dict[str, Session] = {}
        self._records: list[tuple[Any, ...]] = []

    def accept(self, event: HookEvent, source: str, process: ProcessNote | None) -> Receipt:
        """Append an event's messages and apply it to its session, once.

        1. One that was stored before, here or earlier, has its first receipt (D31). 2. Find its
        session, or make it; pass over an event of one that is joined; one that the bridge runs is
        left to a program at the desk. 3. Complete a SessionEnd. 4. Append what it says. 5. Record
        it.
        """
        if event.event_id and event.event_id in self._receipts:
            return self._receipts[event.event_id]
        session, new = self._session_of(event, source)
        if session.shared and session.owner:  # the bridge hears from its agent itself (D80)
            receipt = Receipt(event.event_id or str(uuid.uuid4()), self._joined.get(session.pk, 0))
            self._receipts[receipt.event_id] = receipt
            return receipt
        if event.session_id != session.session_id:
            event = replace(event, session_id=session.session_id)
        ours = session.kind == Session.Kind.BRIDGE and event.event != "SessionEnd"
        if ours and desk.writes(process):
            giving_way.to_the_desk(self._box, session)
        attachments.keep(session, event.pictures)
        joined = self._joined.get(session.pk, 0)
        receipt = Receipt(event.event_id or str(uuid.uuid4()), joined)
        whole = _summarize(self._box, session, event, self._records)
        row = observed.append(self._box, session, whole, receipt.event_id, new=new, process=process)
        self._receipts[receipt.event_id] = receipt
        about = (event.event, event.session_id, projection.tool_of(event), row.seq)
        self._records.append((receipt.event_id, *about, joined, self._box.moment))
        return receipt

    def _session_of(self, event: HookEvent, source: str) -> tuple[Session, bool]:
        """Return an event's session, and whether this event has made it."""
        session = self._sessions.get(event.session_id)
        session = session or self._run_by_bridge.get(event.session_id)
        if new := session is None:
            session = observed_sessions.create_observed(event.session_id, self._box.now)
        named = source not in ("", observed_sessions.DEFAULT_AGENT)
        if named and session.kind == Session.Kind.OBSERVED:
            session.agent_type = printable(source)[: projection.NAME_CHARS] or session.agent_type
        self._sessions[session.session_id] = self._touched[session.session_id] = session
        return session, new

    def write(self) -> None:
        """Write the records of the events, and the sessions that they changed."""
        ingest_sql.write(self._box.cursor, _WRITE_RECORD, self._records)
        ingest_sql.write_sessions(self._box.cursor, self._touched.values())

    def count(self) -> None:
        """Count the events that were stored, for GET /metrics."""
        for record in self._records:
            metrics.events.labels(record[1]).inc()


def _summarize(
    box: Outbox, session: Session, event: HookEvent, unwritten: Sequence[Sequence[Any]]
) -> HookEvent:
    """Add what an agent's own SessionEnd lacks: duration, messages and tools (D47).

    They are counted from the session's last SessionStart; nothing is added when the bridge no
    longer remembers that one (D31). ``unwritten``: the records of this transaction.
    """
    if event.event != "SessionEnd" or "reason" not in event.payload:
        return event
    # received_at has an index, the session's id has none
    stored = StoredEvent.objects.filter(
        received_at__gte=session.created_at, session_id=event.session_id
    ).order_by("seq")
    known = list(stored.values_list("event", "tool", "seq"))
    known += [(r[1], r[3], r[4]) for r in unwritten if r[2] == event.session_id]
    starts = [index for index, (name, _, _) in enumerate(known) if name == "SessionStart"]
    if not starts:
        return event
    known = known[starts[-1] :]
    summary: dict[str, Any] = {
        "message_count": sum(name in ("UserPromptSubmit", "Stop") for name, _, _ in known),
        "tools_used": list(dict.fromkeys(tool for _, tool, _ in known if tool)),
    }
    if (duration := _duration(box, known[0][2], event)) is not None:
        summary["duration_seconds"] = duration
    return replace(event, payload=summary | event.payload)


def _duration(box: Outbox, start_seq: int, end: HookEvent) -> float | None:
    """Return the seconds from a SessionStart's row to an end, by the agent's clock.

    None when the row is not kept any more, or the times make no sense.
    """
    frame = next((row.frame for row in box.rows if row.seq == start_seq), None) or (
        LogRow.objects.filter(seq=start_seq).values_list("frame", flat=True).first()
    )
    if frame is None:
        return None
    began = json.loads(frame)["payload"]
    times = [
        fields.get("occurred_at") or fields["timestamp"]
        for fields in (began, {"timestamp": end.timestamp, **end.extra})
    ]
    try:
        start, stop = map(parse_timestamp, times)
    except (TypeError, ValueError):  # a producer's own "occurred_at"
        return None
    seconds = (stop - start).total_seconds()
    return round(seconds, 3) if seconds >= 0 else None


def forget_old() -> int:
    """Delete hook event records past EVENT_ID_MEMORY_SECONDS (D31); return how many."""
    memory = timedelta(seconds=limits.EVENT_ID_MEMORY_SECONDS)
    return delete_in_steps(StoredEvent.objects.filter(received_at__lte=ages.now() - memory))
