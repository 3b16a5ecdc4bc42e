"""Reading the log: pages in order, bounds that hold at read time, gaps that are said, and pruning (D26 to D30)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from bridge_project import limits
from bridge_project.conf import conf
from sessions_app.models import Feed, LogHead, LogRow
from sessions_app.outbox import Row, outbox

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


class Reader:
    """Reads several feeds as one stream, oldest first, in pages of bounded size; keeps only numbers and sizes in memory."""

    def __init__(self, positions: Mapping[int, int], upto: int) -> None:
        """``positions``: feed id → the newest row not wanted; ``upto``: the newest row wanted."""
        self._after = dict(positions)
        self._upto = upto
        self._ahead: dict[int, deque[tuple[int, int]]] = {feed_id: deque() for feed_id in positions}
        self._open = set(positions)

    def _fill(self) -> None:
        """Every feed that has rows left has some at hand."""
        empty = [feed_id for feed_id in self._open if not self._ahead[feed_id]]
        if not empty:
            return
        now, total = timezone.now(), LogHead.objects.values_list("bytes", flat=True).get(pk=1)
        for feed in Feed.objects.filter(pk__in=empty):
            rows = LogRow.objects.filter(kept(feed, total, now), feed=feed, seq__gt=self._after[feed.pk], seq__lte=self._upto)
            found = list(rows.order_by("seq").values_list("seq", "size")[: limits.PAGE_ROWS])
            self._ahead[feed.pk].extend(found)
            if found:
                self._after[feed.pk] = found[-1][0]
        self._open = {feed_id for feed_id in self._open if self._ahead[feed_id]}

    def page(self) -> list[Row]:
        """The next rows: at most PAGE_ROWS, at most PAGE_BYTES unless the first alone is larger; empty at the end."""
        wanted: list[int] = []
        size = 0
        while len(wanted) < limits.PAGE_ROWS:
            self._fill()
            if not self._open:
                break
            feed_id = min(self._open, key=lambda f: self._ahead[f][0][0])
            seq, row_size = self._ahead[feed_id][0]
            if wanted and size + row_size > limits.PAGE_BYTES:
                break
            self._ahead[feed_id].popleft()
            wanted.append(seq)
            size += row_size
        rows = LogRow.objects.filter(seq__in=wanted).order_by("seq").values_list("seq", "feed_id", "type", "message_id", "frame")
        return [Row(*values) for values in rows]


def read_all(positions: Mapping[int, int], upto: int) -> Iterator[Row]:
    """All rows of a Reader, one after the other."""
    reader = Reader(positions, upto)
    while page := reader.page():
        yield from page


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
