"""The transactional outbox: rows of the log are written in the transaction that caused them, and
the bell rings after its commit (D26).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from bridge_project.kernel import metrics
from bridge_project.protocol.catalogue import Encoded
from sessions_app.log import ingest_sql
from sessions_app.log.row import Row, size_of
from sessions_app.log.tail import tail
from sessions_app.models import Feed


class Outbox:
    """Collects rows while its transaction holds the head of the log, so that their numbers are the
    order of commits. ``seq``: the newest so far.
    """

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor
        self.seq, self._bytes = ingest_sql.lock_head(cursor)
        self._feeds: dict[int, Feed] = {}
        self._stored: list[tuple[Any, ...]] = []
        self.now: datetime = timezone.now()
        self.moment: Any = ingest_sql.moment(self.now)
        self.rows: list[Row] = []

    def append(self, feed: Feed, message: Encoded) -> Row:
        """Add a message to a feed. Whatever instances of a feed are passed, the first one seen
        counts.
        """
        feed = self._feeds.setdefault(feed.pk, feed)
        size = size_of(message.text)
        self.seq += 1
        feed.rows += 1
        feed.last_seq = self.seq
        row = Row(self.seq, feed.pk, message.type, message.id, message.text)
        self.rows.append(row)
        self._stored.append(
            (
                row.seq,
                feed.pk,
                row.type,
                row.id,
                row.frame,
                size,
                feed.rows,
                feed.bytes,
                self._bytes,
                self.moment,
            )
        )
        feed.bytes += size
        self._bytes += size
        return row

    def append_to_all(self, message: Encoded) -> Row:
        """Add a message to the feed for all devices."""
        feed = (
            self._feeds.get(Feed.ALL)
            or Feed.objects.get_or_create(pk=Feed.ALL, defaults={"kind": Feed.Kind.ALL})[0]
        )
        return self.append(feed, message)

    def flush(self) -> None:
        if self._stored:
            ingest_sql.write_log(
                self.cursor, self._stored, self._feeds.values(), self.seq, self._bytes
            )


@contextmanager
def outbox() -> Iterator[Outbox]:
    """A transaction that may append to the log.

    Everything written inside it commits with the rows or not at all. It takes the log's head first,
    so two of them never wait for each other crosswise; read feeds and sessions inside it, not
    before, or their counters are stale.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        box = Outbox(cursor)
        yield box
        box.flush()
        if box.rows:
            rows = tuple(box.rows)
            transaction.on_commit(lambda: tail.committed(rows))
        written = time.perf_counter()
    if box.rows:
        metrics.commits.observe(time.perf_counter() - written)
