"""Read and write the log for each event by handwritten SQL.

The ORM compiles a query anew for each event, which costs more than running it. Portable between
SQLite and PostgreSQL. Every function takes a cursor; one that writes takes an outbox's.
"""
# ruff: noqa: S608 - only our own names are put into statements

import json
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, Self

from django.db import connection
from django.db.models import Model

from sessions_app.models import Connection, Feed, Join, LogHead, LogRow, Process, Session

_HEAD, _FEED, _ROW, _SESSION, _JOIN, _CONNECTION, _PROCESS = (
    model._meta.db_table for model in (LogHead, Feed, LogRow, Session, Join, Connection, Process)
)


class _SQLiteCursor(sqlite3.Cursor):
    """Take the statements that PostgreSQL takes."""

    def execute(self, statement: str, values: Any = ()) -> Self:
        return super().execute(_for_sqlite(statement), values)

    def executemany(self, statement: str, values: Any) -> Self:
        return super().executemany(_for_sqlite(statement), values)


@lru_cache
def _for_sqlite(statement: str) -> str:
    return re.sub(r"%\((\w+)\)s", r":\1", statement).replace("%s", "?")


@contextmanager
def open_cursor() -> Iterator[Any]:
    """Open the database cursor of an outbox, inside its transaction.

    On SQLite it is the driver's own: Django's costs a sixth of the time of storing one event.
    """
    if connection.vendor != "sqlite" or connection.execute_wrappers:
        with connection.cursor() as cursor:
            yield cursor
    else:
        with connection.wrap_database_errors:
            yield connection.connection.cursor(_SQLiteCursor)


def insert_into(model: type[Model], columns: Sequence[str]) -> str:
    """Return the statement for ``write``: one row of ``columns``."""
    return f'INSERT INTO "{model._meta.db_table}" ({",".join(columns)}) VALUES ({_marks(columns)})'


def _marks(values: Collection[Any]) -> str:
    return ",".join(["%s"] * len(values))


def _columns(names: Sequence[str], form: str) -> str:
    return ", ".join(form.format(name) for name in names)


def write(cursor: Any, statement: str, values: Sequence[Sequence[Any] | Mapping[str, Any]]) -> None:
    """Run a statement once for each row of values."""
    if len(values) == 1:
        cursor.execute(statement, values[0])
    elif values and connection.vendor == "postgresql":
        # psycopg's executemany is a pipeline: PostgreSQL would not end a transaction that sleeps
        # after it (UNREACHABLE), and all others would wait for the head
        cursor.execute(";".join(cursor.mogrify(statement, row) for row in values))
    elif values:
        cursor.executemany(statement, values)


def read_where_in(cursor: Any, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of a SELECT ending in ``WHERE column``, for these values."""
    cursor.execute(f"{statement} IN ({_marks(values)})", values)
    return list(cursor.fetchall())


def moment(value: datetime | None) -> Any:
    """Convert a time to the form that the database stores."""
    return connection.ops.adapt_datetimefield_value(value)


ROW_WRITTEN = ("seq", "feed_id", "type", "message_id", "frame", "size", "created_at")
_WRITE_ROWS = insert_into(LogRow, ROW_WRITTEN)
_WRITE_FEED = f"""
    UPDATE "{_FEED}" SET last_seq = %(last_seq)s, rows = %(rows)s, bytes = %(bytes)s
    WHERE id = %(feed)s
"""
READ_HEAD = f'SELECT seq, bytes FROM "{_HEAD}" WHERE id = 1'
_LOCK_HEAD = f"{READ_HEAD} FOR UPDATE"
_WRITE_HEAD = f'UPDATE "{_HEAD}" SET seq = %(seq)s, bytes = %(bytes)s WHERE id = 1'
_OLDEST = f'SELECT seq, feed_id, size FROM "{_ROW}" ORDER BY seq LIMIT %s'
_OLDEST_OF_FEED = (
    f'SELECT seq, feed_id, size FROM "{_ROW}" WHERE feed_id = %s ORDER BY seq LIMIT %s'
)
_DELETE_ROW = f'DELETE FROM "{_ROW}" WHERE seq = %s'
_SHRINK_FEED = f"""
    UPDATE "{_FEED}"
    SET rows = rows - %(rows)s, bytes = bytes - %(bytes)s, dropped_seq = %(dropped_seq)s
    WHERE id = %(feed)s
"""
_SHRINK_HEAD = f'UPDATE "{_HEAD}" SET bytes = bytes - %s WHERE id = 1'


def lock_head(cursor: Any) -> tuple[int, int]:
    """Return newest row and bytes of the log; lock them until the transaction ends."""
    # SQLite: BEGIN IMMEDIATE has locked everything
    cursor.execute(_LOCK_HEAD if connection.features.has_select_for_update else READ_HEAD)
    found: tuple[int, int] | None = cursor.fetchone()
    if found is None:  # this is the first row ever
        head = LogHead.objects.select_for_update().get_or_create(pk=1)[0]
        return head.seq, head.bytes
    return found


def write_log(
    cursor: Any, rows: Sequence[Sequence[Any]], feeds: Iterable[Feed], seq: int, bytes: int
) -> None:
    """Append rows of ROW_WRITTEN's values; update the counters of feeds and log."""
    write(cursor, _WRITE_ROWS, rows)
    counted = [
        {"feed": feed.pk, "last_seq": feed.last_seq, "rows": feed.rows, "bytes": feed.bytes}
        for feed in feeds
    ]
    write(cursor, _WRITE_FEED, counted)
    write(cursor, _WRITE_HEAD, [{"seq": seq, "bytes": bytes}])


def oldest(cursor: Any, count: int, feed_id: int | None = None) -> list[tuple[int, int, int]]:
    """Return (seq, feed, size) of the oldest rows of a feed, or of the whole log."""
    if feed_id is None:
        cursor.execute(_OLDEST, [count])
    else:
        cursor.execute(_OLDEST_OF_FEED, [feed_id, count])
    return list(cursor.fetchall())


def discard(cursor: Any, rows: Sequence[tuple[int, int, int]]) -> None:
    """Delete the oldest rows; each feed stores the newest one it lost (D29)."""
    gone: dict[int, dict[str, int]] = {}
    for seq, feed_id, size in rows:
        lost = gone.setdefault(feed_id, {"feed": feed_id, "rows": 0, "bytes": 0})
        lost.update(rows=lost["rows"] + 1, bytes=lost["bytes"] + size, dropped_seq=seq)
    write(cursor, _SHRINK_FEED, list(gone.values()))
    write(cursor, _SHRINK_HEAD, [(sum(size for _, _, size in rows),)])
    write(cursor, _DELETE_ROW, [(seq,) for seq, _, _ in rows])


# In the order of the models' fields, as from_db wants them; last in a session what is converted.
_SESSION_READ = (
    *("id", "session_id", "kind", "feed_id", "agent_type", "title", "titled", "named"),
    *("working_directory", "status", "closed_at", "hook_count", "recent_events"),
    *("pending_approvals", "turn", "doing", "decided_by_device"),
    *("processes", "tasks", "held_stop", "owner", "resume_id", "shared"),
)
_FEED_READ = ("id", "kind", "last_seq", "rows", "bytes")
_READ_SESSIONS = f"""
    SELECT {_columns(_SESSION_READ, "s.{}")}, {_columns(_FEED_READ, "f.{}")}
    FROM "{_SESSION}" s JOIN "{_FEED}" f ON f.id = s.feed_id
    WHERE s.{{}}"""
_CONVERTED = ("closed_at", "last_activity_at", "last_sign_at", "recent_events")
_PLAIN = (
    *("agent_type", "title", "titled", "working_directory", "status", "hook_count"),
    *("pending_approvals", "turn", "doing", "decided_by_device"),
    *("processes", "tasks", "held_stop"),
)
_WRITE_SESSION = f"""
    UPDATE "{_SESSION}" SET {_columns((*_PLAIN, *_CONVERTED), "{0} = %({0})s")} WHERE id = %(id)s
"""


def read_sessions(
    cursor: Any,
    session_ids: Collection[str],
    *,
    by: Literal["session_id", "resume_id"] = "session_id",
) -> dict[str, Session]:
    """Return session id → session with its feed, with the fields events need."""
    if not session_ids:
        return {}
    found = {}
    for values in read_where_in(cursor, _READ_SESSIONS.format(by), list(session_ids)):
        own = dict(zip(_SESSION_READ, values, strict=False))
        if isinstance(own["recent_events"], str):
            own["recent_events"] = json.loads(own["recent_events"])
        if own["closed_at"] is not None:
            own["closed_at"] = own["closed_at"].replace(tzinfo=UTC)
        session = Session.from_db(connection.alias, _SESSION_READ, list(own.values()))
        session.feed = Feed.from_db(connection.alias, _FEED_READ, values[len(own) :])
        found[session.session_id] = session
    return found


def count_joins(cursor: Any, session_keys: Collection[int], now: datetime) -> dict[int, int]:
    """Return session key → live connections of all processes that joined it (D33)."""
    if not session_keys:
        return {}
    # leases go by the database's clock where several machines share one: see leases.clock
    shared = connection.vendor == "postgresql"
    statement = f"""
        SELECT j.session_id, COUNT(*)
        FROM "{_JOIN}" j
            JOIN "{_CONNECTION}" c ON c.id = j.connection_id
            JOIN "{_PROCESS}" p ON p.id = c.process_id
        WHERE NOT c.replaced
            AND p.lease_until > {"STATEMENT_TIMESTAMP()" if shared else "%s"}
            AND j.session_id IN ({_marks(session_keys)})
        GROUP BY j.session_id
    """
    cursor.execute(statement, [*([] if shared else [moment(now)]), *session_keys])
    return dict(cursor.fetchall())


def write_sessions(cursor: Any, sessions: Iterable[Session]) -> None:
    """Write what storing events may have changed of sessions."""
    values = [
        {
            **{name: getattr(session, name) for name in _PLAIN},
            "id": session.pk,
            "closed_at": moment(session.closed_at),
            "last_activity_at": moment(session.last_activity_at),
            "last_sign_at": moment(session.last_sign_at),
            "recent_events": connection.ops.adapt_json_value(session.recent_events, None),
        }
        for session in sessions
    ]
    write(cursor, _WRITE_SESSION, values)
