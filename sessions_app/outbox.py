"""The transactional outbox: rows of the log are written in the transaction that caused them, and the bell rings after its commit (D26)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from bridge_project import metrics
from bridge_project.protocol.catalogue import Encoded
from sessions_app import statements
from sessions_app.hub import hub
from sessions_app.models import Feed, LogHead, LogRow
from sessions_app.rows import Row, size_of


class Outbox:
    """Collects rows while its transaction holds the head of the log, so that their numbers are the order of commits."""

    def __init__(self, head: LogHead) -> None:
        self._head = head
        self._feeds: dict[int, Feed] = {}
        self._stored: list[LogRow] = []
        self.now: datetime = timezone.now()
        self.rows: list[Row] = []

    @property
    def seq(self) -> int:
        """The newest row so far."""
        return self._head.seq

    def append(self, feed: Feed, message: Encoded) -> Row:
        """Add a message to a feed. Whatever instances of a feed are passed, the first one seen counts."""
        feed = self._feeds.setdefault(feed.pk, feed)
        size = size_of(message.text)
        self._head.seq += 1
        feed.rows += 1
        feed.last_seq = self._head.seq
        row = Row(self._head.seq, feed.pk, message.type, message.id, message.text)
        self.rows.append(row)
        self._stored.append(
            LogRow(
                seq=row.seq,
                feed_id=feed.pk,
                type=row.type,
                message_id=row.id,
                frame=row.frame,
                size=size,
                ordinal=feed.rows,
                feed_bytes=feed.bytes,
                total_bytes=self._head.bytes,
                created_at=self.now,
            )
        )
        feed.bytes += size
        self._head.bytes += size
        return row

    def append_to_all(self, message: Encoded) -> Row:
        """Add a message to the feed for all devices."""
        feed = self._feeds.get(Feed.ALL) or Feed.objects.get_or_create(pk=Feed.ALL, defaults={"kind": Feed.Kind.ALL})[0]
        return self.append(feed, message)

    def flush(self) -> None:
        if self._stored:
            statements.write_log(self._stored, self._feeds.values(), self._head)


@contextmanager
def outbox() -> Iterator[Outbox]:
    """A transaction that may append to the log.

    Everything written inside it commits with the rows or not at all. It takes the log's head first, so two of them never wait for
    each other crosswise; read feeds and sessions inside it, not before, or their counters are stale.
    """
    with transaction.atomic():
        box = Outbox(statements.lock_head())
        yield box
        box.flush()
        if box.rows:
            rows = tuple(box.rows)
            transaction.on_commit(lambda: hub.committed(rows))
        written = time.perf_counter()
    if box.rows:
        metrics.commits.observe(time.perf_counter() - written)
