"""Record how far each device has received each feed (D27)."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import ParamSpec, TypeVar

from django.db import IntegrityError, transaction

from devices_app.models import Device
from sessions_app.log import reader
from sessions_app.models import Cursor, Feed, LogRow

IDS_AT_ONCE = 1_000  # a database takes only so many parameters
FEEDS_AT_ONCE = 250  # cursors moved in one transaction: nobody waits long for it
AHEAD_MAX = 10_000  # acknowledgements remembered beyond a gap; as many as a feed keeps rows

P = ParamSpec("P")
T = TypeVar("T")


def _again(move: Callable[P, None]) -> Callable[P, None]:
    """Try once more when a feed was forgotten after it was found (PostgreSQL)."""

    @wraps(move)
    def moved(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            move(*args, **kwargs)
        except IntegrityError:
            move(*args, **kwargs)

    return moved


def positions(device: Device, feed_id: int | None = None) -> dict[int, int]:
    """Return feed id → position after which rows are sent unasked.

    Of one feed or of all; feeds not in it begin at `start_of`.
    """
    found, start = Cursor.objects.filter(device=device), start_of(device)
    found = found if feed_id is None else found.filter(feed=feed_id)
    return {feed: max(at, start) for feed, at in found.values_list("feed_id", "position")}


def start_of(device: Device) -> int:
    """Return the row after which a feed without a cursor begins: no old one (D73)."""
    return max(device.start_seq, reader.old_seq())


@_again
def acknowledge(
    device_id: int,
    message_ids: Collection[str],
    through: Mapping[int, int] = MappingProxyType({}),
    gaps: Mapping[int, int] = MappingProxyType({}),
    answered: Collection[str] = (),
) -> None:
    """Move the device's cursors for a ``notification_ack``.

    ``message_ids`` are envelope ids of any message; unknown ones are ignored. A cursor moves over a
    row when it and all earlier rows of the feed are acknowledged. ``through`` (feed id → row) are
    rows acknowledged together with all before them. ``gaps`` are gaps that the device was told of:
    it passes them by acknowledging a later row, since discarded rows were never sent to it.
    ``answered`` are ids of rows that were not sent, because an answer said the same.
    """
    acked: dict[int, set[int]] = defaultdict(set)
    types = set()
    for ids in batched([*message_ids, *answered], IDS_AT_ONCE):
        rows = LogRow.objects.filter(message_id__in=ids)
        for feed_id, seq, type_, id_ in rows.values_list("feed_id", "seq", "type", "message_id"):
            acked[feed_id].add(seq)
            if id_ not in answered:
                types.add(type_)
    for feed_ids in batched(sorted(acked.keys() | through.keys()), FEEDS_AT_ONCE):
        with transaction.atomic():
            device = _lock(device_id)
            _learn_style(device, types)
            moved = _cursors(device, feed_ids)
            for cursor in moved:
                gap = gaps.get(cursor.feed_id, 0)
                passed = gap if max(acked[cursor.feed_id], default=0) > gap else 0
                cursor.position = max(cursor.position, through.get(cursor.feed_id, 0), passed)
                _advance(cursor, acked[cursor.feed_id])
            _store(moved)


@_again
def advance(device_id: int, sent: Mapping[int, int]) -> None:
    """Move cursors over the rows that a device's heartbeat proves it received.

    ``sent``: feed id → row. Only types of rows that this device never acknowledges are moved over:
    all if it acknowledges nothing, all but notifications (and tool results) if it acknowledges
    only those, none if it acknowledges other types too (``Device.ack_style``).
    """
    for feed_ids in batched(sorted(sent), FEEDS_AT_ONCE):
        with transaction.atomic():
            device = _lock(device_id)
            if device.ack_style == Device.AckStyle.EVERYTHING:
                return
            cursors = _cursors(device, feed_ids)
            behind = [one for one in cursors if one.position < sent[one.feed_id]]
            for cursor in behind:
                if device.ack_style == Device.AckStyle.NOTHING:
                    cursor.position = sent[cursor.feed_id]
                    cursor.ahead = [seq for seq in cursor.ahead if seq > cursor.position]
                else:
                    rows = LogRow.objects.filter(feed=cursor.feed_id, seq__gt=cursor.position)
                    answered = _ANSWERED[Device.AckStyle(device.ack_style)]
                    others = rows.filter(seq__lte=sent[cursor.feed_id]).exclude(type__in=answered)
                    _advance(cursor, set(others.values_list("seq", flat=True)))
            _store(behind)


def _advance(cursor: Cursor, acked: Collection[int]) -> None:
    """Move the cursor over acknowledged rows without a gap; remember those beyond."""
    ahead = {seq for seq in (*cursor.ahead, *acked) if seq > cursor.position}
    if ahead:
        following = LogRow.objects.filter(feed=cursor.feed_id, seq__gt=cursor.position)
        rows = following.order_by("seq").values_list("seq", flat=True)[: len(ahead) + 1]
        for seq in rows:
            if seq not in ahead:
                break
            cursor.position = seq
    cursor.ahead = sorted(seq for seq in ahead if seq > cursor.position)[:AHEAD_MAX]


def _store(cursors: Sequence[Cursor]) -> None:
    Cursor.objects.bulk_create(
        cursors,
        update_conflicts=True,
        unique_fields=["device", "feed"],
        update_fields=["position", "ahead"],
    )


def _lock(device_id: int) -> Device:
    """Return the device; nobody else moves its cursors until the transaction ends."""
    return Device.objects.select_for_update(no_key=True).get(pk=device_id)


def _cursors(device: Device, feed_ids: Iterable[int]) -> list[Cursor]:
    """Return the device's cursors in these feeds, stored or new; skip forgotten feeds."""
    stored = Cursor.objects.filter(device=device, feed__in=list(feed_ids))
    known = {feed_id: rest for feed_id, *rest in stored.values_list("feed", "position", "ahead")}
    there = Feed.objects.filter(pk__in=list(feed_ids)).order_by("pk").values_list("pk", flat=True)
    start = start_of(device)
    found = [(feed_id, *known.get(feed_id, (start, []))) for feed_id in there]
    return [
        Cursor(device=device, feed_id=id_, position=max(at, start), ahead=more)
        for id_, at, more in found
    ]


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


# What a device of each style acknowledges, from the least to the most.
_ANSWERED: dict[Device.AckStyle, frozenset[str]] = {
    Device.AckStyle.NOTHING: frozenset(),
    Device.AckStyle.NOTIFICATIONS: frozenset({"notification"}),
    Device.AckStyle.RESULTS: frozenset({"notification", "tool_result"}),
}


def _learn_style(device: Device, types: Iterable[str]) -> None:
    types = set(types) - {"tool_error"}  # each comes right behind a tool_result
    known = _ANSWERED.get(Device.AckStyle(device.ack_style))
    if known is None or known >= types:
        return
    fits = (style for style, answered in _ANSWERED.items() if answered >= known | types)
    device.ack_style = next(fits, Device.AckStyle.EVERYTHING)
    device.save(update_fields=["ack_style"])
