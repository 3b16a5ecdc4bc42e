"""The SQL of the hot path, written out: what the ORM would compile anew for each event costs more
than the database does.

Portable between SQLite and PostgreSQL. Every function takes the cursor of an outbox; what it reads
and writes are the models' own columns.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.db.models import Model

from sessions_app.models import Connection, Feed, Join, LogHead, LogRow, Process, Session

_HEAD, _FEED, _ROW, _SESSION = (model._meta.db_table for model in (LogHead, Feed, LogRow, Session))
_JOIN, _CONNECTION, _PROCESS = (model._meta.db_table for model in (Join, Connection, Process))

# In the order of the model's fields, as from_db wants them.
_SESSION_READ = (
    "id",
    "session_id",
    "kind",
    "feed_id",
    "agent_type",
    "title",
    "titled",
    "working_directory",
    "status",
    "closed_at",
    "hook_count",
    "recent_events",
    "pending_approvals",
)
_FEED_READ = ("id", "kind", "last_seq", "rows", "bytes")
ROW_WRITTEN = (
    "seq",
    "feed_id",
    "type",
    "message_id",
    "frame",
    "size",
    "created_at",
)
_SESSION_WRITTEN = (
    "agent_type",
    "title",
    "titled",
    "working_directory",
    "status",
    "closed_at",
    "last_activity_at",
    "hook_count",
    "recent_events",
    "pending_approvals",
)


def _marks(count: int) -> str:
    return ",".join(["%s"] * count)


def insert_into(model: type[Model], columns: Sequence[str]) -> str:
    """The statement for ``write``: one row of ``columns``."""
    return f'INSERT INTO "{model._meta.db_table}" ({",".join(columns)}) VALUES ({_marks(len(columns))})'  # noqa: S608 - our own names


_READ_SESSIONS = (
    f"SELECT {','.join(f's.{c}' for c in _SESSION_READ)},{','.join(f'f.{c}' for c in _FEED_READ)} "  # noqa: S608
    f'FROM "{_SESSION}" s JOIN "{_FEED}" f ON f.id = s.feed_id WHERE s.session_id IN ('
)
_COUNT_JOINS = (
    f'SELECT j.session_id, COUNT(*) FROM "{_JOIN}" j JOIN "{_CONNECTION}" c ON c.id = j.connection_id '  # noqa: S608
    f'JOIN "{_PROCESS}" p ON p.id = c.process_id WHERE NOT c.replaced AND p.lease_until > %s AND j.session_id IN ('
)
# leases go by the database's clock: see presence
_COUNT_JOINS_SHARED = _COUNT_JOINS.replace("%s", "STATEMENT_TIMESTAMP()")
_WRITE_ROWS = insert_into(LogRow, ROW_WRITTEN)
_WRITE_FEED = f'UPDATE "{_FEED}" SET last_seq = %s, rows = %s, bytes = %s WHERE id = %s'  # noqa: S608
_READ_HEAD = f'SELECT seq, bytes FROM "{_HEAD}" WHERE id = 1'  # noqa: S608
_LOCK_HEAD = f"{_READ_HEAD} FOR UPDATE"
_WRITE_HEAD = f'UPDATE "{_HEAD}" SET seq = %s, bytes = %s WHERE id = 1'  # noqa: S608
_OLDEST = f'SELECT seq, feed_id, size FROM "{_ROW}" ORDER BY seq LIMIT %s'  # noqa: S608
_OLDEST_OF_FEED = _OLDEST.replace("ORDER BY", "WHERE feed_id = %s ORDER BY")
_DELETE_ROW = f'DELETE FROM "{_ROW}" WHERE seq = %s'  # noqa: S608
_SHRINK_FEED = (
    f'UPDATE "{_FEED}" SET rows = rows - %s, bytes = bytes - %s, dropped_seq = %s WHERE id = %s'  # noqa: S608
)
_SHRINK_HEAD = f'UPDATE "{_HEAD}" SET bytes = bytes - %s WHERE id = 1'  # noqa: S608
_WRITE_SESSION = (
    f'UPDATE "{_SESSION}" SET {", ".join(f"{c} = %s" for c in _SESSION_WRITTEN)} WHERE id = %s'  # noqa: S608
)


def read_head(cursor: Any) -> tuple[int, int]:
    """The newest row and the bytes of the log."""
    cursor.execute(_READ_HEAD)
    return cursor.fetchone() or (0, 0)


def lock_head(cursor: Any) -> tuple[int, int]:
    """The newest row and the bytes of the log, held until the transaction ends; made if this is the
    first row ever.
    """
    # SQLite: BEGIN IMMEDIATE has locked everything
    cursor.execute(_LOCK_HEAD if cursor.db.features.has_select_for_update else _READ_HEAD)
    found: tuple[int, int] | None = cursor.fetchone()
    if found is None:
        head = LogHead.objects.select_for_update().get_or_create(pk=1)[0]
        return head.seq, head.bytes
    return found


def read_sessions(cursor: Any, session_ids: Collection[str]) -> dict[str, Session]:
    """Session id → session with its feed; fields that storing an event does not need are
    deferred.
    """
    if not session_ids:
        return {}
    found = {}
    cursor.execute(f"{_READ_SESSIONS}{_marks(len(session_ids))})", list(session_ids))
    for values in cursor.fetchall():
        own, feed = list(values[: len(_SESSION_READ)]), values[len(_SESSION_READ) :]
        own[-2] = json.loads(own[-2]) if isinstance(own[-2], str) else own[-2]
        own[-4] = own[-4].replace(tzinfo=UTC) if own[-4] is not None else None
        session = Session.from_db(cursor.db.alias, _SESSION_READ, own)
        session.feed = Feed.from_db(cursor.db.alias, _FEED_READ, feed)
        found[session.session_id] = session
    return found


def count_joins(cursor: Any, session_keys: Collection[int], now: datetime) -> dict[int, int]:
    """Session key → live connections, on all processes, that have joined it (D33)."""
    if not session_keys:
        return {}
    counting, clock = (
        (_COUNT_JOINS_SHARED, [])
        if cursor.db.vendor == "postgresql"
        else (_COUNT_JOINS, [moment(now)])
    )
    cursor.execute(
        f"{counting}{_marks(len(session_keys))}) GROUP BY j.session_id", [*clock, *session_keys]
    )
    return dict(cursor.fetchall())


def write_sessions(cursor: Any, sessions: Iterable[Session]) -> None:
    values = []
    for s in sessions:
        closed, recent = moment(s.closed_at), cursor.db.ops.adapt_json_value(s.recent_events, None)
        active = moment(s.last_activity_at)
        values.append(
            (
                s.agent_type,
                s.title,
                s.titled,
                s.working_directory,
                s.status,
                closed,
                active,
                s.hook_count,
                recent,
                s.pending_approvals,
                s.pk,
            )
        )
    write(cursor, _WRITE_SESSION, values)


def write_log(
    cursor: Any, rows: Sequence[Sequence[Any]], feeds: Iterable[Feed], seq: int, bytes: int
) -> None:
    """Append rows, each with the values of ROW_WRITTEN, and bring the counters of their feeds and
    of the head up to them.
    """
    write(cursor, _WRITE_ROWS, rows)
    write(cursor, _WRITE_FEED, [(feed.last_seq, feed.rows, feed.bytes, feed.pk) for feed in feeds])
    write(cursor, _WRITE_HEAD, [(seq, bytes)])


def oldest(cursor: Any, count: int, feed_id: int | None = None) -> list[tuple[int, int, int]]:
    """(seq, feed, size) of the oldest rows of a feed, or of the whole log."""
    if feed_id is None:
        cursor.execute(_OLDEST, [count])
    else:
        cursor.execute(_OLDEST_OF_FEED, [feed_id, count])
    return list(cursor.fetchall())


def discard(cursor: Any, rows: Sequence[tuple[int, int, int]]) -> None:
    """Delete (seq, feed, size) rows, each the oldest of its feed, which remembers how far (D29)."""
    gone: dict[int, tuple[int, int, int]] = {}
    for seq, feed_id, size in rows:
        count, total, _ = gone.get(feed_id, (0, 0, 0))
        gone[feed_id] = (count + 1, total + size, seq)
    write(cursor, _SHRINK_FEED, [(*sums, feed_id) for feed_id, sums in gone.items()])
    write(cursor, _SHRINK_HEAD, [(sum(size for _, _, size in rows),)])
    write(cursor, _DELETE_ROW, [(seq,) for seq, _, _ in rows])


def write(cursor: Any, statement: str, values: Sequence[Sequence[Any]]) -> None:
    """Run a statement once for each row of values."""
    if len(values) == 1:
        cursor.execute(statement, values[0])
    elif values:
        cursor.executemany(statement, values)


def moment(value: datetime | None) -> Any:
    """A moment as the database takes it."""
    return connection.ops.adapt_datetimefield_value(value)
