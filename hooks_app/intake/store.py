"""Storing hook events: one transaction for an event or a whole batch, and everything that follows
from it (D26, D31, D32, D34).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from django.utils import timezone

from bridge_project.kernel import limits, metrics
from bridge_project.kernel.database import delete_in_steps
from bridge_project.kernel.text import printable
from bridge_project.protocol.hooks import HookEvent
from hooks_app.intake import effects, projection
from hooks_app.models import HookEvent as StoredEvent
from sessions_app.log import ingest_sql
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import Session
from sessions_app.observed import sessions as observed_sessions

TOOL_CHARS = 128
_WRITE_RECORD = ingest_sql.insert_into(
    StoredEvent,
    ("event_id", "event", "session_id", "tool", "seq", "broadcast_count", "received_at"),
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the sender is told: the event's id, the first one where it was sent before (D31), and
    who was listening (D33).
    """

    event_id: str
    broadcast_count: int


class Posted(NamedTuple):
    """An event and what its request said of itself: ``source`` (X-Hook-Source) becomes the agent
    type of a session that is new (D6).
    """

    event: HookEvent
    source: str = ""


def store(posted: Sequence[Posted]) -> list[Receipt]:
    """Store events in order and project them to messages, all in one transaction; a receipt for
    each.

    When this returns, the events are in the database; when it raises, none is.
    """
    with outbox() as box:
        known = _known([event.event_id for event, _ in posted if event.event_id])
        sessions = ingest_sql.read_sessions(box.cursor, {event.session_id for event, _ in posted})
        listening = ingest_sql.count_joins(
            box.cursor, [session.pk for session in sessions.values()], box.now
        )
        receipts, records, touched = [], [], {}
        for event, source in posted:
            if event.event_id and event.event_id in known:
                receipts.append(known[event.event_id])
                continue
            session = sessions.get(event.session_id)
            if new := session is None:
                session = sessions[event.session_id] = observed_sessions.create_observed(
                    event.session_id, _agent_type(source), box.now
                )
            assert session is not None
            receipt = Receipt(event.event_id or str(uuid.uuid4()), listening.get(session.pk, 0))
            seq = _store_one(box, session, event, receipt.event_id, new=new)
            known[receipt.event_id] = receipt
            receipts.append(receipt)
            records.append(
                (
                    receipt.event_id,
                    event.event,
                    event.session_id,
                    _tool(event),
                    seq,
                    receipt.broadcast_count,
                    box.moment,
                )
            )
            touched[session.pk] = session
        ingest_sql.write(box.cursor, _WRITE_RECORD, records)
        ingest_sql.write_sessions(box.cursor, touched.values())
    for record in records:
        metrics.events.labels(record[1]).inc()
    return receipts


def _known(event_ids: list[str]) -> dict[str, Receipt]:
    """Events that were accepted within the memory of D31. The head of the log is held, so none can
    slip in between.
    """
    if not event_ids:
        return {}
    since = timezone.now() - timedelta(seconds=limits.EVENT_ID_MEMORY_SECONDS)
    sent_before = StoredEvent.objects.filter(event_id__in=event_ids)
    sent_before.filter(received_at__lte=since).delete()
    return {
        event_id: Receipt(event_id, count)
        for event_id, count in sent_before.values_list("event_id", "broadcast_count")
    }


def _store_one(box: Outbox, session: Session, event: HookEvent, event_id: str, *, new: bool) -> int:
    """The messages of one event, in order; the number of its ``agent_event``."""
    if session.kind == Session.Kind.OBSERVED:
        _begin(box, session, event, new=new)
    row = box.append(session.feed, projection.agent_event(event, event_id))
    _remember(box, session, event)
    if session.kind == Session.Kind.OBSERVED:
        effects.apply(box, session, event)
    return row.seq


def _tool(event: HookEvent) -> str:
    return printable(projection.tool_of(event))[:TOOL_CHARS]


def _begin(box: Outbox, session: Session, event: HookEvent, *, new: bool) -> None:
    """What comes before the event itself: a session that starts, or starts again, is announced."""
    if event.event == "SessionStart" or not session.working_directory:
        session.working_directory = projection.directory_of(event) or session.working_directory
    observed_sessions.entitle(session, projection.prompt_of(event))
    if event.event == "SessionStart":
        observed_sessions.reopen(session)
    if new or event.event == "SessionStart":
        observed_sessions.announce_start(box, session)


def _remember(box: Outbox, session: Session, event: HookEvent) -> None:
    session.hook_count += 1
    session.last_activity_at = box.now
    recent = {"type": event.event, "timestamp": event.timestamp}
    if tool := _tool(event):
        recent["tool"] = tool
    session.recent_events = [recent, *session.recent_events][: limits.RECENT_EVENTS]


def _agent_type(source: str) -> str:
    return printable(source)[:TOOL_CHARS] or observed_sessions.DEFAULT_AGENT


def forget_old() -> int:
    """Drop the memory of events older than D31 asks for; returns how many."""
    since = timezone.now() - timedelta(seconds=limits.EVENT_ID_MEMORY_SECONDS)
    return delete_in_steps(StoredEvent.objects.filter(received_at__lt=since))
