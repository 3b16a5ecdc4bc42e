"""Storing hook events: one transaction for an event or a whole batch, and everything that follows from it (D26, D31, D32, D34)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from bridge_project import limits
from bridge_project.protocol.hooks import HookEvent
from hooks_app import projection
from hooks_app.models import HookEvent as StoredEvent
from sessions_app import lifecycle, presence
from sessions_app.models import Session
from sessions_app.outbox import Outbox, outbox

TOOL_CHARS = 128


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the sender is told: the event's id, the first one where it was sent before (D31), and who was listening (D33)."""

    event_id: str
    broadcast_count: int


def store(events: Sequence[HookEvent], source: str = "") -> list[Receipt]:
    """Store events in order and project them to messages, all in one transaction; a receipt for each.

    ``source`` (X-Hook-Source) becomes the agent type of sessions that are new (D6). When this returns, the events are in the
    database; when it raises, none is.
    """
    with outbox() as box:
        known = _known([event.event_id for event in events if event.event_id])
        sessions = lifecycle.find_all({event.session_id for event in events})
        listening = presence.joined_counts(session.pk for session in sessions.values())
        receipts, records, touched = [], [], {}
        for event in events:
            if event.event_id and event.event_id in known:
                receipts.append(known[event.event_id])
                continue
            session = sessions.get(event.session_id)
            if new := session is None:
                session = sessions[event.session_id] = lifecycle.create_observed(event.session_id, _agent_type(source), box.now)
            assert session is not None
            record = _store_one(box, session, event, new=new, listening=listening.get(session.pk, 0))
            receipt = known[record.event_id] = Receipt(record.event_id, record.broadcast_count)
            receipts.append(receipt)
            records.append(record)
            touched[session.pk] = session
        StoredEvent.objects.bulk_create(records)
        for session in touched.values():
            session.save()
    return receipts


def _known(event_ids: list[str]) -> dict[str, Receipt]:
    """Events that were accepted within the memory of D31. The head of the log is held, so none can slip in between."""
    if not event_ids:
        return {}
    since = timezone.now() - timedelta(seconds=limits.EVENT_ID_MEMORY_SECONDS)
    sent_before = StoredEvent.objects.filter(event_id__in=event_ids)
    sent_before.filter(received_at__lte=since).delete()
    return {event_id: Receipt(event_id, count) for event_id, count in sent_before.values_list("event_id", "broadcast_count")}


def _store_one(box: Outbox, session: Session, event: HookEvent, *, new: bool, listening: int) -> StoredEvent:
    event_id = event.event_id or str(uuid.uuid4())
    if session.kind == Session.Kind.OBSERVED:
        _begin(box, session, event, new=new)
    row = box.append(session.feed, projection.agent_event(event, event_id))
    _remember(box, session, event)
    if session.kind == Session.Kind.OBSERVED and event.event == "SessionEnd" and session.status != Session.Status.CLOSED:
        lifecycle.close(box, session, projection.end_reason(event))
    tool = lifecycle.printable(projection.tool_of(event))[:TOOL_CHARS]
    return StoredEvent(
        event_id=event_id, event=event.event, session_id=event.session_id, tool=tool, seq=row.seq, broadcast_count=listening, received_at=box.now
    )


def _begin(box: Outbox, session: Session, event: HookEvent, *, new: bool) -> None:
    """What comes before the event itself: a session that starts, or starts again, is announced."""
    if event.event == "SessionStart" or not session.working_directory:
        session.working_directory = projection.directory_of(event) or session.working_directory
    lifecycle.entitle(session, projection.prompt_of(event))
    if event.event == "SessionStart":
        lifecycle.reopen(session)
    if new or event.event == "SessionStart":
        lifecycle.announce_start(box, session)


def _remember(box: Outbox, session: Session, event: HookEvent) -> None:
    session.hook_count += 1
    session.last_activity_at = box.now
    recent = {"type": event.event, "timestamp": event.timestamp}
    if tool := projection.tool_of(event):
        recent["tool"] = tool.replace("\x00", "")[:TOOL_CHARS]
    session.recent_events = [recent, *session.recent_events][: limits.RECENT_EVENTS]


def _agent_type(source: str) -> str:
    return lifecycle.printable(source)[:TOOL_CHARS] or lifecycle.DEFAULT_AGENT


def forget_old() -> int:
    """Drop the memory of events older than D31 asks for; returns how many."""
    since = timezone.now() - timedelta(seconds=limits.EVENT_ID_MEMORY_SECONDS)
    return StoredEvent.objects.filter(received_at__lt=since).delete()[0]
