"""Fills a stopped bridge's log on SQLite, as if its sessions had posted for half a day: `python -m
tests.performance.fill SESSIONS ROWS`, with the bridge's settings in its environment.

What it writes is what as many posts would have left: rows, the counters of their feeds, the events'
records, and each session's own figures.
"""

import json
import os
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bridge_project.settings")
    django.setup()

from django.db import connection, transaction

from hooks_app.models import HookEvent
from sessions_app.log.ingest_sql import insert_into, moment
from sessions_app.models import Feed, LogHead, LogRow, Session

HOURS = timedelta(hours=12)  # within what the log keeps (D30)
CHUNK = 10_000
TEXT = "lorem ipsum dolor sit amet " * 18
ROW = ("seq", "feed_id", "type", "message_id", "frame", "size", "created_at")
RECORD = ("event_id", "event", "session_id", "tool", "seq", "broadcast_count", "received_at")
# for this connection only
LOAD_FAST = "PRAGMA synchronous=OFF; PRAGMA cache_size=-400000; PRAGMA temp_store=MEMORY;"


def frame(message_id: str, event_id: str, session_id: str, at: str, number: int) -> str:
    """An agent_event as the bridge writes it, about 800 bytes."""
    event: dict[str, Any] = {"event": "UserPromptSubmit", "event_type": "UserPromptSubmit"}
    event |= {"event_id": event_id, "session_id": session_id, "timestamp": at}
    event["payload"] = {"prompt": f"filled {number} {TEXT}", "number": number}
    message = {"type": "agent_event", "id": message_id, "timestamp": at, "payload": event}
    return json.dumps(message, separators=(",", ":"))


def fill(sessions: int, rows: int) -> None:
    """Append ``rows`` events, turn by turn to ``sessions`` sessions named `filled-0`, `filled-1`,
    …, which are made if they are not there.
    """
    now = datetime.now(UTC)
    with transaction.atomic(), connection.cursor() as cursor:
        head = LogHead.objects.get_or_create(pk=1)[0]
        feeds = _feeds(sessions, now)
        made = _rows(feeds, head, rows, now)
        while chunk := list(islice(made, CHUNK)):
            cursor.executemany(insert_into(LogRow, ROW), [row for row, _ in chunk])
            cursor.executemany(insert_into(HookEvent, RECORD), [record for _, record in chunk])
        head.save()
        Feed.objects.bulk_update(feeds, ["last_seq", "rows", "bytes"], batch_size=100)


def _feeds(sessions: int, now: datetime) -> list[Any]:
    names = [f"filled-{number}" for number in range(sessions)]
    known = Session.objects.filter(session_id__startswith="filled-").select_related("feed")
    feeds = {session.session_id: session.feed for session in known}
    new = [name for name in names if name not in feeds]
    made = Feed.objects.bulk_create(Feed(kind=Feed.Kind.OBSERVED) for _ in new)
    feeds |= zip(new, made, strict=True)
    about: dict[str, Any] = {"kind": Session.Kind.OBSERVED, "agent_type": "filled"}
    about |= {"title": "Filled", "working_directory": "/"}
    about["recent_events"] = [{"type": "UserPromptSubmit", "timestamp": now.isoformat()}] * 20
    Session.objects.bulk_create(Session(session_id=name, feed=feeds[name], **about) for name in new)
    return [feeds[name] for name in names]


def _rows(
    feeds: list[Any], head: Any, rows: int, now: datetime
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """The values of each log row and of its event's record, bringing the counters along."""
    start, step = now - HOURS, HOURS / max(rows, 1)
    for number in range(rows):
        feed, at = feeds[number % len(feeds)], start + step * number
        head.seq, feed.rows = head.seq + 1, feed.rows + 1
        feed.last_seq = head.seq
        message_id, event_id = str(uuid.uuid4()), str(uuid.uuid4())
        session_id = f"filled-{number % len(feeds)}"
        text = frame(message_id, event_id, session_id, at.isoformat(), number)
        row = (head.seq, feed.pk, "agent_event", message_id, text, len(text), moment(at))
        yield row, (event_id, "UserPromptSubmit", session_id, "", head.seq, 0, moment(at))
        feed.bytes, head.bytes = feed.bytes + len(text), head.bytes + len(text)


if __name__ == "__main__":
    connection.ensure_connection()
    connection.connection.executescript(LOAD_FAST)
    fill(int(sys.argv[1]), int(sys.argv[2]))
