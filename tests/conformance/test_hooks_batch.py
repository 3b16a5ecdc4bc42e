"""POST /hooks/batch (spec, Endpoints; D31, D32)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error, is_uuid
from tests.conformance.phone import Phone
from tests.conformance.samples import PAYLOADS, hook, new_id, new_session, now, prompt

on_both = pytest.mark.usefixtures("database")


def accepted(bridge: Bridge, events: list[Any]) -> dict[str, Any]:
    answer = bridge.post_batch(events)
    assert answer.status == 200, answer
    body = dict(answer.json())
    assert (
        body["received"] is True
        and body["count"] == len(events) == body["accepted"] + body["rejected"]
    ), body
    assert len(body["event_ids"]) == body["accepted"]
    assert all(is_uuid(event_id) for event_id in body["event_ids"])
    return body


@on_both
@pytest.mark.spec("http.hooks.batch", "batch.result")
def test_a_batch_in_order(bridge: Bridge, sid: str, phone: Phone) -> None:
    """Spec: 200 {received, count, accepted, rejected, event_ids}; D32: stored in order; the ids are
    those of the agent_events.
    """
    bridge.watch(phone, sid)
    body = accepted(bridge, [prompt(sid, number) for number in range(50)])
    assert body["accepted"] == 50 and body.get("errors", []) == []
    events = phone.wait_numbers(sid, range(50))
    assert [event["payload"]["event_id"] for event in events] == body["event_ids"]


@on_both
@pytest.mark.spec("batch.errors")
def test_bad_ones_in_the_middle(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D32: validated one by one: the good ones are stored in order, errors names the others by
    index, with D8's violations. All of them refused is still an answered batch.
    """
    bridge.watch(phone, sid)
    bad: dict[int, tuple[Any, str]] = {
        1: (hook("Stop", sid, timestamp=now(-400)), "HOOK_STALE_TIMESTAMP"),
        2: ("not an object", "HOOK_INVALID_PAYLOAD"),
        4: (
            hook("PreToolUse", sid, PAYLOADS["PreToolUse"] | {"risk_level": "none"}),
            "HOOK_INVALID_PAYLOAD",
        ),
        5: (hook("Stop", ""), "HOOK_INVALID_SESSION_ID"),
        6: (hook("Stop", sid, event="Boom"), "HOOK_INVALID_EVENT_TYPE"),
        8: (None, "HOOK_INVALID_PAYLOAD"),
    }
    events = [bad[index][0] if index in bad else prompt(sid, index) for index in range(10)]
    body = accepted(bridge, events)
    assert (body["accepted"], body["rejected"]) == (4, 6)
    assert [error["index"] for error in body["errors"]] == sorted(bad)
    for error in body["errors"]:
        rules = [violation["rule"] for violation in error["validation_errors"]]
        assert rules and rules[0] == bad[error["index"]][1], error
    phone.wait_numbers(sid, [0, 3, 7, 9])
    unknown = new_session()
    body = accepted(bridge, [hook("Stop", unknown, timestamp="x"), {}])
    assert body["accepted"] == 0 and body["event_ids"] == [] and len(body["errors"]) == 2
    assert not bridge.knows(unknown)


@on_both
@pytest.mark.spec("hook.event_id")
def test_the_same_event_id_in_one_batch(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D31: stored and sent once, also inside one batch and against an earlier post; the ids of the
    answer are the first answer's.
    """
    known, twice = new_id(), new_id()
    first = bridge.accept(prompt(sid, 0, event_id=known))[0]["event_id"]
    phone.join(sid)
    events = [
        prompt(sid, 1, event_id=twice),
        prompt(sid, 2),
        prompt(sid, 3, event_id=twice),
        prompt(sid, 4, event_id=known),
        prompt(sid, 5),
    ]
    body = accepted(bridge, events)
    assert body["accepted"] == 5
    assert body["event_ids"][0] == body["event_ids"][2] and body["event_ids"][3] == first
    assert len(set(body["event_ids"])) == 4
    assert [
        number
        for number in (event["payload"]["payload"]["number"] for event in _rest(phone, sid, 5))
        if number != 0
    ] == [1, 2, 5]


def _rest(phone: Phone, session_id: str, last: int) -> list[Any]:
    phone.collect(lambda: last in phone.numbers(session_id), f"event {last}")
    return phone.events(session_id)


@on_both
def test_a_batch_repeated(bridge: Bridge, sid: str) -> None:
    """D31: a producer that got no answer sends the whole batch again: nothing is doubled, the
    answer is the same.
    """
    events = [prompt(sid, number, event_id=new_id()) for number in range(20)]
    first, second = accepted(bridge, events), accepted(bridge, events)
    assert first["event_ids"] == second["event_ids"]
    assert bridge.session(sid)["hook_count"] == 20


def test_several_sessions_in_one_batch(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D32, D28: a batch may mix sessions; each session's feed keeps its order."""
    other = new_session()
    bridge.watch(phone, sid, other)
    accepted(bridge, [prompt((sid, other)[number % 2], number) for number in range(20)])
    phone.wait_numbers(sid, range(0, 20, 2))
    phone.wait_numbers(other, range(1, 20, 2))


def test_500_are_taken_and_501_are_not(bridge: Bridge, sid: str) -> None:
    """D32: up to 500; more: 400 HOOK_INVALID_PAYLOAD, nothing half stored."""
    events = [prompt(sid, number) for number in range(501)]
    assert_error(bridge.post_batch(events), 400, "HOOK_INVALID_PAYLOAD")
    assert not bridge.knows(sid)
    assert accepted(bridge, events[:500])["accepted"] == 500
    assert bridge.session(sid)["hook_count"] == 500


def test_what_is_no_batch(bridge: Bridge, sid: str) -> None:
    """Spec: {events: array}; D8: 400 HOOK_INVALID_PAYLOAD; D2: with and without the prefix."""
    wrong: list[Any] = [{}, {"events": None}, {"events": {}}, {"events": "x"}, [], 5]
    for path in ("/hooks/batch", "/api/v1/hooks/batch"):
        for body in wrong:
            answer = bridge.https().post(path, token=bridge.hook_token, json_body=body)
            assert_error(answer, 400, "HOOK_INVALID_PAYLOAD")
        right = {"events": [prompt(sid, 1)]}
        answer = bridge.https().post(path, token=bridge.hook_token, json_body=right)
        assert answer.status == 200, answer
