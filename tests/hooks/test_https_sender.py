"""The forwarder of another machine: limits, waiting, refusals, keys and clocks (D47)."""

import time

import pytest

from hooks_app.producer import https_sender
from hooks_app.producer.spool import spool_status
from hooks_app.producer.spool_queue import STALE_RETRIES
from tests.hooks.conftest import Way
from tests.hooks.scripted import Action, Answer, Events, ScriptedBridge, answer
from tests.hooks.test_forwarder import BATCH, EVENT


@pytest.mark.parametrize(
    "refusal", [answer(500), answer(401), answer(302), answer(400, {"code": "HOST_NOT_ALLOWED"})]
)
def test_what_may_pass_is_waited_for(way: Way, refusal: Action) -> None:
    way.bridge.script.append(refusal)
    way.put("1")
    assert way.run() == 0
    assert "the bridge answered" in way.forwarder.trouble and way.waiting() == ["1"]
    way.run_until_empty()
    assert way.prompts() == ["1"] and len(way.bridge.requests) == 2  # not hammered


@pytest.mark.parametrize(
    "refusals", [[answer(429, retry_after="1")] * 2, [answer(503, retry_after="1")]]
)
def test_retry_after_is_honoured(way: Way, refusals: list[Action]) -> None:
    """A limited event is tried once more, in a batch."""
    way.bridge.script.extend(refusals)
    way.put("1")
    began = time.monotonic()
    way.run_until_empty()
    assert time.monotonic() - began >= 1
    assert len(way.bridge.requests) == len(refusals) + 1


def test_when_single_events_are_limited_batches_go_on(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(https_sender, "BATCH_GAP_SECONDS", 3600.0)
    way.bridge.script.append(answer(429, retry_after="600"))
    way.put("1")
    assert way.run() == 1
    assert way.bridge.requests == [(EVENT, 1), (BATCH, 1)]
    way.put("2")
    assert way.run() == 0  # the next small batch has to wait
    way.put("3", hook_event_name="PermissionRequest", tool_name="Bash", tool_input={})
    assert way.run() == 2  # a person is waited for: no gap


@pytest.mark.parametrize(
    ("pin", "why"), [("00" * 32, "PINNED"), ("short", "PINNED"), ("", "CERTIFICATE")]
)
def test_another_key_or_an_unknown_authority_gets_not_a_byte(way: Way, pin: str, why: str) -> None:
    way.forwarder = way.make(pin=pin)
    way.put("1")
    way.run()
    assert why in way.forwarder.trouble.upper()
    assert (way.bridge.requests, way.waiting()) == ([], ["1"])


def test_what_is_refused_for_good_is_set_aside_and_said_once(way: Way) -> None:
    way.bridge.refuse = lambda event: event["payload"].get("prompt") == "2"
    way.put_many(range(1, 4))
    way.run_until_empty()
    assert way.prompts() == ["1", "3", "Notification"]
    notice = way.bridge.events[-1]
    payload = notice["payload"]
    assert (notice["session_id"], payload["level"]) == ("s", "error")
    assert payload["notification_type"] == "hook_rejected" and "scripted" in payload["message"]
    status = spool_status(way.spool)
    assert (status["waiting"], status["rejected"]) == (0, 1)
    assert status["reasons"][0]["reason"] == "scripted"
    way.bridge.refuse = lambda event: True
    way.put("4")
    way.run_until_empty()
    assert way.run() == 0 and way.waiting() == [], "a refused notice makes no further notice"


def test_a_batch_refused_as_a_whole_is_taken_apart(way: Way) -> None:
    """One event that spoils the body is found by halving; the others arrive, in order."""

    def spoilt(held: ScriptedBridge, events: Events) -> Answer:
        held.script.append(spoilt)
        if any(event["payload"].get("prompt") == "7" for event in events):
            return 400, {}, {"code": "HOOK_INVALID_PAYLOAD", "message": "not usable JSON"}
        held.take(events)
        return 200, {}, {"received": True, "errors": []}

    way.bridge.script.append(spoilt)
    way.put_many(range(20))
    assert way.run() == 19
    assert way.prompts() == [str(number) for number in range(20) if number != 7]
    assert spool_status(way.spool)["reasons"][0]["reason"] == "not usable JSON"
    assert len(way.bridge.requests) < 20


@pytest.mark.parametrize(("skew", "count"), [(3600.0, 1), (-3600.0, 3)])
def test_a_wrong_clock_is_put_right_with_the_servers_time(
    way: Way, skew: float, count: int
) -> None:
    way.bridge.skew = skew
    way.put_many(range(count))
    assert way.run() == count
    assert way.prompts() == [str(number) for number in range(count)]
    assert all("occurred_at" in event for event in way.bridge.events)
    way.put("9")
    requests = len(way.bridge.requests)
    assert way.run() == 1
    assert len(way.bridge.requests) == requests + 1  # learnt once


def test_a_time_that_stays_stale_does_not_go_round_for_ever(way: Way) -> None:
    stale = answer(400, {"code": "HOOK_STALE_TIMESTAMP", "message": "stale"})
    way.bridge.script.extend([stale] * 10)
    way.put("1")
    way.run()
    assert spool_status(way.spool)["rejected"] == 1
    assert len(way.bridge.requests) == STALE_RETRIES + 1
