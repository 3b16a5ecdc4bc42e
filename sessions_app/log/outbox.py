"""Append log rows in the transaction that causes them; delete old ones (D26, D30)."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, Subquery
from django.utils import timezone

from bridge_project.kernel import limits, metrics
from bridge_project.kernel.ages import ages
from bridge_project.kernel.config import conf
from bridge_project.protocol.catalogue import Encoded
from sessions_app.log import ingest_sql
from sessions_app.log.reader import Row, size_of
from sessions_app.log.tail import tail
from sessions_app.models import Feed, LogHead, LogRow

DISCARD_ROWS = 100  # rows read at once to make room for bytes
PRUNE_ROWS = 500  # in one transaction: nobody waits long for the head of the log


class Outbox:
    """Collect rows while the transaction locks the head of the log.

    So row numbers are in the order of commits. ``seq``: the newest so far.
    """

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor
        self.seq, self._bytes = ingest_sql.lock_head(cursor)
        self._feeds: dict[int, Feed] = {}
        self._written_at: list[Any] = []  # of each of the rows
        self.now: datetime = timezone.now()
        self.moment: Any = ingest_sql.moment(self.now)
        self.rows: list[Row] = []

    def append(self, feed: Feed, message: Encoded) -> Row:
        """Append a message to a feed as a new row; the counters of both grow."""
        feed = self._feeds.setdefault(feed.pk, feed)
        self.seq += 1
        feed.rows += 1
        feed.last_seq = self.seq
        row = Row(self.seq, feed.pk, message.type, message.id, message.text)
        self.rows.append(row)
        # not the transaction's: replay_request compares with the time that the message shows
        self._written_at.append(ingest_sql.moment(timezone.now()))
        self._grow(feed, row.size)
        return row

    def _grow(self, feed: Feed, size: int) -> None:
        feed.bytes += size
        self._bytes += size

    def append_to_all(self, message: Encoded) -> Row:
        feed = self._feeds.get(Feed.ALL)
        if feed is None:
            feed, _ = Feed.objects.get_or_create(pk=Feed.ALL, defaults={"kind": Feed.Kind.ALL})
        return self.append(feed, message)

    def amend(self, feed: Feed, message: Encoded) -> None:
        """Replace a message, under its id; devices that have the old one get no new one.

        Its bytes are counted if something is appended too, to whatever feed.
        """
        feed = self._feeds.setdefault(feed.pk, feed)
        for index, row in enumerate(self.rows):
            if row.id == message.id:
                new = self.rows[index] = Row(row.seq, feed.pk, row.type, row.id, message.text)
                return self._grow(feed, new.size - row.size)
        stored = LogRow.objects.filter(feed=feed, message_id=message.id)
        size = size_of(message.text)
        self._grow(feed, sum(size - old for old in stored.values_list("size", flat=True)))
        stored.update(frame=message.text, size=size)
        return None

    def flush(self) -> None:
        """Write the rows, and discard the oldest that exceed the bounds (D30)."""
        if not self.rows:
            return
        stored = [
            (row.seq, row.feed_id, row.type, row.id, row.frame, row.size, written_at)
            for row, written_at in zip(self.rows, self._written_at, strict=True)
        ]
        ingest_sql.write_log(self.cursor, stored, self._feeds.values(), self.seq, self._bytes)
        for feed in self._feeds.values():
            excess = feed.rows - conf.bridge_queue_max
            self._discard(excess, feed.bytes - limits.QUEUE_MAX_SESSION_BYTES, feed.pk)
        self._discard(0, self._bytes - limits.QUEUE_MAX_TOTAL_BYTES)

    def _discard(self, rows: int, size: int, feed_id: int | None = None) -> None:
        """Discard the oldest rows of a feed, or of the log, until the bounds hold."""
        while rows > 0 or size > 0:
            gone = []
            for row in ingest_sql.oldest(
                self.cursor, max(rows, DISCARD_ROWS * (size > 0)), feed_id
            ):
                if rows <= 0 and size <= 0:
                    break
                gone.append(row)
                rows, size = rows - 1, size - row[2]
                self._bytes -= row[2]
            if not gone:
                break
            ingest_sql.discard(self.cursor, gone)


@contextmanager
def outbox() -> Iterator[Outbox]:
    """Open a transaction that may append to the log.

    Everything written inside it commits with the rows or not at all. It locks the log's head first,
    so two of them never deadlock. Read feeds and sessions inside it, not before, or their counters
    are stale.
    """
    with transaction.atomic(), ingest_sql.open_cursor() as cursor:
        box = Outbox(cursor)
        yield box
        box.flush()
        if box.rows:
            rows = tuple(box.rows)
            transaction.on_commit(lambda: tail.committed(rows))
        written = time.perf_counter()
    if box.rows:
        metrics.commits.observe(time.perf_counter() - written)


def prune() -> int:
    """Discard the rows that are too old; return how many.

    Also note which are from now on only sent to who asks for them (D73). A feed always keeps its
    newest rows without a gap among them: a row that a wrong clock made look old stays until the
    rows before it go (D29).
    """
    _grow_old()
    kept_since = ages.now() - timedelta(seconds=conf.history_seconds)
    rows = LogRow.objects.order_by("seq")
    oldest = rows.filter(feed=OuterRef("pk")).values("created_at")[:1]
    pruned = 0
    for feed in list(Feed.objects.alias(since=Subquery(oldest)).filter(since__lte=kept_since)):
        kept = rows.filter(feed=feed, created_at__gt=kept_since).values_list("seq", flat=True)
        pruned += discard_before(feed.pk, kept.first() or feed.last_seq + 1)
    return pruned


def _grow_old() -> None:
    """Note up to which row the log is older than UNASKED_SECONDS (D73)."""
    head = LogHead.objects.first()
    if head is not None:
        since = ages.now() - timedelta(seconds=limits.UNASKED_SECONDS)
        later = LogRow.objects.filter(seq__gt=head.old_seq, created_at__gt=since).order_by("seq")
        fresh = later.values_list("seq", flat=True).first()  # a few rows later, each minute
        old = head.seq if fresh is None else fresh - 1
        LogHead.objects.filter(pk=head.pk, old_seq__lt=old).update(old_seq=old)


def discard_before(feed_id: int, before: int) -> int:
    """Discard a feed's rows before a given one, in steps; return how many."""
    discarded = 0
    while True:
        with outbox() as box:
            oldest = ingest_sql.oldest(box.cursor, PRUNE_ROWS, feed_id)
            rows = [row for row in oldest if row[0] < before]
            ingest_sql.discard(box.cursor, rows)
        discarded += len(rows)
        if len(rows) < PRUNE_ROWS:
            return discarded
