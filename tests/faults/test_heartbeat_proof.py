"""D27 against the clock: what two heartbeats prove, ten seconds apart or less, of devices that
acknowledge nothing or something.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_id, new_session
from tests.faults.accepted import ALL, Message
from tests.faults.model import PONG_WAIT, Model
from tests.faults.phones import Handset, Producer
from tests.faults.quick import QuickBridge


class Scene:
    """A bridge, its model, and devices that have joined one session."""

    def __init__(self, bridge: Bridge, *names: str) -> None:
        self.bridge, self.model, self.producer = bridge, Model(), Producer(bridge)
        self.session, self.number = new_session(), 0
        self.handsets = [Handset([bridge], self.model, name) for name in names]
        self.post(1)
        for handset in self.handsets:
            self.connect(handset)
        self.collect()

    def post(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            body = hook(
                "UserPromptSubmit",
                self.session,
                {"prompt": "p", "number": self.number},
                event_id=new_id(),
            )
            self.model.log.accept(body, self.producer.post("event", body)["event_id"])

    def connect(self, handset: Handset) -> None:
        committed = len(self.model.log.rows)
        handset.dial()
        handset.check_health()
        handset.taken(committed)
        handset.ask(
            "session_start",
            {"agent": "a", "session_id": self.session, "working_directory": "/", "resume": False},
        )

    def collect(self) -> None:
        """All that is owed has come, and nothing else."""
        fence = hook(
            "SessionStart", f"fence-{self.session}", {"working_directory": "/"}, event_id=new_id()
        )
        self.model.log.accept(fence, self.producer.post("event", fence)["event_id"])
        for handset in self.handsets:
            handset.collect()
            self.model.settle(handset.connection)

    def acknowledge(self, handset: Handset, *messages: Message) -> None:
        ids = [message["id"] for message in messages]
        self.model.acknowledged(handset.connection, ids)
        handset.send("notification_ack", {"notification_ids": ids})
        handset.ping()
        handset.look()


def numbers(handset: Handset, session: str) -> list[int]:
    assert handset.phone is not None
    return [event["payload"]["payload"]["number"] for event in handset.phone.events(session)]


def pause_until(moment: float) -> None:
    """The passing of time itself is what the proof is about."""
    time.sleep(max(0.0, moment - time.monotonic()))


@pytest.mark.timeout(120)
def test_two_heartbeats_ten_seconds_apart(make_quick: Callable[..., QuickBridge]) -> None:
    """What was sent before the pong of the older one is proven and never sent again; what came
    later is sent again, as is what an acknowledging device left out.
    """
    scene = Scene(make_quick("heartbeats"), "silent", "acknowledging", "hasty")
    silent, acknowledging, hasty = scene.handsets
    scene.post(2)
    scene.collect()
    assert acknowledging.phone is not None
    scene.acknowledge(acknowledging, acknowledging.phone.events(scene.session)[0])
    for handset in (silent, acknowledging):
        handset.ping()
        handset.look()
    ponged = time.monotonic()
    scene.post(2)
    scene.collect()
    pause_until(ponged + PONG_WAIT / 2)
    hasty.ping()
    pause_until(ponged + PONG_WAIT + 0.1)
    for handset in scene.handsets:
        handset.ping()
        handset.look()
        handset.hang_up(orderly=False)
        handset.look()
    for handset in scene.handsets:
        scene.connect(handset)
    scene.collect()
    again = {handset.device.name: numbers(handset, scene.session) for handset in scene.handsets}
    assert again == {"silent": [4, 5], "acknowledging": [3, 4, 5], "hasty": [2, 3, 4, 5]}
    assert len(scene.model.log.feeds[ALL]) > 4, "the feed for all was compared as well"
