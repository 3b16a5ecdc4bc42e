"""Stopping and dying (D25, D26, D31, D35): an acknowledged event survives kill -9, a client is told
of an orderly stop, everything stands after a start.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from websockets.exceptions import WebSocketException

from tests.conformance.bridge import Bridge, Pairing, eventually
from tests.conformance.phone import Closed, Message, Phone
from tests.conformance.samples import hook, new_id, new_session, now, prompt

POSTERS, BEFORE, AFTER = 16, 160, 5


@pytest.fixture(scope="module")
def mortal(database_url: str | None, make_bridge: Callable[..., Bridge]) -> Iterator[Bridge]:
    """A bridge that tests kill and start again, on the database under test."""
    bridge = make_bridge("mortal", database_url=database_url, BRIDGE_MAX_WEBSOCKETS="50")
    yield bridge
    bridge.stop()


class Poster(threading.Thread):
    """Posts numbered events one after the other, each with an event_id of its own; an event without
    an answer is sent again (D31).
    """

    def __init__(self, bridge: Bridge, session_id: str, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.bridge, self.session_id, self.number, self.stop = bridge, session_id, number, stop
        self.acknowledged: list[str] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        https, connection = self.bridge.https(), None
        while not self.stop.is_set():
            name, event_id = f"{self.number}-{len(self.acknowledged)}", new_id()
            while not self.stop.is_set():
                try:
                    connection = connection or https.open()
                    body = prompt(self.session_id, name, event_id=event_id)
                    answer = https.post(
                        "/api/v1/hooks/event",
                        token=self.bridge.hook_token,
                        json_body=body,
                        connection=connection,
                    )
                except (OSError, http.client.HTTPException):
                    if connection is not None:
                        connection.close()
                    connection = None
                    self.stop.wait(0.05)
                    continue
                if answer.status == 200:
                    self.acknowledged.append(name)
                    break
                self.wrong.append(str(answer))
                self.stop.wait(0.2)


def receive_while(
    phone: Phone, session_id: str, done: Callable[[], bool], seen: list[list[Message]]
) -> None:
    """A client that reconnects until `done`, acknowledging now and then; every connection's events
    are appended.
    """
    while not done():
        try:
            phone.ready()
            phone.join(session_id)
            while not done():
                try:
                    phone.receive(0.2)
                except TimeoutError:
                    pass
                if len(phone.messages) % 40 == 0:
                    phone.ack(*phone.events(session_id))
        except (OSError, Closed, AssertionError, EOFError, WebSocketException):
            # the server is dead or dying: connect again, as a client does after a moment
            time.sleep(0.05)
        seen.append(phone.events(session_id))


def crash_under_load(bridge: Bridge, session_id: str) -> list[Poster]:
    """Sixteen posters, kill -9 in the middle, a start; each has acknowledged more when all have
    ended.
    """
    stop = threading.Event()
    posters = [Poster(bridge, session_id, number, stop) for number in range(POSTERS)]
    for poster in posters:
        poster.start()
    eventually(lambda: sum(len(poster.acknowledged) for poster in posters) >= BEFORE, 60)
    bridge.kill()
    at_death = [len(poster.acknowledged) for poster in posters]
    bridge.start()
    eventually(
        lambda: all(
            len(poster.acknowledged) >= count + AFTER
            for poster, count in zip(posters, at_death, strict=True)
        ),
        60,
    )
    stop.set()
    for poster in posters:
        poster.join(180)
    assert not [
        wrong for poster in posters for wrong in poster.wrong if not wrong.startswith("503")
    ]
    return posters


@pytest.mark.spec("delivery.crash")
def test_kill_9_under_sixteen_posters(mortal: Bridge) -> None:
    """Issue, done when; D26, D31: no acknowledged event is lost, none is doubled, each poster's
    order holds, for a phone that was there and one that was away.
    """
    sid, finished = new_session(), threading.Event()
    mortal.accept(prompt(sid, "before"))
    watching, away = mortal.phone(), mortal.phone()
    for phone in (watching, away):
        phone.ready()
        phone.close()
    connections: list[list[Message]] = []
    watcher = threading.Thread(
        target=receive_while, args=(watching, sid, finished.is_set, connections), daemon=True
    )
    watcher.start()
    posters = crash_under_load(mortal, sid)
    mortal.accept(prompt(sid, "after"))

    away.ready()
    away.collect(lambda: "after" in away.numbers(sid), "everything", 60)
    check(away.numbers(sid), posters)
    ids = [event["payload"]["event_id"] for event in away.events(sid)]
    assert len(ids) == len(set(ids)), "an event_id was stored twice"

    finished.set()
    watcher.join(180)
    assert not watcher.is_alive()
    watching.ready()
    watching.join(sid)
    mortal.accept(prompt(sid, "end"))
    watching.collect(lambda: "end" in watching.numbers(sid), "the end", 60)
    connections.append(watching.events(sid))
    check_connections(connections, posters)
    assert mortal.session(sid)["hook_count"] == len(away.numbers(sid)) + 2, "`before` and `end`"
    watching.close()
    away.close()


def check_connections(connections: list[list[Message]], posters: list[Poster]) -> None:
    """Never twice on one connection, always under one id, and in order where they are first
    seen.
    """
    for events in connections:
        assert len({event["id"] for event in events}) == len(events), "twice on one connection"
    seen = [event for events in connections for event in events]
    by_id = {event["id"]: event["payload"]["payload"]["number"] for event in seen}
    assert len(set(by_id.values())) == len(by_id), "one event came under two ids"
    first_seen = list(dict.fromkeys(event["payload"]["payload"]["number"] for event in seen))
    check([number for number in first_seen if number != "end"], posters)


def check(numbers: list[str], posters: list[Poster]) -> None:
    """Exactly the acknowledged events, at most one unacknowledged a poster (its last try), each
    poster's in order; `after` is last.
    """
    assert numbers[-1] == "after" and len(numbers) == len(set(numbers)), "doubled"
    for poster in posters:
        own = [number for number in numbers if number.startswith(f"{poster.number}-")]
        assert own[: len(poster.acknowledged)] == poster.acknowledged, (
            f"poster {poster.number}: acknowledged {poster.acknowledged}, delivered {own}"
        )
        assert len(own) <= len(poster.acknowledged) + 1


def test_an_orderly_stop(mortal: Bridge) -> None:
    """Issue, point 3: SIGTERM: sockets get a close frame, the process ends with 0 in time; after
    the start what was due is delivered (D27), joins are gone.
    """
    sid = new_session()
    mortal.accept(prompt(sid, 0))
    phone = mortal.phone().ready()
    phone.join(sid)
    mortal.accept(prompt(sid, 1))
    phone.wait_numbers(sid, [1])
    unauthenticated = mortal.phone()
    unauthenticated.connect()
    mortal.terminate()
    for socket in (phone, unauthenticated):
        code = socket.wait_closed(15)
        assert code not in (1006, 1011), f"no orderly close frame: {code}"
    assert mortal.ended() == 0, mortal.tail()
    mortal.start()
    phone.ready()
    phone.wait_numbers(sid, [1])
    phone.close()


@dataclass
class Before:
    """What was there when the process was killed; nothing had time to be put away."""

    session_id: str
    closed: str
    phone: Phone
    pairing: Pairing
    revoked: Pairing
    body: dict[str, Any]
    event_id: str


@pytest.fixture(scope="module")
def before(mortal: Bridge) -> Before:
    """Killed with a joined phone, a closed session, a device just revoked, an event just answered,
    and started again.
    """
    sid, closed = new_session(), new_session()
    mortal.accept(
        hook("SessionStart", sid), hook("SessionStart", closed), hook("SessionEnd", closed)
    )
    pairing, revoked = mortal.pairing(), mortal.pairing()
    mortal.phone(revoked).ready().close()
    phone = mortal.phone(pairing, device_id="bound").ready()
    phone.join(sid)
    mortal.accept(prompt(sid, 1), prompt(sid, 2), prompt(sid, 3))
    events = phone.wait_numbers(sid, [1, 2, 3])
    phone.ack(events[0], events[1])
    # a kill right after an ack may cost the ack: at least once. What a connection has begun with
    # stands
    phone.close()
    phone.ready()
    phone.wait_numbers(sid, [3])
    phone.join(sid)
    mortal.manage("revoke_device", revoked.name)
    body = prompt(new_session(), 1, event_id=new_id())
    (answer,) = mortal.accept(body)
    mortal.kill()
    assert phone.wait_closed() == 1006
    mortal.start()
    return Before(sid, closed, phone, pairing, revoked, body, answer["event_id"])


def test_sessions_stand(mortal: Bridge, before: Before) -> None:
    """D35: restarting the bridge never closes a session, nor opens a closed one; the dead process's
    joins are gone at once.
    """
    assert (
        mortal.session(before.session_id)["status"] == "active"
        and mortal.session(before.session_id)["hook_count"] == 4
    )
    assert mortal.session(before.session_id)["websocket_connected"] is False
    assert mortal.session(before.closed)["status"] == "closed"


def test_bindings_stand(mortal: Bridge, before: Before) -> None:
    """D15: a token that was bound is bound."""
    thief = mortal.phone(before.pairing, device_id="other")
    thief.connect()
    assert thief.auth()["payload"]["code"] == "AUTH_FAILED"


def test_revoked_stays_revoked(mortal: Bridge, before: Before) -> None:
    """D15: a crash does not give a token back."""
    phone = mortal.phone(before.revoked)
    phone.connect()
    assert phone.auth()["payload"]["code"] == "AUTH_FAILED"


def test_cursors_and_the_key_stand(mortal: Bridge, before: Before) -> None:
    """D27: it continues where it was; D19: under the same key (the phone checks its pin)."""
    before.phone.ready()
    before.phone.wait_numbers(before.session_id, [3])
    mortal.fence(before.phone)
    assert before.phone.numbers(before.session_id) == [3]
    before.phone.close()


def test_an_event_id_is_remembered(mortal: Bridge, before: Before) -> None:
    """D31: the answer was lost with the process; the retry is the same event."""
    (again,) = mortal.accept(before.body | {"timestamp": now()})
    assert again["event_id"] == before.event_id
    assert mortal.session(before.body["session_id"])["hook_count"] == 1
