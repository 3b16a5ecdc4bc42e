"""Read pages of several feeds in the log's order, with their gaps (D26 to D30)."""

# ruff: noqa: S608 - only our own names and numbers are put into statements

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from django.db import connection
from django.db.models import QuerySet

from bridge_project.kernel import limits
from bridge_project.kernel.ages import ages
from bridge_project.kernel.config import conf
from bridge_project.protocol.catalogue import text_frame
from bridge_project.protocol.client_messages import ReplayRequest
from bridge_project.protocol.types import is_uuid, parse_timestamp
from sessions_app.log import ingest_sql
from sessions_app.models import Cursor, Feed, LogHead, LogRow

# Numbers of the log that a page looks through. A database may sort what it finds there before it
# gives the first row, so this bounds what a page costs, however long the log is.
WINDOW = 5_000
# For more feeds than this, all rows of that stretch are read and the wanted ones picked out.
FEW_FEEDS = 100
COLUMNS = ("seq", "feed_id", "type", "message_id", "frame")
# Written out: the ORM would take longer to compile a page's queries than the database to run them.
_ROW = LogRow._meta.db_table
_SIZES = f'''SELECT seq, feed_id, size FROM "{_ROW}" WHERE seq > %s AND seq <= %s {{}}
ORDER BY seq LIMIT %s'''
_ROWS = f'SELECT {",".join(COLUMNS)} FROM "{_ROW}" WHERE seq >= %s AND seq <= %s {{}} ORDER BY seq'


@dataclass(slots=True)
class Row:
    """Hold a row as sockets send it; ``frame``: its envelope, serialised once."""

    seq: int
    feed_id: int
    type: str
    id: str
    frame: str
    size: int = field(init=False)
    _wire: bytes = field(init=False, default=b"")

    def __post_init__(self) -> None:
        self.size = size_of(self.frame)

    @property
    def wire(self) -> bytes:
        """Return the row's WebSocket frame, made once and used for every socket."""
        self._wire = self._wire or text_frame(self.frame)
        return self._wire


class Page(NamedTuple):
    """Hold rows in order, and the gaps to be announced before them.

    ``gaps``: feed id → newest row that was discarded before the device had it.
    """

    rows: list[Row]
    gaps: dict[int, int]


class Reader:
    """Read several feeds as one stream, oldest first, in bounded pages."""

    def __init__(self, positions: Mapping[int, int], upto: int) -> None:
        """Begin after each feed's row in ``positions`` (feed id → row); end at ``upto``."""
        self._positions = positions
        self.upto = upto
        self.position = min(positions.values(), default=upto)  # all up to here was returned

    @property
    def ended(self) -> bool:
        return self.position >= self.upto

    def page(self) -> Page | None:
        """Return the next rows and gaps; None at the end.

        At most PAGE_ROWS, and PAGE_BYTES unless the first alone is larger. One that failed may be
        read again.
        """
        if self.ended:
            return None
        after = self.position
        rows, end = self._rows(after)
        while not rows and end < self.upto:
            rows, end = self._rows(end)
        # Gaps are read after rows: rows discarded in between are reported, never left out.
        marks = Feed.objects.filter(dropped_seq__gt=after).values_list("pk", "dropped_seq")
        gaps = {feed_id: seq for feed_id, seq in marks if self._wants(seq, feed_id)}
        self.position = end
        return Page(rows, gaps)

    def exceeds(self, count: int) -> bool:
        """Return whether more than so many rows follow."""
        after, seen = self.position, 0
        while after < self.upto and seen <= count:
            end = min(after + WINDOW, self.upto)
            with connection.cursor() as cursor:
                cursor.execute(_SIZES.format(self._feeds()), [after, end, WINDOW])
                seen += sum(self._wants(seq, feed_id) for seq, feed_id, _ in cursor.fetchall())
            after = end
        return seen > count

    def _feeds(self) -> str:
        few = len(self._positions) <= FEW_FEEDS
        return f"AND feed_id IN ({','.join(map(str, self._positions))})" if few else ""

    def _rows(self, after: int) -> tuple[list[Row], int]:
        """Return the next rows, and the number up to which they are all."""
        end = min(after + WINDOW, self.upto)
        feeds = self._feeds()
        with connection.cursor() as cursor:
            cursor.execute(_SIZES.format(feeds), [after, end, limits.PAGE_ROWS])
            found = cursor.fetchall()
            if len(found) == limits.PAGE_ROWS:
                end = found[-1][0]
            wanted = [(seq, size) for seq, feed_id, size in found if self._wants(seq, feed_id)]
            total = 0
            for number, (_, size) in enumerate(wanted):
                total += size
                if number and total > limits.PAGE_BYTES:
                    end = wanted[number - 1][0]
                    break
            rows = []
            if wanted:
                cursor.execute(_ROWS.format(feeds), [wanted[0][0], end])
                rows = cursor.fetchall()
        return [Row(*row) for row in rows if self._wants(row[0], row[1])], end

    def _wants(self, seq: int, feed_id: int) -> bool:
        return seq > self._positions.get(feed_id, seq)


def newest(after: int, count: int, size: int) -> tuple[int, list[Row]]:
    """Return the newest row's number, and the rows of all feeds after ``after``.

    At most the newest ``count`` rows and ``size`` bytes; the newest row whatever its size.
    """
    head, first = head_seq(), 0
    later = LogRow.objects.filter(seq__gt=after)
    for seq, row_size in later.order_by("-seq").values_list("seq", "size")[:count]:
        size -= row_size
        if first and size < 0:
            break
        first = seq
    if not first:
        return head, []
    rows = later.filter(seq__gte=first).order_by("seq").values_list(*COLUMNS)
    return head, [Row(*row) for row in rows]


def head_seq() -> int:
    """Return the newest row's number."""
    with connection.cursor() as cursor:
        cursor.execute(ingest_sql.READ_HEAD)
        return (cursor.fetchone() or (0,))[0]


def old_seq() -> int:
    """Return the row up to which the log is only sent to who asks for it (D73)."""
    return LogHead.objects.values_list("old_seq", flat=True).first() or 0


def feeds_with_news(positions: Mapping[int, int], default: int) -> dict[int, int]:
    """Return feed → position where rows follow, but for the bridge's own sessions.

    A feed that is not in ``positions`` is at ``default``; no position is below it.
    """
    feeds = Feed.objects.filter(
        kind__in=[Feed.Kind.ALL, Feed.Kind.OBSERVED], last_seq__gt=default
    ).values_list("pk", "last_seq")
    return {
        feed_id: at
        for feed_id, last in feeds.iterator()
        if last > (at := positions.get(feed_id, default))
    }


def size_of(text: str) -> int:
    """Return the bytes of a frame on the wire."""
    return len(text) if text.isascii() else len(text.encode())


# -- one session, for a join or a replay_request (D28 to D30) --------------------------------------


@dataclass(frozen=True, slots=True)
class Replay:
    """Hold the newest rows that fit, oldest first.

    ``cut``: the newest row before them that the device lacks and will not get (0: none).
    ``through``: the newest row of all. ``lost``: the log has discarded the oldest rows asked for.
    ``older``: it has rows from before those (D73).
    """

    rows: Sequence[Row]
    cut: int
    through: int
    lost: bool
    older: bool


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
        position = max(known.values_list("position", flat=True).first() or 0, old_seq())
    lacking = LogRow.objects.filter(feed=feed_id, seq__gt=position, seq__lte=upto)
    since = ages.now() - timedelta(seconds=limits.REPLAY_BUFFER_SECONDS)
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
    through = max(position, cut, rows[0].seq if rows else 0)
    before = LogRow.objects.filter(feed=feed_id, seq__lt=rows[-1].seq if rows else upto + 1)
    return Replay(rows[::-1], cut, through, lost, before.exists())


class Requested(NamedTuple):
    """Hold a feed's messages, oldest first.

    ``complete``: these are all that were asked for, none was discarded. ``older``: the log has more
    from before them.
    """

    frames: list[str]
    complete: bool
    older: bool


def requested(feed_id: int, asked: ReplayRequest) -> Requested:
    """Return a feed's messages: after or before one of them, since a moment, or all.

    As many of the newest as fit in one message, and at most ``limit`` (D29, D73). An unknown
    ``after_id`` or ``before_id`` counts as discarded, with all before it.
    """
    rows = found = LogRow.objects.filter(feed=feed_id)
    start: int | None = 0  # if nothing after it was discarded, the answer is complete
    if asked.after_id is not None:
        start = _row_of(feed_id, asked.after_id)
        found = rows.filter(seq__gt=start or 0)
    elif asked.since is not None:
        first = _first(rows.filter(created_at__gte=parse_timestamp(asked.since)))
        # all from there on, whatever time a clock that was set has given them
        found = rows.none() if first is None else rows.filter(seq__gte=first)
        # an older row shows that none of them is gone
        start = _first(rows if first is None else rows.filter(seq__lt=first)) or 0
    count = asked.limit
    if asked.before_id is not None:
        end, count = _row_of(feed_id, asked.before_id), count or limits.REPLAY_PAGE_ROWS
        found, start = found.filter(seq__lt=end or 0), None if end is None else start
    newest: list[tuple[int, str]] = []
    left = conf.max_message_bytes - limits.ENVELOPE_BYTES
    picked = found.order_by("-seq").values_list("seq", "frame")
    for row in picked.iterator(chunk_size=100) if count is None else picked[:count]:
        left -= size_of(row[1]) + 1
        if left < 0:
            break
        newest.append(row)
    older = bool(newest) and rows.filter(seq__lt=newest[-1][0]).exists()
    in_pages = count is not None  # what one leaves is asked for by the next
    kept = start is not None and (_dropped(feed_id) <= start or (in_pages and older))
    complete = kept and (left >= 0 or in_pages)
    return Requested([frame for _, frame in reversed(newest)], complete, older)


def _row_of(feed_id: int, message_id: str) -> int | None:
    """Return the row of a message of a feed, or of the one for all."""
    received = LogRow.objects.filter(feed__in=(feed_id, Feed.ALL))
    return _first(received.filter(message_id=message_id.lower())) if is_uuid(message_id) else None


def _first(rows: QuerySet[LogRow]) -> int | None:
    return rows.order_by("seq").values_list("seq", flat=True).first()


def _dropped(feed_id: int) -> int:
    return Feed.objects.filter(pk=feed_id).values_list("dropped_seq", flat=True).first() or 0
