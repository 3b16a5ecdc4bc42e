"""Reading the log: pages in order, bounds that hold at read time, gaps that are said, and pruning
(D26 to D30).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.utils import timezone

from bridge_project.kernel import limits
from sessions_app.log import ingest_sql, retention
from sessions_app.log.outbox import outbox
from sessions_app.log.row import Row
from sessions_app.models import Feed, LogRow

PRUNE_ROWS = 500
PRUNE_FEEDS = 100
AHEAD_FEEDS = 250  # feeds looked along at once


def head_seq() -> int:
    """The newest row's number."""
    with connection.cursor() as cursor:
        return ingest_sql.read_head(cursor)[0]


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows of a feed were discarded before a device had them; ``through`` is the newest of them."""

    feed_id: int
    through: int


@dataclass(frozen=True, slots=True)
class Page:
    """Rows to send, in order, and what was discarded before they could be; the gaps are said
    first.
    """

    rows: list[Row]
    gaps: list[Gap]


class Reader:
    """Reads several feeds as one stream, oldest first, in pages of bounded size; keeps only numbers
    and sizes in memory.

    Of each feed that has rows left its next row is in the heap; a few more of them are known ahead,
    in all about two pages full, however many feeds and rows there are. What the bounds discard
    while it reads, or have discarded before, is a gap of the page in which it would have come: a
    row is never left out in silence.
    """

    def __init__(self, positions: Mapping[int, int], upto: int) -> None:
        """``positions``: feed id → the newest row not wanted; ``upto``: the newest row wanted."""
        self._new: Mapping[int, int] | None = positions
        self._upto = upto
        self._heap: list[tuple[int, int, int]] = []  # (next row, feed, its size)
        # feed → (row, size) after that, newest first; of a feed with none there is no entry
        self._ahead: dict[int, list[tuple[int, int]]] = {}
        self._held = 0
        # feed → newest row that was discarded between its row in the heap and those after that
        self._lost: dict[int, int] = {}
        self._more: set[int] = set()  # feeds that may have rows beyond those known
        self._gaps: list[Gap] = []

    def page(self) -> Page | None:
        """The next rows and gaps: at most PAGE_ROWS, at most PAGE_BYTES unless the first alone is
        larger; None at the end.
        """
        if self._new is not None:
            self._begin(self._new)
            self._new = None
        gaps, self._gaps = self._gaps, []
        wanted = self._choose()
        values = (
            LogRow.objects.filter(seq__in=list(wanted))
            .order_by("seq")
            .values_list("seq", "feed_id", "type", "message_id", "frame")
        )
        rows = [Row(*row) for row in values]
        pruned: dict[int, int] = {}
        for seq in wanted.keys() - {row.seq for row in rows}:
            pruned[wanted[seq]] = max(seq, pruned.get(wanted[seq], 0))
        gaps += [Gap(feed_id, seq) for feed_id, seq in pruned.items()]
        return Page(rows, gaps) if wanted or gaps else None

    def _begin(self, positions: Mapping[int, int]) -> None:
        """Find the first rows of all feeds."""
        depth = max(1, limits.PAGE_ROWS // max(1, len(positions)))
        for feed_id, found in retention.ahead(positions, self._upto, depth, timezone.now()).items():
            if found.gone:
                self._gaps.append(Gap(feed_id, found.gone))
            if found.rows:
                self._know(feed_id, found.rows[1:], more=found.more)
                self._heap.append((found.rows[0][0], feed_id, found.rows[0][1]))
        heapq.heapify(self._heap)

    def _know(self, feed_id: int, rows: list[tuple[int, int]], *, more: bool) -> None:
        if rows:
            self._ahead[feed_id] = rows[::-1]
            self._held += len(rows)
        if more:
            self._more.add(feed_id)
        else:
            self._more.discard(feed_id)

    def _choose(self) -> dict[int, int]:
        """Row → feed of what comes next."""
        wanted: dict[int, int] = {}
        size = 0
        while self._heap and len(wanted) < limits.PAGE_ROWS:
            seq, feed_id, row_size = self._heap[0]
            if wanted and size + row_size > limits.PAGE_BYTES:
                break
            if feed_id not in self._ahead and feed_id in self._more:
                self._look()
            wanted[seq], size = feed_id, size + row_size
            if feed_id in self._ahead:
                heapq.heapreplace(self._heap, self._following(feed_id))
            else:
                heapq.heappop(self._heap)
            if lost := self._lost.pop(feed_id, 0):
                self._gaps.append(Gap(feed_id, lost))
                # it lies behind what was chosen: it is said with the next page, when this one has
                # been sent
                break
        return wanted

    def _following(self, feed_id: int) -> tuple[int, int, int]:
        rows = self._ahead[feed_id]
        seq, size = rows.pop()
        self._held -= 1
        if not rows:
            del self._ahead[feed_id]
        return (seq, feed_id, size)

    def _look(self) -> None:
        """Look further along the feeds whose turn comes next and of which nothing is known beyond
        their row in the heap.
        """
        front = heapq.nsmallest(
            AHEAD_FEEDS,
            (
                (seq, feed_id)
                for seq, feed_id, _ in self._heap
                if feed_id in self._more and feed_id not in self._ahead
            ),
        )
        depth = max(1, (2 * limits.PAGE_ROWS - self._held) // len(front))
        found = retention.ahead(
            {feed_id: seq for seq, feed_id in front}, self._upto, depth, timezone.now()
        )
        for _, feed_id in front:
            # a session that was forgotten, with its rows
            beyond = found.get(feed_id, retention.Ahead())
            if beyond.gone:
                self._lost[feed_id] = beyond.gone
            self._know(feed_id, beyond.rows, more=beyond.more)


def gap(feed: Feed, after: int, total_bytes: int, now: datetime) -> Gap | None:
    """What a device at ``after`` can no longer get of a feed, pruned or not yet (D29)."""
    oldest_kept = retention.first_kept(feed, total_bytes, now)
    gone = LogRow.objects.filter(feed=feed, seq__gt=after)
    if oldest_kept is not None:
        gone = gone.filter(seq__lt=oldest_kept)
    newest_gone = gone.order_by("-seq").values_list("seq", flat=True).first()
    through = max(newest_gone or 0, feed.dropped_seq)
    return Gap(feed.pk, through) if through > after else None


def prune() -> int:
    """Delete what the bounds no longer keep, remembering for each feed how far; returns the number
    of rows deleted.

    It costs what it deletes, and a look at the oldest row of each feed.
    """
    now = timezone.now()
    feeds, deleted = deque(retention.overfull(now)), 0
    while feeds:
        deleted += _prune_some(feeds, now)
    return deleted


def empty(feed_id: int) -> None:
    """Delete all rows of a feed, as if they had been pruned: some at a time, and said until the
    feed itself is forgotten.
    """
    rows = LogRow.objects.filter(feed_id=feed_id).order_by("seq").values_list("seq", "feed_id")
    while rows.exists():
        with outbox():
            _discard(list(rows[:PRUNE_ROWS]))


def _prune_some(feeds: deque[int], now: datetime) -> int:
    """Delete some of the oldest rows of the first feeds, few enough that nobody waits long for the
    head of the log.
    """
    rows: list[tuple[int, int]] = []
    with outbox():
        for _ in range(min(PRUNE_FEEDS, len(feeds))):
            wanted = PRUNE_ROWS - len(rows)
            found = retention.oldest_outside(feeds[0], wanted, now)
            rows += [(seq, feeds[0]) for seq in found]
            if len(found) == wanted:
                break  # it may have more
            feeds.popleft()
        return _discard(rows)


def _discard(rows: list[tuple[int, int]]) -> int:
    """Delete (seq, feed) rows, holding the head: no reader may find them gone before their feed
    says so.
    """
    newest: dict[int, int] = {}
    for seq, feed_id in rows:
        newest[feed_id] = max(seq, newest.get(feed_id, 0))
    for feed_id, seq in newest.items():
        Feed.objects.filter(pk=feed_id, dropped_seq__lt=seq).update(dropped_seq=seq)
    return LogRow.objects.filter(seq__in=[seq for seq, _ in rows]).delete()[0]


def news(positions: Mapping[int, int], default: int) -> dict[int, int]:
    """The observed feeds and the one for all that have, or had, rows after a device's positions,
    each with its position.

    A feed without a position stands at ``default``, and none stands before it.
    """
    feeds = Feed.objects.filter(
        kind__in=[Feed.Kind.ALL, Feed.Kind.OBSERVED], last_seq__gt=default
    ).values_list("pk", "last_seq")
    return {
        feed_id: at
        for feed_id, last in feeds.iterator()
        if last > (at := positions.get(feed_id, default))
    }
