"""Store hook events with their messages and effects (D26, D31 to D37)."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import connection

from bridge_project.kernel import limits, metrics
from bridge_project.kernel.ages import ages
from bridge_project.kernel.database import delete_in_steps
from bridge_project.kernel.text import printable
from bridge_project.protocol.catalogue import encode, encode_raw
from bridge_project.protocol.hooks import HookEvent
from bridge_project.protocol.types import now_text, parse_timestamp
from hooks_app.intake import projection
from hooks_app.models import HookEvent as StoredEvent
from sessions_app.approvals import service as approvals
from sessions_app.log import ingest_sql
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import LogRow, Session, ToolCall
from sessions_app.observed import sessions as observed_sessions

NAME_CHARS = 128
# notifications that tell the state of the turn
_TURNS = {"permission_prompt": Session.Turn.WAITING, "idle_prompt": Session.Turn.IDLE}
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
    """Hold an event and its X-Hook-Source, which names the session's agent (D6)."""

    event: HookEvent
    source: str = ""


def find_receipts(event_ids: Sequence[str]) -> dict[str, Receipt]:
    """Return by id the receipts of those events that were stored before (D31)."""
    with connection.cursor() as cursor:
        return _receipts(cursor, event_ids)


def _receipts(cursor: Any, event_ids: Sequence[str]) -> dict[str, Receipt]:
    found = ingest_sql.read_where_in(cursor, _READ_RECORDS, event_ids) if event_ids else []
    return {row[0]: Receipt(*row) for row in found}


def store(posted: Sequence[Posted]) -> list[Receipt]:
    """Store events with their messages in one transaction; return receipts."""
    with outbox() as box:
        ids = [event.event_id for event, _ in posted if event.event_id]
        # the head of the log is locked, so nobody else accepts one of these meanwhile
        known = _receipts(box.cursor, ids)
        sessions = ingest_sql.read_sessions(box.cursor, {event.session_id for event, _ in posted})
        keys = [session.pk for session in sessions.values()]
        listening = ingest_sql.count_joins(box.cursor, keys, box.now)
        receipts, touched = [], {}
        records: list[tuple[Any, ...]] = []
        for event, source in posted:
            if event.event_id and event.event_id in known:
                receipts.append(known[event.event_id])
                continue
            new = event.session_id not in sessions
            if new:
                made = observed_sessions.create_observed(event.session_id, box.now)
                sessions[event.session_id] = made
            session = touched[event.session_id] = sessions[event.session_id]
            if source and session.kind == Session.Kind.OBSERVED:
                session.agent_type = printable(source)[:NAME_CHARS] or session.agent_type
            count = listening.get(session.pk, 0)
            receipt = Receipt(event.event_id or str(uuid.uuid4()), count)
            whole = _summarize(box, session, event, records)
            seq = _store_one(box, session, whole, receipt.event_id, new=new)
            known[receipt.event_id] = receipt
            receipts.append(receipt)
            about = (event.event, event.session_id, _tool(event), seq)
            records.append((receipt.event_id, *about, count, box.moment))
        ingest_sql.write(box.cursor, _WRITE_RECORD, records)
        ingest_sql.write_sessions(box.cursor, touched.values())
    for record in records:
        metrics.events.labels(record[1]).inc()
    return receipts


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


def _store_one(box: Outbox, session: Session, event: HookEvent, event_id: str, *, new: bool) -> int:
    """Append an event's messages in order; return its ``agent_event``'s number."""
    observed = session.kind == Session.Kind.OBSERVED
    session.last_activity_at = box.now
    if observed:
        _begin(box, session, event, new=new)
    row = box.append(session.feed, encode_raw("agent_event", event.outbound(event_id)))
    session.hook_count += 1
    recent = {"type": event.event, "timestamp": event.timestamp}
    if tool := _tool(event):
        recent["tool"] = tool
    session.recent_events = [recent, *session.recent_events][: limits.RECENT_EVENTS]
    if observed:
        _apply(box, session, event)
    return row.seq


def _begin(box: Outbox, session: Session, event: HookEvent, *, new: bool) -> None:
    """Announce a session that starts, or starts again, before the event (D34)."""
    starts = event.event == "SessionStart"
    quiet = session.status == Session.Status.CLOSED and session.closed_at is None
    again = starts or (quiet and event.event != "SessionEnd")
    if starts or not session.working_directory:
        session.working_directory = projection.directory_of(event) or session.working_directory
    observed_sessions.set_title(session, projection.prompt_of(event))
    if projection.starts_program(event):
        approvals.reject_passed_over(box, session)
    if again:
        observed_sessions.reopen(session)
    if new or again:
        observed_sessions.announce_start(box, session)


def _apply(box: Outbox, session: Session, event: HookEvent) -> None:
    """Apply an event to its session: turn, calls, notifications (D13, D37)."""
    match event.event:
        case "PreToolUse":
            call = projection.call_of(event)
            of_open_call = event.payload.get("permission_request") is True
            if event.payload["requires_approval"] or of_open_call:
                approvals.ask(box, session, call, of_open_call=of_open_call)
            else:
                approvals.report(box, session, call)
        case "PostToolUse":
            call, outcome = projection.call_of(event), projection.outcome_of(event)
            approvals.record_hook_outcome(box, session, call, outcome, projection.failure_of(event))
        case "UserPromptSubmit" | "Stop":
            if not projection.leaves_subagents(event):
                approvals.reject_passed_over(box, session)
                stops = event.event == "Stop"
                session.set_turn(Session.Turn.IDLE if stops else Session.Turn.WORKING)
            elif not session.waits:
                session.set_turn(Session.Turn.WORKING)
        case "SessionEnd" if session.status == Session.Status.CLOSED:
            session.closed_at = session.closed_at or box.now  # it may have been quiet only
            return  # it was said then
        case "SessionEnd":
            reason = projection.end_reason(event)
            observed_sessions.close(box, session, reason, by=ToolCall.DecidedBy.AGENT)
        case "Notification":
            kind = str(event.payload.get("notification_type"))
            session.turn = _TURNS.get(kind, session.turn)
    if notification := projection.notification_of(event, session):
        box.append_to_all(encode(notification))


def _tool(event: HookEvent) -> str:
    return printable(projection.tool_of(event))[:NAME_CHARS]


def forget_old() -> int:
    """Delete hook event records past EVENT_ID_MEMORY_SECONDS (D31); return how many."""
    memory = timedelta(seconds=limits.EVENT_ID_MEMORY_SECONDS)
    return delete_in_steps(StoredEvent.objects.filter(received_at__lte=ages.now() - memory))
