"""The forwarder of another machine: limits, waiting, refusals, keys and clocks (D47)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hooks_app.producer import forwarder as forwarders
from hooks_app.producer.forwarder import Forwarder
from hooks_app.producer.spool import spool_status
from hooks_app.producer.spool_queue import STALE_RETRIES
from hooks_app.producer.standalone import token_from
from tests.hooks.conftest import Make, prompts, put, run_until_empty, waiting
from tests.hooks.scripted import TOKEN, ScriptedBridge, answer, cut_after_taking
from tests.hooks.test_forwarder import BATCH, EVENT
from tests.servers import wait_until


def test_a_connection_closed_while_idle_is_opened_again_at_once(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    put(spool, "1")
    forwarder.run_once()
    bridge.script.append(cut_after_taking)
    put(spool, "2")
    assert forwarder.run_once() == 1
    assert prompts(bridge) == ["1", "2"]
    assert bridge.connections == 2


# -- waiting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 401, 302])
def test_what_may_pass_is_waited_for(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, status: int
) -> None:
    bridge.script.append(answer(status))
    put(spool, "1")
    assert forwarder.run_once() == 0
    assert str(status) in forwarder.trouble and waiting(spool) == ["1"]
    run_until_empty(forwarder, spool)
    assert prompts(bridge) == ["1"] and len(bridge.requests) == 2  # not hammered


def test_waits_grow(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarders, "BACKOFF_SECONDS", (0.02, 30.0))
    bridge.script.extend([answer(500)] * 6)
    put(spool, "1")
    at: list[float] = []
    began = time.monotonic()

    def sent() -> bool:
        forwarder.run_once()
        if len(bridge.requests) > len(at):
            at.append(time.monotonic() - began)
        return not waiting(spool)

    wait_until(sent, "the event was taken")
    # at least half of 0.02, 0.04, 0.08, 0.16, 0.32 and 0.64
    assert len(at) == 7 and at[-1] > 0.63 and at[-1] - at[-2] > 0.32


@pytest.mark.parametrize(
    ("status", "headers", "body"), [(429, {"Retry_After": "1"}, {}), (503, {}, {"retry_after": 1})]
)
def test_retry_after_is_honoured(
    spool: Path,
    bridge: ScriptedBridge,
    forwarder: Forwarder,
    status: int,
    headers: dict[str, str],
    body: dict[str, int],
) -> None:
    refusals = 2 if status == 429 else 1  # a limited event is tried once more, in a batch
    bridge.script.extend([answer(status, body, **headers)] * refusals)
    put(spool, "1")
    began = time.monotonic()
    run_until_empty(forwarder, spool)
    assert time.monotonic() - began >= 1
    assert len(bridge.requests) == refusals + 1


def test_when_single_events_are_limited_batches_go_on(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.script.append(answer(429, Retry_After="60"))
    put(spool, "1")
    assert forwarder.run_once() == 1
    assert bridge.requests == [(EVENT, 1), (BATCH, 1)]
    put(spool, "2")
    assert forwarder.run_once() == 0  # the next small batch has to wait
    put(spool, "3", hook_event_name="PermissionRequest", tool_name="Bash", tool_input={})
    assert forwarder.run_once() == 2  # a person is waited for: no gap


# -- the token and the key -------------------------------------------------------------------------


def test_the_token_file_may_be_replaced(
    spool: Path, bridge: ScriptedBridge, make_forwarder: Make, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old-token")
    forwarder = make_forwarder(token_from(token))
    put(spool, "1")
    assert forwarder.run_once() == 0
    token.write_text(TOKEN + "\n")
    run_until_empty(forwarder, spool)
    token.unlink()
    put(spool, "2")
    assert forwarder.run_once() == 0
    assert waiting(spool) == ["2"] and prompts(bridge) == ["1"]


@pytest.mark.parametrize("pin", ["00" * 32, "short"])
def test_another_key_gets_not_a_byte(
    spool: Path, bridge: ScriptedBridge, make_forwarder: Make, pin: str
) -> None:
    forwarder = make_forwarder(pin=pin)
    put(spool, "1")
    forwarder.run_once()
    assert "pinned" in forwarder.trouble
    assert (bridge.requests, waiting(spool)) == ([], ["1"])


def test_without_a_pin_an_unknown_authority_is_refused(
    spool: Path, bridge: ScriptedBridge, make_forwarder: Make
) -> None:
    forwarder = make_forwarder(pin="")
    put(spool, "1")
    forwarder.run_once()
    assert "CERTIFICATE" in forwarder.trouble.upper()
    assert bridge.requests == []


# -- refusals --------------------------------------------------------------------------------------


def test_what_is_refused_for_good_is_set_aside_and_said_once(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.refuse = lambda event: event["payload"].get("prompt") == "2"
    for number in range(1, 4):
        put(spool, str(number), time.time() - 100 + number)
    run_until_empty(forwarder, spool)
    assert prompts(bridge) == ["1", "3", "Notification"]
    notice = bridge.events[-1]
    payload = notice["payload"]
    assert (notice["session_id"], payload["level"]) == ("s", "error")
    assert payload["notification_type"] == "hook_rejected" and "scripted" in payload["message"]
    status = spool_status(spool)
    assert (status["waiting"], status["rejected"]) == (0, 1)
    assert status["reasons"][0]["reason"] == "payload.x: scripted"


def test_a_refused_notice_makes_no_further_notice(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.refuse = lambda event: True
    put(spool, "1")
    for _ in range(4):
        forwarder.run_once()
    assert len(bridge.requests) == 2
    assert waiting(spool) == []


def test_a_batch_refused_as_a_whole_is_taken_apart(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    """One event that spoils the body for the others is found by halving; all the others arrive, in
    order.
    """

    def spoilt(
        held: ScriptedBridge, path: str, events: list[dict[str, Any]]
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        held.script.append(spoilt)
        if any(event["payload"].get("prompt") == "7" for event in events):
            return 400, {}, {"code": "HOOK_INVALID_PAYLOAD", "message": "not usable JSON"}
        held.take(events)
        return 200, {}, {"received": True, "errors": []}

    bridge.script.append(spoilt)
    for number in range(20):
        put(spool, str(number), time.time() - 100 + number)
    assert forwarder.run_once() == 19
    assert prompts(bridge) == [str(number) for number in range(20) if number != 7]
    assert spool_status(spool)["reasons"][0]["reason"] == "not usable JSON"
    assert len(bridge.requests) < 20


def test_a_bad_request_about_the_host_is_not_the_events_fault(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.script.append(answer(400, {"code": "HOST_NOT_ALLOWED"}))
    put(spool, "1")
    forwarder.run_once()
    assert waiting(spool) == ["1"]


# -- clocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("skew", "count"), [(3600.0, 1), (-3600.0, 3)])
def test_a_wrong_clock_is_put_right_with_the_servers_time(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, skew: float, count: int
) -> None:
    bridge.skew = skew
    for number in range(count):
        put(spool, str(number), time.time() - 10 + number)
    assert forwarder.run_once() == count
    assert prompts(bridge) == [str(number) for number in range(count)]
    assert all("occurred_at" in event for event in bridge.events)
    put(spool, "9")
    requests = len(bridge.requests)
    assert forwarder.run_once() == 1
    assert len(bridge.requests) == requests + 1  # learnt once


def test_a_time_that_stays_stale_does_not_go_round_for_ever(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    stale = answer(400, {"code": "HOOK_STALE_TIMESTAMP", "message": "stale"})
    bridge.script.extend([stale] * 10)
    put(spool, "1")
    forwarder.run_once()
    assert spool_status(spool)["rejected"] == 1
    assert len(bridge.requests) == STALE_RETRIES + 1
