"""Cursors (D21, D27): what notification_ack moves, in whatever order it comes, and what it does
not.
"""

from __future__ import annotations

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.delivery import away, back, nothing_more
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id, new_session, prompt

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.spec("ws.notification_ack", "delivery.cursor"),
]


def test_unacknowledged_is_sent_again(bridge: Bridge, sid: str, device: Phone) -> None:
    """D27: at least once, with the same id, in order; acknowledged, never again: in whatever order,
    before ready too (D21); notification_ids is a set, unknown ids are ignored.
    """
    bridge.accept(prompt(sid, 0))
    away(device)
    bridge.accept(*[prompt(sid, number) for number in (1, 2, 3)])
    first = back(device, sid, [1, 2, 3])
    device.close()
    device.connect()
    device.auth()
    second = device.wait_numbers(sid, [1, 2, 3])
    assert [event["id"] for event in first] == [event["id"] for event in second]
    device.ack(second[1])
    device.ack(second[2]["id"], new_id(), "", second[0]["id"], second[2]["id"])
    device.close()
    device.ready()
    nothing_more(bridge, device, sid, [])


def test_only_the_third_of_three(bridge: Bridge, sid: str, device: Phone) -> None:
    """D27: the cursor moves over a row when it and all earlier rows of that feed sent to this
    device are acknowledged.
    """
    bridge.accept(prompt(sid, 0))
    away(device)
    bridge.accept(*[prompt(sid, number) for number in (1, 2, 3)])
    events = back(device, sid, [1, 2, 3])
    device.ack(events[2])
    device.close()
    events = back(device, sid, [1, 2, 3])
    device.ack(events[2])
    device.ack(events[0])
    device.close()
    events = back(device, sid, [2, 3])
    device.ack(events[1])
    device.ack(events[0])
    device.close()
    device.ready()
    nothing_more(bridge, device, sid, [])


def test_acks_of_one_session_move_no_other(bridge: Bridge, sid: str, device: Phone) -> None:
    """D27: each device has its own position in each feed."""
    other = new_session()
    bridge.accept(prompt(sid, 0), prompt(other, 0))
    away(device)
    bridge.accept(prompt(sid, 1), prompt(other, 1), prompt(sid, 2), prompt(other, 2))
    device.ready()
    device.collect(
        lambda: len(device.events(sid)) == len(device.events(other)) == 2, "both sessions' events"
    )
    device.ack(*device.events(other))
    device.close()
    device.ready()
    device.wait_numbers(sid, [1, 2])
    nothing_more(bridge, device, other, [])


def test_acks_of_one_device_move_no_other(bridge: Bridge, sid: str) -> None:
    """D27: the rows have the same ids on both devices; one's receipt says nothing of the
    other's.
    """
    bridge.accept(prompt(sid, 0))
    first, second = bridge.phone(), bridge.phone()
    away(first)
    away(second)
    bridge.accept(prompt(sid, 1), prompt(sid, 2))
    first.ready()
    first.ack(*first.wait_numbers(sid, [1, 2]))
    first.close()
    second.ready()
    second.wait_numbers(sid, [1, 2])
    second.close()
    first.ready()
    nothing_more(bridge, first, sid, [])
    first.close()
