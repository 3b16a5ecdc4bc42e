"""How far each device has received each feed: acknowledgements, and the proof that heartbeats give
(D27).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TypeVar

from django.db import transaction

from bridge_project.protocol.types import is_uuid
from devices_app.models import Device
from sessions_app.log.retention import next_rows
from sessions_app.models import Cursor, Feed, LogRow

QUERY_IDS = 1_000  # a database takes only so many parameters at once
FEEDS_AT_ONCE = 250  # cursors moved in one transaction: nobody waits long for it
AHEAD_MAX = 10_000  # acknowledgements remembered beyond a gap; as many as a feed keeps rows

T = TypeVar("T")
Rows = dict[int, int]  # seq → ordinal


def positions(device: Device) -> dict[int, int]:
    """Feed id → the newest row the device surely has; a feed that is not named stands at
    ``device.start_seq``.
    """
    return dict(Cursor.objects.filter(device=device).values_list("feed_id", "position"))


def acknowledge(
    device_id: int,
    message_ids: Collection[str],
    discarded: Mapping[int, int],
    said: Mapping[int, int] = MappingProxyType({}),
) -> None:
    """Move the device's cursors for a ``notification_ack``.

    ``message_ids`` are envelope ids of any message; unknown ones are ignored. A cursor moves over a
    row when it and all earlier rows of the feed are acknowledged. ``discarded`` (feed id → row) are
    gaps that the device has acknowledged to know of (D29); ``said`` are those that it was told of,
    which whoever acknowledges a later row has passed: they were never sent to it.
    """
    acked: dict[int, Rows] = defaultdict(dict)
    types = set()
    # a row's id is one; anything else is unknown
    known = [message_id for message_id in message_ids if is_uuid(message_id)]
    for some in batched(known, QUERY_IDS):
        for feed_id, seq, ordinal, type_ in LogRow.objects.filter(message_id__in=some).values_list(
            "feed_id", "seq", "ordinal", "type"
        ):
            acked[feed_id][seq] = ordinal
            types.add(type_)
    for feed_ids in batched(sorted(acked.keys() | discarded.keys()), FEEDS_AT_ONCE):
        with _locked(device_id) as device:
            _learn_style(device, types)
            cursors = _cursors(device, feed_ids)
            for cursor in cursors:
                gone = said.get(cursor.feed_id, 0)
                passed = gone if max(acked[cursor.feed_id], default=0) > gone else 0
                cursor.position = max(cursor.position, discarded.get(cursor.feed_id, 0), passed)
            _advance(cursors, acked)


def prove(device_id: int, sent: Mapping[int, int]) -> None:
    """A heartbeat has proven that the device received each feed up to ``sent[feed id]``.

    It counts for what the device never acknowledges: for everything if it acknowledges nothing, for
    all but notifications if it answers those alone, as the spec's table has it; for nothing if it
    acknowledges other messages too.
    """
    for feed_ids in batched(sorted(sent), FEEDS_AT_ONCE):
        with _locked(device_id) as device:
            if device.ack_style == Device.AckStyle.EVERYTHING:
                return
            behind = [
                cursor
                for cursor in _cursors(device, feed_ids)
                if cursor.position < sent[cursor.feed_id]
            ]
            if device.ack_style == Device.AckStyle.NOTHING:
                for cursor in behind:
                    cursor.position = sent[cursor.feed_id]
            _advance(
                behind,
                {}
                if device.ack_style == Device.AckStyle.NOTHING
                else _all_but_notifications(behind, sent),
            )


def _all_but_notifications(cursors: Iterable[Cursor], sent: Mapping[int, int]) -> dict[int, Rows]:
    """The rows up to those sent that are no notifications; a gap that was said is none of them, for
    its notice is one.
    """
    received: dict[int, Rows] = {}
    for cursor in cursors:
        rows = LogRow.objects.filter(
            feed_id=cursor.feed_id, seq__gt=cursor.position, seq__lte=sent[cursor.feed_id]
        )
        received[cursor.feed_id] = dict(
            rows.exclude(type="notification").values_list("seq", "ordinal")
        )
    return received


@contextmanager
def _locked(device_id: int) -> Iterator[Device]:
    """A transaction in which nobody else moves the device's cursors."""
    with transaction.atomic():
        yield Device.objects.select_for_update(no_key=True).get(pk=device_id)


def _cursors(device: Device, feed_ids: Iterable[int]) -> list[Cursor]:
    """The device's cursors in these feeds, those that are not stored yet included; not of a session
    that has been forgotten.
    """
    stored = Cursor.objects.filter(device=device, feed__in=list(feed_ids)).values_list(
        "feed_id", "position", "ahead"
    )
    known = {feed_id: (position, ahead) for feed_id, position, ahead in stored}
    there = Feed.objects.filter(pk__in=list(feed_ids)).order_by("pk").values_list("pk", flat=True)
    found = [(feed_id, *known.get(feed_id, (device.start_seq, []))) for feed_id in there]
    return [
        Cursor(device=device, feed_id=feed_id, position=position, ahead=ahead)
        for feed_id, position, ahead in found
    ]


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _learn_style(device: Device, types: Collection[str]) -> None:
    style = device.ack_style
    if set(types) - {"notification"}:
        style = Device.AckStyle.EVERYTHING
    elif types and style == Device.AckStyle.NOTHING:
        style = Device.AckStyle.NOTIFICATIONS
    if style != device.ack_style:
        device.ack_style = style
        device.save(update_fields=["ack_style"])


def _advance(cursors: Sequence[Cursor], acked: Mapping[int, Rows]) -> None:
    """Move each over the rows of its feed that are acknowledged without a gap, keep the rest for
    later, and store them all.
    """
    waiting = {
        cursor.feed_id: _waiting(cursor, acked.get(cursor.feed_id, {})) for cursor in cursors
    }
    following = next_rows(
        {cursor.feed_id: cursor.position for cursor in cursors if waiting[cursor.feed_id]}
    )
    for cursor in cursors:
        by_ordinal = {ordinal: seq for seq, ordinal in waiting[cursor.feed_id].items()}
        _, ordinal = following.get(cursor.feed_id, (0, 0))
        while (seq := by_ordinal.pop(ordinal, None)) is not None:
            cursor.position, ordinal = seq, ordinal + 1
        cursor.ahead = sorted(by_ordinal.values())[:AHEAD_MAX]
    Cursor.objects.bulk_create(
        cursors,
        update_conflicts=True,
        unique_fields=["device", "feed"],
        update_fields=["position", "ahead"],
    )


def _waiting(cursor: Cursor, acked: Rows) -> Rows:
    """The acknowledged rows beyond the cursor, those included that were acknowledged before."""
    rows = {seq: ordinal for seq, ordinal in acked.items() if seq > cursor.position}
    for some in batched(
        [seq for seq in cursor.ahead if seq > cursor.position and seq not in rows], QUERY_IDS
    ):
        rows.update(LogRow.objects.filter(seq__in=some).values_list("seq", "ordinal"))
    return rows
