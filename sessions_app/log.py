"""Reading the log: pages in order, bounds that hold at read time, gaps that are said, and pruning (D26 to D30)."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from bridge_project import limits
from bridge_project.conf import conf
from sessions_app.models import Feed, LogHead, LogRow
from sessions_app.outbox import outbox
from sessions_app.rows import Row

PRUNE_ROWS = 500


def head_seq() -> int:
    """The newest row's number."""
    return LogHead.objects.filter(pk=1).values_list("seq", flat=True).first() or 0


def kept(feed: Feed, total_bytes: int, now: datetime) -> Q:
    """The rows of a feed that D30's bounds keep. Each condition holds for a feed's newest rows only, so what is kept is its end."""
    return Q(
        created_at__gt=now - timedelta(seconds=conf.bridge_queue_ttl_seconds),
        ordinal__gt=feed.rows - conf.bridge_queue_max,
        feed_bytes__gte=feed.bytes - limits.QUEUE_MAX_SESSION_BYTES,
        total_bytes__gte=total_bytes - limits.QUEUE_MAX_TOTAL_BYTES,
    )


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows of a feed were discarded before a device had them; ``through`` is the newest of them."""

    feed_id: int
    through: int


@dataclass(frozen=True, slots=True)
class Page:
    """Rows to send, in order, and what was discarded before they could be; the gaps are said first."""

    rows: list[Row]
    gaps: list[Gap]


class Reader:
    """Reads several feeds as one stream, oldest first, in pages of bounded size; keeps only numbers and sizes in memory.

    What the bounds discard while it reads, or have discarded before, is a gap of the page in which it would have come: a row is never
    left out in silence.
    """

    def __init__(self, positions: Mapping[int, int], upto: int) -> None:
        """``positions``: feed id → the newest row not wanted; ``upto``: the newest row wanted."""
        self._after = dict(positions)
        self._upto = upto
        self._started = False
        self._heap: list[tuple[int, int]] = []  # (next row, feed)
        self._ahead: dict[int, deque[tuple[int, int]]] = {feed_id: deque() for feed_id in positions}
        self._gaps: list[Gap] = []

    def _fill(self, feed_id: int) -> None:
        """Look further along a feed, and put it into the heap if it has rows left."""
        feed, after = Feed.objects.filter(pk=feed_id).first(), self._after[feed_id]
        if feed is None:
            return  # a session that was forgotten, with its rows
        total = LogHead.objects.values_list("bytes", flat=True).get(pk=1)
        wanted = LogRow.objects.filter(feed=feed, seq__gt=after, seq__lte=self._upto)
        found = list(wanted.filter(kept(feed, total, timezone.now())).order_by("seq").values_list("seq", "size")[: limits.PAGE_ROWS])
        # Read after the rows: a prune in between has made the rows fewer and the mark higher, never the one without the other.
        dropped = Feed.objects.values_list("dropped_seq", flat=True).get(pk=feed_id)
        before = found[0][0] if found else self._upto + 1
        outside = wanted.filter(seq__lt=before).order_by("-seq").values_list("seq", flat=True).first()
        gone = max(outside or 0, dropped if dropped < before else 0)
        if gone > after:
            self._gaps.append(Gap(feed_id, gone))
        self._after[feed_id] = found[-1][0] if found else max(after, gone)
        if found:
            self._ahead[feed_id].extend(found)
            heapq.heappush(self._heap, (found[0][0], feed_id))

    def page(self) -> Page | None:
        """The next rows and gaps: at most PAGE_ROWS, at most PAGE_BYTES unless the first alone is larger; None at the end."""
        if not self._started:
            self._started = True
            for feed_id in self._after:
                self._fill(feed_id)
        gaps, self._gaps = self._gaps, []
        wanted = self._choose()
        values = LogRow.objects.filter(seq__in=list(wanted)).order_by("seq").values_list("seq", "feed_id", "type", "message_id", "frame")
        rows = [Row(*row) for row in values]
        pruned: dict[int, int] = {}
        for seq in wanted.keys() - {row.seq for row in rows}:
            pruned[wanted[seq]] = max(seq, pruned.get(wanted[seq], 0))
        gaps += [Gap(feed_id, seq) for feed_id, seq in pruned.items()]
        return Page(rows, gaps) if wanted or gaps else None

    def _choose(self) -> dict[int, int]:
        """Row → feed of what comes next."""
        wanted: dict[int, int] = {}
        size = 0
        while self._heap and len(wanted) < limits.PAGE_ROWS:
            _, feed_id = self._heap[0]
            ahead = self._ahead[feed_id]
            if wanted and size + ahead[0][1] > limits.PAGE_BYTES:
                break
            heapq.heappop(self._heap)
            seq, row_size = ahead.popleft()
            wanted[seq], size = feed_id, size + row_size
            if ahead:
                heapq.heappush(self._heap, (ahead[0][0], feed_id))
            else:
                self._fill(feed_id)
                if self._gaps:
                    break  # it lies behind what was chosen: it is said with the next page, when this one has been sent
        return wanted


def gap(feed: Feed, after: int, total_bytes: int, now: datetime) -> Gap | None:
    """What a device at ``after`` can no longer get of a feed, pruned or not yet (D29)."""
    oldest_kept = LogRow.objects.filter(kept(feed, total_bytes, now), feed=feed).order_by("seq").values_list("seq", flat=True).first()
    gone = LogRow.objects.filter(feed=feed, seq__gt=after)
    if oldest_kept is not None:
        gone = gone.filter(seq__lt=oldest_kept)
    newest_gone = gone.order_by("-seq").values_list("seq", flat=True).first()
    through = max(newest_gone or 0, feed.dropped_seq)
    return Gap(feed.pk, through) if through > after else None


def prune() -> int:
    """Delete what the bounds no longer keep, remembering for each feed how far; returns the number of rows deleted."""
    deleted = 0
    for feed_id in list(Feed.objects.values_list("pk", flat=True)):
        while count := _prune_some(feed_id):
            deleted += count
    return deleted


def _prune_some(feed_id: int) -> int:
    """Delete some of a feed's discarded rows, few enough that nobody waits long for the head of the log."""
    with outbox():  # holding the head: no reader may find the rows gone before the feed says so
        feed, total = Feed.objects.get(pk=feed_id), LogHead.objects.values_list("bytes", flat=True).get(pk=1)
        gone = LogRow.objects.filter(~kept(feed, total, timezone.now()), feed=feed).order_by("seq").values_list("seq", flat=True)[:PRUNE_ROWS]
        seqs = list(gone)
        if seqs:
            Feed.objects.filter(pk=feed_id).update(dropped_seq=max(feed.dropped_seq, seqs[-1]))
            LogRow.objects.filter(seq__in=seqs).delete()
        return len(seqs)


def has_news(positions: Mapping[int, int], default: int) -> list[Feed]:
    """The observed feeds and the one for all that have, or had, rows after a device's positions."""
    feeds = Feed.objects.filter(kind__in=[Feed.Kind.ALL, Feed.Kind.OBSERVED]).filter(Q(last_seq__gt=default) | Q(pk__in=list(positions)))
    return [feed for feed in feeds if feed.last_seq > positions.get(feed.pk, default)]
