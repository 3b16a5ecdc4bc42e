"""What a device gets of a bridge-run session when it joins it: what it has not got yet, as far as
the replay buffer reaches (D28 to D30).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from bridge_project.kernel import limits
from sessions_app.log import retention
from sessions_app.log.row import Row
from sessions_app.models import Cursor, Feed, LogHead, LogRow


@dataclass(frozen=True, slots=True)
class Replay:
    """``rows`` are the newest that fit, oldest first; ``cut`` is the newest row before them that
    the device has not got and will not (0: none); ``through`` the newest of all."""

    rows: Sequence[Row]
    cut: int
    through: int


def replay_of(device_id: int, feed_id: int, sent: int | None, upto: int) -> Replay:
    """The rows of a feed past where the device stands, up to ``upto``: ``sent`` on this connection,
    else its cursor; a device new to it gets all there is.
    """
    position = (
        sent
        if sent is not None
        else Cursor.objects.filter(device=device_id, feed=feed_id)
        .values_list("position", flat=True)
        .first()
        or 0
    )
    feed = Feed.objects.filter(pk=feed_id).first()
    if feed is None:
        return Replay([], 0, position)  # forgotten meanwhile, with its rows
    now, total = timezone.now(), LogHead.objects.values_list("bytes", flat=True).first() or 0
    past = LogRow.objects.filter(feed=feed, seq__gt=position, seq__lte=upto)
    kept = retention.kept(feed, total, now).filter(seq__gt=position, seq__lte=upto)
    young = kept.filter(created_at__gt=now - timedelta(seconds=limits.REPLAY_BUFFER_SECONDS))
    first = young.order_by("seq").values_list("seq", flat=True).first()
    # with what a clock that was set back has made look older
    recent = kept.filter(seq__gte=upto + 1 if first is None else first)
    rows: list[Row] = []
    room = limits.REPLAY_BUFFER_BYTES
    for values in (
        recent.order_by("-seq")
        .values_list("seq", "feed_id", "type", "message_id", "frame")
        .iterator(chunk_size=50)
    ):
        row = Row(*values)
        room -= row.size
        if room < 0:
            break
        rows.append(row)
    older = past.filter(seq__lt=rows[-1].seq) if rows else past
    newest_cut = older.order_by("-seq").values_list("seq", flat=True).first() or 0
    pruned = feed.dropped_seq if position < feed.dropped_seq <= upto else 0
    cut = max(newest_cut, pruned)
    return Replay(rows[::-1], cut, max(position, cut, rows[0].seq if rows else 0))
