"""Read back one session's feed for a join or a replay_request (D28 to D30)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.protocol.types import is_uuid, parse_timestamp
from sessions_app.log.reader import COLUMNS, Row, size_of
from sessions_app.models import Cursor, Feed, LogRow

ENVELOPE_BYTES = 4096  # of a replay_buffer, beside the messages in it


@dataclass(frozen=True, slots=True)
class Replay:
    """Hold the newest rows that fit, oldest first.

    ``cut`` is the newest row before them that the device has not got and will not (0: none);
    ``through`` the newest of all. ``lost``: the log has lost the beginning of what was asked for.
    """

    rows: Sequence[Row]
    cut: int
    through: int
    lost: bool


def missed(
    device_id: int, feed_id: int, sent: int | None, upto: int, *, whole: bool = False
) -> Replay:
    """Return the rows of a bridge-run session that a device lacks, up to ``upto``.

    They begin after ``sent`` on this connection, else after its cursor; a device without one gets
    all that fits. ``whole``: report lost rows even if the device had got them.
    """
    position = sent
    if position is None:
        known = Cursor.objects.filter(device=device_id, feed=feed_id)
        position = known.values_list("position", flat=True).first() or 0
    lacking = LogRow.objects.filter(feed=feed_id, seq__gt=position, seq__lte=upto)
    since = timezone.now() - timedelta(seconds=limits.REPLAY_BUFFER_SECONDS)
    first = _first(lacking.filter(created_at__gt=since))
    # all from there on: a clock that was set back may have made later rows look older
    recent = lacking.filter(seq__gte=upto + 1 if first is None else first)
    rows: list[Row] = []
    left = limits.REPLAY_BUFFER_BYTES
    for values in recent.order_by("-seq").values_list(*COLUMNS).iterator(chunk_size=50):
        row = Row(*values)
        left -= row.size
        if left < 0:
            break
        rows.append(row)
    older = lacking.filter(seq__lt=rows[-1].seq) if rows else lacking
    cut = older.order_by("-seq").values_list("seq", flat=True).first() or 0
    dropped = _dropped(feed_id)
    if position < dropped <= upto:
        cut = max(cut, dropped)
    lost = dropped > (0 if whole else position)
    return Replay(rows[::-1], cut, max(position, cut, rows[0].seq if rows else 0), lost)


def asked_for(feed_id: int, after_id: str | None, since: str | None) -> tuple[list[str], bool]:
    """Return a feed's messages after one of them, since a moment, or all.

    As many of the newest as fit in one message; and whether these are all, with none discarded
    (D29). An unknown ``after_id`` counts as discarded, with all before it.
    """
    rows = LogRow.objects.filter(feed=feed_id)
    start: int | None = None  # asked for are the rows after this; None: unknown
    if after_id is not None:
        start = _first(rows.filter(message_id=after_id)) if is_uuid(after_id) else None
    elif since is None:
        start = 0
    else:
        moment = parse_timestamp(since)
        oldest = rows.order_by("seq").values_list("seq", "created_at").first()
        first = _first(rows.filter(created_at__gte=moment))
        # all from there on, whatever time a clock that was set has given them
        rows = rows.filter(seq__gte=first) if first is not None else rows.none()
        start = 0
        if oldest is not None and oldest[1] < moment:  # nothing from there on can be missing
            start = oldest[0] if first is None else first - 1
    frames: list[str] = []
    left = conf.max_message_bytes - ENVELOPE_BYTES
    asked = rows.filter(seq__gt=start or 0).order_by("-seq").values_list("frame", flat=True)
    for frame in asked.iterator(chunk_size=100):
        left -= size_of(frame) + 1
        if left < 0:
            break
        frames.append(frame)
    return frames[::-1], left >= 0 and start is not None and _dropped(feed_id) <= start


def _first(rows: QuerySet[LogRow]) -> int | None:
    return rows.order_by("seq").values_list("seq", flat=True).first()


def _dropped(feed_id: int) -> int:
    return Feed.objects.filter(pk=feed_id).values_list("dropped_seq", flat=True).first() or 0
