"""Live delivery and the feed for all devices (D1, D4, D26, D28, D33; spec, Events)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.bridge import Bridge, eventually
from tests.conformance.delivery import away, nothing_more
from tests.conformance.https import assert_now, is_uuid, parse_time
from tests.conformance.phone import Phone
from tests.conformance.samples import EVENTS, hook, new_session, prompt

pytestmark = pytest.mark.usefixtures("database")


@pytest.mark.spec(
    "ws.agent_event",
    "envelope.type",
    "envelope.id",
    "envelope.timestamp",
    "envelope.payload",
    "event_post.broadcast",
)
def test_a_joined_client_gets_events_live(bridge: Bridge, sid: str, phone: Phone) -> None:
    """Spec: agent_event whose payload is the hook event; D1: with event, event_type, event_id; D4:
    a fresh UUID each.
    """
    bridge.watch(phone, sid)
    bodies = [prompt(sid, number) for number in range(1, 6)]
    answers = bridge.accept(*bodies)
    events = phone.wait_numbers(sid, range(1, 6))
    for event, body, answer in zip(events, bodies, answers, strict=True):
        payload = event["payload"]
        assert payload["event"] == payload["event_type"] == "UserPromptSubmit"
        assert payload["event_id"] == answer["event_id"]
        assert payload["session_id"] == sid and payload["payload"] == body["payload"]
        assert parse_time(payload["timestamp"]) == parse_time(body["timestamp"])
        assert is_uuid(event["id"])
        assert_now(event["timestamp"])
    assert len({event["id"] for event in events}) == 5


@pytest.mark.spec(
    "ws.agent_event",
    "event.UserPromptSubmit",
    "event.SubagentStop",
    "event.PreCompact",
    "event.Notification",
    "event.Stop",
)
def test_one_agent_event_per_hook_event(bridge: Bridge, sid: str, phone: Phone) -> None:
    """Spec: each accepted hook event produces one agent_event per connected client with a matching
    session, for each of the nine.
    """
    bridge.watch(phone, sid)
    bridge.accept(*[hook(event, sid) for event in EVENTS], prompt(sid, "last"))
    phone.collect(lambda: "last" in phone.numbers(sid), "the last event")
    assert [event["payload"]["event"] for event in phone.events(sid)] == [
        *EVENTS,
        "UserPromptSubmit",
    ]


def test_the_join_continues(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D22, D28: what waited comes after session_ready, before what is live; nothing twice, also
    when joined again.
    """
    bridge.accept(*[prompt(sid, number) for number in range(3)])
    phone.join(sid)
    bridge.accept(prompt(sid, 3))
    phone.wait_numbers(sid, range(4))
    types = [
        message["type"]
        for message in phone.messages
        if message["type"] in ("session_ready", "agent_event")
    ]
    assert types == ["session_ready"] + ["agent_event"] * 4
    phone.join(sid)
    bridge.accept(prompt(sid, 4))
    phone.wait_numbers(sid, range(5))
    nothing_more(bridge, phone, sid, list(range(5)))


@pytest.mark.spec("ws.session_end")
def test_leaving_and_coming_back(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D22: session_end only leaves an observed session (it goes on); joining again continues where
    this connection stands.
    """
    bridge.watch(phone, sid)
    bridge.accept(prompt(sid, 0))
    phone.wait_numbers(sid, [0])
    phone.leave(sid)
    assert bridge.session(sid)["status"] == "active"
    assert bridge.accept(prompt(sid, 1))[0]["broadcast_count"] == 0
    nothing_more(bridge, phone, sid, [0])
    phone.join(sid)
    bridge.accept(prompt(sid, 2))
    phone.wait_numbers(sid, [0, 1, 2])


@pytest.mark.spec("event_post.broadcast")
def test_broadcast_count(bridge: Bridge, sid: str) -> None:
    """D33: connections that had joined the session when the event was accepted; a connection counts
    once.
    """
    assert bridge.accept(prompt(sid, 0))[0]["broadcast_count"] == 0
    with bridge.phones(3) as (first, second, _):
        assert bridge.accept(prompt(sid, 1))[0]["broadcast_count"] == 0
        first.join(sid)
        assert bridge.accept(prompt(sid, 2))[0]["broadcast_count"] == 1
        second.join(sid)
        second.join(sid)
        assert bridge.accept(prompt(sid, 3))[0]["broadcast_count"] == 2
        second.close()
        eventually(lambda: bridge.accept(prompt(sid, 4))[0]["broadcast_count"] == 1)
        assert bridge.accept(prompt(new_session(), 5))[0]["broadcast_count"] == 0


def test_two_sessions_interleaved(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D26: one sequence numbers all rows: live rows of two feeds come in the order of their
    commits.
    """
    other = new_session()
    bridge.watch(phone, sid, other)
    bridge.accept(*[prompt((sid, other)[number % 3 == 0], number) for number in range(30)])
    phone.collect(lambda: len(phone.events(sid)) + len(phone.events(other)) >= 30, "30 events")
    numbers = [
        message["payload"]["payload"]["number"]
        for message in phone.messages
        if message["type"] == "agent_event" and message["payload"]["session_id"] in (sid, other)
    ]
    assert numbers == list(range(30))


def test_concurrent_posters(bridge: Bridge, sid: str) -> None:
    """D26: eight posters at once: every device sees every event once, each poster's in its order,
    and all devices the same rows (D27: with the same ids) in the same order.
    """
    bridge.accept(prompt(sid, "start"))
    with bridge.phones(2) as (first, second):
        first.join(sid)
        second.join(sid)

        def post(poster: int) -> None:
            bridge.accept(*[prompt(sid, f"{poster}-{number}") for number in range(15)])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(post, range(8)))
        for phone in (first, second):
            phone.collect(lambda phone=phone: len(phone.events(sid)) >= 120, "120 events", 30)  # type: ignore[misc]
        ids = [event["id"] for event in first.events(sid)]
        assert ids == [event["id"] for event in second.events(sid)] and len(ids) == 120
        for poster in range(8):
            assert [number for number in first.numbers(sid) if number.startswith(f"{poster}-")] == [
                f"{poster}-{number}" for number in range(15)
            ]


@pytest.mark.spec("ws.session_started", "event.SessionStart", "ws.session_end", "event.SessionEnd")
def test_what_every_device_is_told(bridge: Bridge, sid: str) -> None:
    """Spec, D26, D28: session_started and session_end, reason one of four, go to every device, live
    and once, whether it has joined or not.
    """
    bridge.accept(prompt(sid, "start"))
    with bridge.phones(2) as phones:
        phones[0].join(sid)
        bridge.accept(hook("SessionEnd", sid), hook("SessionStart", sid))
        bridge.fence(*phones)
        for phone in phones:
            end, start = [
                message
                for message in phone.messages
                if message["type"] in ("session_end", "session_started")
                and message["payload"]["session_id"] == sid
            ]
            assert (end["type"], start["type"]) == ("session_end", "session_started")
            assert end["payload"]["reason"] in ("user_request", "timeout", "error", "completed")
        assert phones[1].numbers(sid) == [], "D28: the session's own feed waits for the join"


def test_the_feed_for_all_while_away(bridge: Bridge, sid: str, device: Phone) -> None:
    """D26, D27: session_started and session_end are rows of a feed: sent again until acknowledged,
    with the same ids.
    """
    away(device)
    bridge.accept(hook("SessionStart", sid), hook("SessionEnd", sid))
    seen = []
    for _ in range(2):
        device.ready()
        seen.append(
            [
                device.expect(type_, session_id=sid)["id"]
                for type_ in ("session_started", "session_end", "notification")
            ]
        )
        device.collect(lambda: len(device.events(sid)) == 2, "the session's own events")
        last = list(device.messages)
        device.close()
    assert seen[0] == seen[1]
    device.ready()
    device.collect(lambda: len(device.events(sid)) == 2, "all once more")
    device.ack(*[message for message in last if message["type"] != "heartbeat_pong"])
    device.close()
    device.ready()
    bridge.fence(device)
    assert not [
        message for message in device.messages if message["payload"].get("session_id") == sid
    ]
