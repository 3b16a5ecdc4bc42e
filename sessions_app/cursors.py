"""How far each device has received each feed: acknowledgements, and the proof that heartbeats give (D27)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from django.db import transaction

from bridge_project.protocol.types import is_uuid
from devices_app.models import Device
from sessions_app.models import Cursor, Feed, LogRow

QUERY_IDS = 1_000  # a database takes only so many parameters at once
AHEAD_MAX = 10_000  # acknowledgements remembered beyond a gap; as many as a feed keeps rows


def positions(device: Device) -> dict[int, int]:
    """Feed id → the newest row the device surely has; a feed that is not named stands at ``device.start_seq``."""
    return dict(Cursor.objects.filter(device=device).values_list("feed_id", "position"))


def acknowledge(device_id: int, message_ids: Collection[str], discarded: Mapping[int, int]) -> None:
    """Move the device's cursors for a ``notification_ack``.

    ``message_ids`` are envelope ids of any message; unknown ones are ignored. A cursor moves over a row when it and all earlier
    rows of the feed are acknowledged. ``discarded`` (feed id → row) are gaps that the device has acknowledged to know of (D29).
    """
    acked: dict[int, set[int]] = defaultdict(set)
    types = set()
    known = [message_id for message_id in message_ids if is_uuid(message_id)]  # a row's id is one; anything else is unknown
    for start in range(0, len(known), QUERY_IDS):
        rows = LogRow.objects.filter(message_id__in=known[start : start + QUERY_IDS]).values_list("feed_id", "seq", "type")
        for feed_id, seq, type_ in rows:
            acked[feed_id].add(seq)
            types.add(type_)
    with transaction.atomic():
        device = Device.objects.select_for_update(no_key=True).get(pk=device_id)
        _learn_style(device, types)
        for feed_id in _existing(acked.keys() | discarded.keys()):
            cursor = _locked(device, feed_id)
            cursor.position = max(cursor.position, discarded.get(feed_id, 0))
            _advance(cursor, acked[feed_id])


def prove(device_id: int, sent: Mapping[int, int]) -> None:
    """A heartbeat has proven that the device received each feed up to ``sent[feed id]``.

    It counts for what the device never acknowledges: for everything if it acknowledges nothing, for all but notifications if it
    answers those alone, as the spec's table has it; for nothing if it acknowledges other messages too.
    """
    with transaction.atomic():
        device = Device.objects.select_for_update(no_key=True).get(pk=device_id)
        if device.ack_style == Device.AckStyle.EVERYTHING:
            return
        for feed_id in _existing(sent):
            seq, cursor = sent[feed_id], _locked(device, feed_id)
            if device.ack_style == Device.AckStyle.NOTIFICATIONS:
                others = LogRow.objects.filter(feed_id=feed_id, seq__gt=cursor.position, seq__lte=seq).exclude(type="notification")
                _advance(cursor, set(others.values_list("seq", flat=True)))
            elif seq > cursor.position:
                cursor.position = seq
                _advance(cursor, set())


def _existing(feed_ids: Collection[int]) -> list[int]:
    """Those whose session has not been forgotten."""
    return list(Feed.objects.filter(pk__in=list(feed_ids)).values_list("pk", flat=True))


def _learn_style(device: Device, types: Collection[str]) -> None:
    style = device.ack_style
    if set(types) - {"notification"}:
        style = Device.AckStyle.EVERYTHING
    elif types and style == Device.AckStyle.NOTHING:
        style = Device.AckStyle.NOTIFICATIONS
    if style != device.ack_style:
        device.ack_style = style
        device.save(update_fields=["ack_style"])


def _locked(device: Device, feed_id: int) -> Cursor:
    return Cursor.objects.get_or_create(device=device, feed_id=feed_id, defaults={"position": device.start_seq})[0]


def _advance(cursor: Cursor, acked: set[int]) -> None:
    """Move over every row that is acknowledged without a gap, and keep the rest for later."""
    waiting = {seq for seq in acked.union(cursor.ahead) if seq > cursor.position}
    following = LogRow.objects.filter(feed_id=cursor.feed_id, seq__gt=cursor.position).order_by("seq").values_list("seq", flat=True)
    for seq in following[: len(waiting)]:
        if seq not in waiting:
            break
        cursor.position = seq
    cursor.ahead = sorted(seq for seq in waiting if seq > cursor.position)[:AHEAD_MAX]
    cursor.save(update_fields=["position", "ahead"])
