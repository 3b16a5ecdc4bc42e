"""What came while away (D23, D26 to D28, D34; spec, Offline behavior): nothing accepted is lost,
nothing comes twice on one connection.
"""

from __future__ import annotations

import json
import random
import threading
from contextlib import suppress

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.delivery import away, back
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, prompt

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.spec("offline.pending", "offline.replay"),
]


def test_what_came_while_away(bridge: Bridge, sid: str, device: Phone) -> None:
    """D28: right after connection_ack, no join needed, oldest first, as ordinary messages."""
    bridge.accept(prompt(sid, 0))
    away(device)
    bridge.accept(*[prompt(sid, number) for number in range(1, 8)])
    device.connect().auth()
    device.wait_numbers(sid, range(1, 8))
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
    """D28: also when it joins."""
    bridge.accept(*[prompt(sid, number) for number in range(3)])
    device.ready().join(sid)
    bridge.accept(prompt(sid, 3))
    device.wait_numbers(sid, [3])


def test_a_session_that_began_while_away(bridge: Bridge, sid: str, device: Phone) -> None:
    """All of it comes to a device that has never heard of it."""
    away(device)
    bridge.accept(hook("SessionStart", sid), prompt(sid, 1))
    device.ready().expect("session_started", session_id=sid)
    device.wait_numbers(sid, [None, 1])
