"""Live delivery and the feed for all devices (D1, D4, D26, D28, D33; spec, Events)."""

import pytest

from tests.conformance.bridge import Bridge, eventually
from tests.conformance.https import assert_now, is_uuid, parse_time
from tests.conformance.phone import Phone
from tests.conformance.samples import EVENTS, hook, new_session, prompt

pytestmark = pytest.mark.usefixtures("database")


@pytest.mark.spec(
    "ws.agent_event envelope.type envelope.id envelope.timestamp envelope.payload",
    "event_post.broadcast event.UserPromptSubmit event.SubagentStop event.PreCompact",
    "event.Notification event.Stop",
)
def test_a_joined_client_gets_events_live(bridge: Bridge, sid: str, phone: Phone) -> None:
    """The payload is the hook event; D1: with event, event_type, event_id; D4: a fresh id each."""
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
    bridge.accept(*[hook(event, sid) for event in EVENTS], prompt(sid, "last"))
    phone.collect(lambda: "last" in phone.numbers(sid), "the last event")
    told = [event["payload"]["event"] for event in phone.events(sid)[5:]]
    assert told == [*EVENTS, "UserPromptSubmit"]


@pytest.mark.spec("event_post.broadcast")
def test_broadcast_count(bridge: Bridge, sid: str) -> None:
    """D33: the connections that have joined, each once; D22: leaving ends no observed session."""

    def count(session_id: str) -> int:
        return int(bridge.accept(prompt(session_id, 1))[0]["broadcast_count"])

    assert count(sid) == 0
    with bridge.phones(3) as (first, second, _):
        assert count(sid) == 0
        first.join(sid)
        assert count(sid) == 1
        second.join(sid)
        second.join(sid)
        assert count(sid) == 2
        first.leave(sid)
        assert count(sid) == 1 and bridge.session(sid)["status"] == "active"
        first.join(sid)
        second.close()
        eventually(lambda: count(sid) == 1)
        assert count(new_session()) == 0


@pytest.mark.spec("ws.session_started", "event.SessionStart", "ws.session_end", "event.SessionEnd")
def test_what_every_device_is_told(bridge: Bridge, sid: str) -> None:
    """session_started and session_end, live and once, whether it has joined or not."""
    bridge.accept(prompt(sid, "start"))
    with bridge.phones(2) as phones:
        phones[0].join(sid)
        bridge.accept(hook("SessionEnd", sid), hook("SessionStart", sid))
        bridge.fence(*phones)
        kinds = ("session_end", "session_started")
        for phone in phones:
            told = [message for message in phone.messages if message["type"] in kinds]
            end, start = [one for one in told if one["payload"]["session_id"] == sid]
            assert (end["type"], start["type"]) == kinds
            assert end["payload"]["reason"] in ("user_request", "timeout", "error", "completed")
        assert phones[1].numbers(sid) == [], "D28: the session's own feed waits for the join"
