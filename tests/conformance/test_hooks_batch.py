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
    assert body["received"] is True
    assert body["count"] == len(events) == body["accepted"] + body["rejected"], body
    assert len(body["event_ids"]) == body["accepted"] and all(map(is_uuid, body["event_ids"]))
    return body


@on_both
@pytest.mark.spec("http.hooks.batch", "batch.result")
def test_a_batch_in_order(bridge: Bridge, sid: str, phone: Phone) -> None:
    """The ids are those of the agent_events."""
    bridge.watch(phone, sid)
    body = accepted(bridge, [prompt(sid, number) for number in range(50)])
    assert body["accepted"] == 50 and body.get("errors", []) == []
    events = phone.wait_numbers(sid, range(50))
    assert [event["payload"]["event_id"] for event in events] == body["event_ids"]


@on_both
@pytest.mark.spec("batch.errors")
def test_bad_ones_in_the_middle(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D32: the good ones are stored in order, errors names the others by index; all of them refused
    is still an answered batch.
    """
    bridge.watch(phone, sid)
    risk = PAYLOADS["PreToolUse"] | {"risk_level": "none"}
    bad: dict[int, tuple[Any, str]] = {
        1: (hook("Stop", sid, timestamp=now(-400)), "HOOK_STALE_TIMESTAMP"),
        2: ("not an object", "HOOK_INVALID_PAYLOAD"),
        4: (hook("PreToolUse", sid, risk), "HOOK_INVALID_PAYLOAD"),
        5: (hook("Stop", ""), "HOOK_INVALID_SESSION_ID"),
        6: (hook("Stop", sid, event="Boom"), "HOOK_INVALID_EVENT_TYPE"),
        8: (None, "HOOK_INVALID_PAYLOAD"),
    }
    events = [bad[index][0] if index in bad else prompt(sid, index) for index in range(10)]
    body = accepted(bridge, events)
    assert (body["accepted"], body["rejected"]) == (4, 6)
    rules = {error["index"]: error["validation_errors"][0]["rule"] for error in body["errors"]}
    assert rules == {index: rule for index, (_, rule) in bad.items()} and list(rules) == sorted(bad)
    phone.wait_numbers(sid, [0, 3, 7, 9])
    unknown = new_session()
    body = accepted(bridge, [hook("Stop", unknown, timestamp="x"), {}])
    assert body["accepted"] == 0 and body["event_ids"] == [] and len(body["errors"]) == 2
    assert not bridge.knows(unknown)


@on_both
@pytest.mark.spec("hook.event_id")
def test_the_same_event_id_in_one_batch(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D31: stored and sent once, also against an earlier post; the first answer's ids."""
    known, twice = new_id(), new_id()
    first = bridge.accept(prompt(sid, 0, event_id=known))[0]["event_id"]
    phone.join(sid)
    ids = (twice, None, twice, known, None)
    events = [prompt(sid, number, event_id=id_) for number, id_ in enumerate(ids, 1)]
    body = accepted(bridge, events)
    assert body["accepted"] == 5
    assert body["event_ids"][0] == body["event_ids"][2] and body["event_ids"][3] == first
    assert len(set(body["event_ids"])) == 4
    phone.collect(lambda: 5 in phone.numbers(sid), "event 5")
    assert [number for number in phone.numbers(sid) if number != 0] == [1, 2, 5]


@on_both
def test_a_batch_repeated(bridge: Bridge, sid: str) -> None:
    """D31: nothing is doubled, the answer is the same."""
    events = [prompt(sid, number, event_id=new_id()) for number in range(20)]
    first, second = accepted(bridge, events), accepted(bridge, events)
    assert first["event_ids"] == second["event_ids"]
    assert bridge.session(sid)["hook_count"] == 20


def test_several_sessions_in_one_batch(bridge: Bridge, sid: str, phone: Phone) -> None:
    """Each session's feed keeps its order."""
    other = new_session()
    bridge.watch(phone, sid, other)
    accepted(bridge, [prompt((sid, other)[number % 2], number) for number in range(20)])
    phone.wait_numbers(sid, range(0, 20, 2))
    phone.wait_numbers(other, range(1, 20, 2))


def test_500_are_taken_and_501_are_not(bridge: Bridge, sid: str) -> None:
    events = [prompt(sid, number) for number in range(501)]
    assert_error(bridge.post_batch(events), 400, "HOOK_INVALID_PAYLOAD")
    assert not bridge.knows(sid)
    assert accepted(bridge, events[:500])["accepted"] == 500
    assert bridge.session(sid)["hook_count"] == 500


def test_what_is_no_batch(bridge: Bridge, sid: str) -> None:
    """With and without the prefix (D2)."""
    wrong: list[Any] = [{}, {"events": None}, {"events": {}}, {"events": "x"}, [], 5]
    for path in ("/hooks/batch", "/api/v1/hooks/batch"):
        for body in wrong:
            answer = bridge.https().post(path, token=bridge.hook_token, json_body=body)
            assert_error(answer, 400, "HOOK_INVALID_PAYLOAD")
        right = {"events": [prompt(sid, 1)]}
        answer = bridge.https().post(path, token=bridge.hook_token, json_body=right)
        assert answer.status == 200, answer
