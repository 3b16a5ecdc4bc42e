"""Where the next rows of feeds are, and how far pruning must go: a statement for hundreds of feeds,
as cheap for a million rows as for a thousand.

Portable between SQLite and PostgreSQL. One statement sees one state of the database, so that rows
and the marks that pruning leaves behind them always fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, islice, takewhile
from typing import Any

from django.db import connection
from django.db.models import Q, QuerySet

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from sessions_app.log import ingest_sql
from sessions_app.log.row import Row
from sessions_app.models import Feed, LogHead, LogRow

FEEDS_AT_ONCE = 500  # of one statement: two parameters each
# up to here a statement for each, which gives many rows, costs less than a statement for all, which
# gives one row of each
FEW_FEEDS = 16
_HEAD, _FEED, _ROW = (model._meta.db_table for model in (LogHead, Feed, LogRow))


def oldest_kept_at(now: datetime) -> datetime:
    return now - timedelta(seconds=conf.bridge_queue_ttl_seconds)


def first_kept(feed: Feed, total_bytes: int, now: datetime) -> int | None:
    """The oldest row of a feed that lies within D30's bounds. All after it are kept, too, also
    those that bear an earlier time.

    Numbers and bytes hold for a feed's newest rows only, but a clock that was set may have given
    later rows earlier times: they go when what came before them goes, so that what is kept is
    always a feed's end, and what is gone a gap before it.
    """
    within = Q(
        created_at__gt=oldest_kept_at(now),
        ordinal__gt=feed.rows - conf.bridge_queue_max,
        feed_bytes__gte=feed.bytes - limits.QUEUE_MAX_SESSION_BYTES,
        total_bytes__gte=total_bytes - limits.QUEUE_MAX_TOTAL_BYTES,
    )
    return (
        LogRow.objects.filter(within, feed=feed)
        .order_by("seq")
        .values_list("seq", flat=True)
        .first()
    )


def kept(feed: Feed, total_bytes: int, now: datetime) -> QuerySet[LogRow]:
    """The rows of a feed that D30's bounds keep: its end."""
    first = first_kept(feed, total_bytes, now)
    return LogRow.objects.filter(feed=feed, seq__gte=feed.last_seq + 1 if first is None else first)


# The same bounds, each row held against the counters of its feed as they are in the same statement.
# A row within them is kept, with all after it; one that is not may still be, if one before it is.
_COUNTED = f'r.ordinal > f.rows - %s AND r.feed_bytes >= f.bytes - %s AND r.total_bytes >= (SELECT bytes FROM "{_HEAD}" WHERE id = 1) - %s'  # noqa: S608
_WITHIN = f"CASE WHEN r.created_at > %s AND {_COUNTED} THEN 1 ELSE 0 END"


def _bounds(now: datetime) -> list[Any]:
    """The parameters of _WITHIN."""
    return [
        ingest_sql.moment(oldest_kept_at(now)),
        conf.bridge_queue_max,
        limits.QUEUE_MAX_SESSION_BYTES,
        limits.QUEUE_MAX_TOTAL_BYTES,
    ]


@dataclass(slots=True)
class Ahead:
    """What comes next in a feed: ``gone``, the newest row that was discarded before it (0: none),
    and the next kept rows, oldest first.
    """

    gone: int = 0
    rows: list[tuple[int, int]] = field(default_factory=list)  # (seq, size)
    more: bool = False  # there may be rows after these


def ahead(after: Mapping[int, int], upto: int, depth: int, now: datetime) -> dict[int, Ahead]:
    """For each feed its next rows after a row, none newer than ``upto``: ``depth`` of each of a few
    feeds, one of each of many.

    What was discarded is said if it lies before the next row, or if there is none, before ``upto``.
    A feed that is not there any more is left out.
    """
    if len(after) <= FEW_FEEDS:
        found = {
            feed_id: _rows_of(feed_id, position, upto, depth, now)
            for feed_id, position in after.items()
        }
    else:
        found = _first_rows(after, upto, now)
    return {feed_id: entry for feed_id, entry in found.items() if entry is not None}


# Equality with one number and not a join over a range: PostgreSQL knows too little of ranges, and
# would read the whole log for them.
_FIRST = f"""
WITH at(feed_id, after) AS (VALUES {{pairs}})
SELECT at.feed_id, at.after, f.dropped_seq, r.seq, r.size, {_WITHIN}
FROM at JOIN "{_FEED}" f ON f.id = at.feed_id LEFT JOIN "{_ROW}" r
  ON r.seq = (SELECT MIN(n.seq) FROM "{_ROW}" n WHERE n.feed_id = at.feed_id AND n.seq > at.after AND n.seq <= %s)
"""  # noqa: S608 - our own names


def _first_rows(after: Mapping[int, int], upto: int, now: datetime) -> dict[int, Ahead | None]:
    found: dict[int, Ahead | None] = {}
    for pairs in _chunks(after):
        marks = ",".join(["(%s,%s)"] * len(pairs))
        with connection.cursor() as cursor:
            cursor.execute(
                _FIRST.format(pairs=marks), [*chain.from_iterable(pairs), *_bounds(now), upto]
            )
            rows = cursor.fetchall()
        for feed_id, position, dropped, seq, size, within in rows:
            if seq is None or within:
                found[feed_id] = Ahead(
                    _gone(position, dropped, seq, upto),
                    [] if seq is None else [(seq, size)],
                    seq is not None,
                )
            else:
                found[feed_id] = _from_first_kept(feed_id, position, upto, 1, now)
    return found


def _gone(position: int, dropped: int, first: int | None, upto: int) -> int:
    """The mark that pruning left, if it lies between a position and the next row."""
    return dropped if position < dropped < (upto + 1 if first is None else first) else 0


# No upper end: of a range with two PostgreSQL expects so little that it would sort all of it
# instead of following the index.
_SOME = f"""
SELECT r.seq, r.size, f.dropped_seq, {_WITHIN} FROM "{_ROW}" r JOIN "{_FEED}" f ON f.id = r.feed_id
WHERE r.feed_id = %s AND r.seq > %s ORDER BY r.seq LIMIT %s
"""  # noqa: S608


def _rows_of(feed_id: int, position: int, upto: int, depth: int, now: datetime) -> Ahead | None:
    with connection.cursor() as cursor:
        cursor.execute(_SOME, [*_bounds(now), feed_id, position, depth])
        rows = [row for row in cursor if row[0] <= upto]
    if not rows:  # what a prune has taken before that was read, its mark says now
        dropped = Feed.objects.filter(pk=feed_id).values_list("dropped_seq", flat=True).first()
        return None if dropped is None else Ahead(_gone(position, dropped, None, upto))
    if not rows[0][3]:
        return _from_first_kept(feed_id, position, upto, depth, now)
    return Ahead(
        _gone(position, rows[0][2], rows[0][0], upto),
        [(seq, size) for seq, size, _, _ in rows],
        len(rows) == depth,
    )


def _from_first_kept(
    feed_id: int, position: int, upto: int, depth: int, now: datetime
) -> Ahead | None:
    """Where rows have been discarded and not pruned yet, or a clock was set back."""
    feed = Feed.objects.filter(pk=feed_id).first()
    if feed is None:
        return None  # a session that was forgotten meanwhile, with its rows
    total = LogHead.objects.values_list("bytes", flat=True).get(pk=1)
    span = Q(seq__gt=position, seq__lte=upto)
    rows = list(
        kept(feed, total, now).filter(span).order_by("seq").values_list("seq", "size")[:depth]
    )
    # Read after the rows: a prune in between has made the rows fewer and the mark higher, never the
    # one without the other.
    dropped = Feed.objects.filter(pk=feed_id).values_list("dropped_seq", flat=True).first() or 0
    outside = LogRow.objects.filter(span, feed=feed)
    newest_outside = (outside.filter(seq__lt=rows[0][0]) if rows else outside).order_by(
        "-seq"
    ).values_list("seq", flat=True).first() or 0
    return Ahead(
        max(newest_outside, _gone(position, dropped, rows[0][0] if rows else None, upto)),
        rows,
        len(rows) == depth,
    )


def _chunks(after: Mapping[int, int]) -> Iterator[list[tuple[int, int]]]:
    items = iter(after.items())
    while chunk := list(islice(items, FEEDS_AT_ONCE)):
        yield chunk


_NEXT = f"""
WITH at(feed_id, after) AS (VALUES {{pairs}})
SELECT r.feed_id, r.seq, r.ordinal
FROM at JOIN "{_ROW}" r ON r.seq = (SELECT MIN(n.seq) FROM "{_ROW}" n WHERE n.feed_id = at.feed_id AND n.seq > at.after)
"""  # noqa: S608


def next_rows(after: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Feed id → (seq, ordinal) of its next row after a row, kept or not; a feed that has none is
    left out.
    """
    found: dict[int, tuple[int, int]] = {}
    for pairs in _chunks(after):
        with connection.cursor() as cursor:
            cursor.execute(
                _NEXT.format(pairs=",".join(["(%s,%s)"] * len(pairs))),
                list(chain.from_iterable(pairs)),
            )
            found.update((feed_id, (seq, ordinal)) for feed_id, seq, ordinal in cursor)
    return found


# A subquery and no join, which PostgreSQL would make by reading the whole log.
_OVERFULL = f"""
SELECT f.id FROM "{_FEED}" f WHERE (SELECT {_WITHIN} FROM "{_ROW}" r WHERE r.feed_id = f.id ORDER BY r.seq LIMIT 1) = 0
"""  # noqa: S608


def overfull(now: datetime) -> list[int]:
    """The feeds whose oldest row lies outside the bounds, by its time, by number or by bytes."""
    with connection.cursor() as cursor:
        cursor.execute(_OVERFULL, _bounds(now))
        return [feed_id for (feed_id,) in cursor]


_OLDEST = f"""
SELECT r.seq, {_WITHIN} FROM "{_ROW}" r JOIN "{_FEED}" f ON f.id = r.feed_id WHERE r.feed_id = %s ORDER BY r.seq LIMIT %s
"""  # noqa: S608


def oldest_outside(feed_id: int, count: int, now: datetime) -> Sequence[int]:
    """Those among the ``count`` oldest rows of a feed that come before the first within the
    bounds.
    """
    with connection.cursor() as cursor:
        cursor.execute(_OLDEST, [*_bounds(now), feed_id, count])
        return [seq for seq, _ in takewhile(lambda row: not row[1], cursor)]


_NEWEST = f"""
SELECT r.seq, r.feed_id, r.type, r.message_id, r.frame FROM "{_ROW}" r
WHERE r.seq > %s AND r.total_bytes + r.size > (SELECT bytes FROM "{_HEAD}" WHERE id = 1) - %s ORDER BY r.seq LIMIT %s
"""  # noqa: S608


def newest(after: int, count: int, size: int) -> tuple[int, list[Row]]:
    """The head of the log, and the rows of all feeds after a row, oldest first, up to the head or
    beyond.

    Of those ``count`` at most, of the newest ``size`` bytes of the log; its newest row whatever its
    size.
    """
    with connection.cursor() as cursor:
        head = ingest_sql.read_head(cursor)[0]
        cursor.execute(_NEWEST, [after, size, count])
        return head, [Row(*row) for row in cursor]
