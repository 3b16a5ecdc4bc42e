"""What people say to an agent that the bridge runs is seen by all (D52)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.agent_tools import http_say
from tests.conformance.agents import ask, begin, end, log_of, say, words
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error, assert_now, is_uuid
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_id


def prompts(messages: list[Message], session_id: str) -> list[dict[str, Any]]:
    return [
        message["payload"]["payload"]
        for message in messages
        if message["type"] == "agent_event" and message["payload"]["session_id"] == session_id
    ]


def finish(phone: Phone, session_id: str, turns: int) -> None:
    for _ in range(turns):
        phone.expect("stream_end", session_id=session_id)


def test_every_phone_sees_the_question(bridge: Bridge, phone: Phone) -> None:
    """Both phones get it, before the answer begins, and so does the one that comes back, and
    `replay_request`; the session counts no hook event.
    """
    sid = begin(bridge, phone)
    with bridge.phones(1) as (other,):
        other.join(sid)
        sent = phone.send("message", {"session_id": sid, "content": "one\ntwo", "role": "user"})
        finish(phone, sid, 1)
        finish(other, sid, 1)
        shown, begun = [m for m in phone.messages if m["type"] in ("agent_event", "stream_start")]
        assert (shown["type"], begun["type"]) == ("agent_event", "stream_start")
        assert [m for m in other.messages if m["type"] == "agent_event"] == [shown]
        event = shown["payload"]
        assert event["event"] == event["event_type"] == "UserPromptSubmit"
        assert is_uuid(event["event_id"]) and event["session_id"] == sid
        assert_now(event["timestamp"])
        assert event["payload"] == {
            "prompt": "one\ntwo",
            "device": event["payload"]["device"] or "a name",
            "source": "device",
            "message_id": sent,
            "queued": False,
        }
        assert shown in log_of(other, sid)
    view = bridge.session(sid)
    assert (view["hook_count"], view["recent_events"], view["title"]) == (0, [], "one")
    with bridge.phones(1) as (third,):
        third.join(sid)
        assert shown in third.expect("replay_buffer")["payload"]["messages"]
    end(phone, sid)


def test_what_waits_says_so(bridge: Bridge, phone: Phone) -> None:
    """`queued` is true while a turn runs, and of all that waits behind it; each is shown when it is
    accepted, not when it is answered.
    """
    sid = begin(bridge, phone)
    for text in ("/sleep 1", "second", "third"):
        say(phone, sid, text)
    finish(phone, sid, 3)
    ask(phone, sid, "fourth")
    shown = [(one["prompt"], one["queued"]) for one in prompts(phone.messages, sid)]
    assert shown == [("/sleep 1", False), ("second", True), ("third", True), ("fourth", False)]
    said = words(phone.messages)
    assert said.index("second") < said.index("third") < said.index("fourth"), "answered in order"
    types = [m["type"] for m in phone.messages if m["type"] in ("agent_event", "stream_end")]
    assert types == ["agent_event"] * 3 + ["stream_end"] * 3 + ["agent_event", "stream_end"]
    end(phone, sid)


@pytest.mark.spec("http.session.events", "code.SESSION_CLOSED")
def test_over_http(bridge: Bridge, phone: Phone, sid: str) -> None:
    """Spec and D39: 202 accepted true, 404, 409. The answer's `event_id` is the prompt's
    `message_id`; an administrator has no device.
    """
    body = {"type": "user_message", "content": "by HTTP"}
    assert_error(http_say(bridge, sid, body), 404, "SESSION_NOT_FOUND")
    begin(bridge, phone, sid)
    for token in (phone.token, bridge.admin_token):
        answer = http_say(bridge, sid, body, token)
        told = answer.json()
        assert (answer.status, told["accepted"], told["session_id"]) == (202, True, sid)
        finish(phone, sid, 1)
        shown = prompts(phone.messages, sid)[-1]
        assert (shown["source"], shown["message_id"]) == ("http", told["event_id"])
        assert (shown["device"] is None) is (token == bridge.admin_token)
    end(phone, sid)
    assert_error(http_say(bridge, sid, body), 409, "SESSION_CLOSED")


@pytest.mark.spec("client.repeat", "offline.flush")
def test_once(bridge: Bridge, phone: Phone) -> None:
    """D31: what is sent again, on the next connection too, is neither shown nor answered again;
    what nobody takes is not shown.
    """
    sid, id_ = begin(bridge, phone), new_id()
    body = {"session_id": sid, "content": "only once", "role": "user"}
    for _ in range(2):
        phone.send("message", body, id=id_)
    finish(phone, sid, 1)
    phone.close()
    phone.ready()
    phone.join(sid)
    phone.send("message", body, id=id_)
    ask(phone, sid, "something else")
    log = log_of(phone, sid)
    assert [one["prompt"] for one in prompts(log, sid)] == ["only once", "something else"]
    assert len([message for message in log if message["type"] == "stream_start"]) == 2
    end(phone, sid)
    refused = phone.request("message", body | {"content": "too late"})
    assert refused["payload"]["code"] == "SESS_CLOSED"
    assert prompts(phone.messages, sid)[-1]["prompt"] == "something else"
