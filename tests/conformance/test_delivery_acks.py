"""Cursors (D21, D27): what notification_ack moves, in whatever order it comes, and what not."""

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
    """With the same id, in order; acknowledged, never again: in whatever order, before ready too;
    unknown ids are ignored.
    """
    bridge.accept(prompt(sid, 0))
    away(device)
    bridge.accept(*[prompt(sid, number) for number in (1, 2, 3)])
    first = back(device, sid, [1, 2, 3])
    device.close()
    device.connect().auth()
    second = device.wait_numbers(sid, [1, 2, 3])
    assert [event["id"] for event in first] == [event["id"] for event in second]
    device.ack(second[1])
    device.ack(second[2]["id"], new_id(), "", second[0]["id"], second[2]["id"])
    device.close()
    nothing_more(bridge, device.ready(), sid, [])


def test_only_the_third_of_three(bridge: Bridge, sid: str, device: Phone) -> None:
    """D27: the cursor moves over a row when it and all earlier rows sent are acknowledged."""
    bridge.accept(prompt(sid, 0))
    away(device)
    bridge.accept(*[prompt(sid, number) for number in (1, 2, 3)])
    for expected, acknowledged in (([1, 2, 3], [2]), ([1, 2, 3], [2, 0]), ([2, 3], [1, 0])):
        events = back(device, sid, expected)
        for index in acknowledged:
            device.ack(events[index])
        device.close()
    nothing_more(bridge, device.ready(), sid, [])


def test_acks_of_one_session_move_no_other(bridge: Bridge, sid: str, device: Phone) -> None:
    other = new_session()
    bridge.accept(prompt(sid, 0), prompt(other, 0))
    away(device)
    bridge.accept(prompt(sid, 1), prompt(other, 1), prompt(sid, 2), prompt(other, 2))
    device.ready().wait_numbers(sid, [1, 2])
    device.ack(*device.wait_numbers(other, [1, 2]))
    device.close()
    device.ready().wait_numbers(sid, [1, 2])
    nothing_more(bridge, device, other, [])


def test_acks_of_one_device_move_no_other(bridge: Bridge, sid: str, device: Phone) -> None:
    """The rows have the same ids on both devices."""
    bridge.accept(prompt(sid, 0))
    first, second = device, bridge.phone()
    away(first)
    away(second)
    bridge.accept(prompt(sid, 1), prompt(sid, 2))
    first.ready().ack(*first.wait_numbers(sid, [1, 2]))
    first.close()
    second.ready().wait_numbers(sid, [1, 2])
    second.close()
    nothing_more(bridge, first.ready(), sid, [])
