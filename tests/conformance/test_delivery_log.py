"""What came while away (D23, D26 to D28; spec, Offline behavior): nothing accepted is lost, nothing
comes twice on one connection; and what notification_ack moves (D27).
"""

import json
import random
import threading
from contextlib import suppress

import pytest

from tests.conformance.approvals import post, pre
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import away, back, nothing_more
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id, new_session, prompt

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.spec("offline.pending", "offline.replay"),
]


def test_what_came_while_away(bridge: Bridge, sid: str, device: Phone) -> None:
    """D28: right after connection_ack, no join needed, oldest first, as ordinary messages."""
    began = new_session()  # of which the device has never heard
    bridge.accept(prompt(sid, 0))
    away(device)
    bridge.accept(*[prompt(sid, number) for number in range(1, 8)])
    bridge.accept(hook("SessionStart", began), prompt(began, 1))
    device.connect().auth()
    device.wait_numbers(sid, range(1, 8))
    device.wait_numbers(began, [None, 1])
    device.expect("session_started", session_id=began)
    assert device.messages[0]["type"] == "connection_ack"
    assert "replay_buffer" not in {message["type"] for message in device.messages}
    assert device.health_check()["payload"]["ready"] is True


def test_joining_before_the_backlog_is_through(bridge: Bridge, sid: str, device: Phone) -> None:
    """New events come in meanwhile; each comes once and in order."""
    bridge.accept(prompt(sid, "start"))
    away(device)
    answer = bridge.post_batch([prompt(sid, number) for number in range(300)])
    assert answer.json()["accepted"] == 300
    live = [prompt(sid, number) for number in range(300, 330)]
    poster = threading.Thread(target=bridge.accept, args=live)
    poster.start()
    device.ready().join(sid)
    device.wait_numbers(sid, range(330), 30)
    poster.join()


@pytest.mark.spec("device.replaced")
def test_a_half_open_socket(bridge: Bridge, sid: str) -> None:
    """D23: events went into the old socket; the newer connection gets them all, and new ones."""
    bridge.accept(prompt(sid, 0))
    pairing = bridge.pairing()
    old = bridge.phone(pairing).ready()
    old.join(sid)
    bridge.accept(prompt(sid, 1), prompt(sid, 2))
    old.wait_numbers(sid, [1, 2])
    new = bridge.phone(pairing).ready()
    new.wait_numbers(sid, [1, 2])
    # the replaced connection has joined nothing any more
    assert bridge.accept(prompt(sid, 3))[0]["broadcast_count"] == 0
    new.join(sid)
    bridge.accept(prompt(sid, 4))
    new.wait_numbers(sid, [1, 2, 3, 4])
    assert old.wait_closed() == 4409
    assert old.numbers(sid) == [1, 2]
    new.close()


def test_a_flickering_connection(bridge: Bridge, sid: str, device: Phone) -> None:
    """200 events while the phone comes and goes, joins or not, acknowledges some or none: all
    arrive, in order, each at most once a connection.
    """
    chance = random.Random(20)
    bridge.accept(prompt(sid, "start"))
    away(device)
    done = threading.Event()

    def post() -> None:
        for start in range(0, 200, 10):
            bridge.accept(*[prompt(sid, number) for number in range(start, start + 10)])
        done.set()

    poster = threading.Thread(target=post)
    poster.start()
    seen: dict[str, int] = {}  # id → number
    acknowledged, connections = -1, 0
    while not (done.is_set() and 199 in seen.values()):
        assert connections < 60, "it does not come to an end"
        connections += 1
        device.ready()
        if chance.random() < 0.7 or done.is_set():
            device.join(sid)
        wanted = chance.randrange(1, 25)
        with suppress(AssertionError):  # a connection that gets few is part of the test
            device.collect(
                lambda wanted=wanted: (  # type: ignore[misc]
                    len(device.events(sid)) >= wanted or 199 in device.numbers(sid)
                ),
                "some",
                0.3,
            )
        events, numbers = device.events(sid), device.numbers(sid)
        if numbers:
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), numbers
            last = max(seen.values(), default=-1)
            assert acknowledged < numbers[0] <= last + 1, (acknowledged, last, numbers[0])
        for event, number in zip(events, numbers, strict=True):
            assert seen.setdefault(event["id"], number) == number
        if events and chance.random() < 0.5:
            count = chance.randrange(1, len(events) + 1)
            device.ack(*events[:count])
            acknowledged = max(acknowledged, numbers[count - 1])
        if chance.random() < 0.5:
            device.vanish()
        else:
            device.close()
    poster.join()
    assert sorted(seen.values()) == list(range(200)), "one id for each event"


def test_a_large_event_does_not_block_what_follows(bridge: Bridge, sid: str, device: Phone) -> None:
    """A message that is hard to send keeps a device from nothing after it (D30)."""
    bridge.accept(prompt(sid, 0))
    away(device)
    large = hook("UserPromptSubmit", sid, {"prompt": "ä" * (9 * 512 * 1024), "number": 2})
    body = json.dumps(large, ensure_ascii=False).encode()
    bridge.accept(prompt(sid, 1))
    answer = bridge.https().post("/api/v1/hooks/event", token=bridge.hook_token, body=body)
    assert answer.status == 200
    bridge.accept(prompt(sid, 3))
    back(device, sid, [1, 2, 3])


def test_a_new_device_starts_at_the_present(bridge: Bridge, sid: str, device: Phone) -> None:
    """D28: also when it joins; it hears of no approval, no notification."""
    call = pre(sid, approval=True, tool_call_id="x"), post(sid, tool_call_id="x")
    bridge.accept(prompt(sid, 0), *call, hook("Stop", sid), hook("Notification", sid))
    device.ready().join(sid)
    bridge.accept(prompt(sid, 3))
    device.wait_numbers(sid, [3])
    bridge.fence(device)
    told = {message["type"] for message in device.messages}
    assert not told & {"notification", "approval_required", "tool_call", "tool_result"}


@pytest.mark.spec("ws.notification_ack", "delivery.cursor")
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


@pytest.mark.spec("ws.notification_ack", "delivery.cursor")
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


@pytest.mark.spec("ws.notification_ack", "delivery.cursor")
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


@pytest.mark.spec("ws.notification_ack", "delivery.cursor")
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
