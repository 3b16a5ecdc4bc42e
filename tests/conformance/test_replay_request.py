"""replay_request and replay_buffer (D29)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import back, replay, replayed
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id, new_session, now, prompt

pytestmark = pytest.mark.spec("ws.replay_request", "ws.replay_buffer", "offline.ask")
on_both = pytest.mark.usefixtures("database")


@on_both
def test_replay_after_an_id(bridge: Bridge, sid: str, phone: Phone) -> None:
    """Whole envelopes with their ids, acknowledged or not."""
    bridge.watch(phone, sid)
    bridge.accept(*[prompt(sid, number) for number in range(6)])
    events = phone.wait_numbers(sid, range(6))
    phone.ack(*events)
    payload = replay(phone, sid, after_id=events[2]["id"])
    assert replayed(payload) == [3, 4, 5] and payload["complete"] is True
    for name in ("id", "payload"):
        assert [one[name] for one in payload["messages"]] == [one[name] for one in events[3:]]
    assert replayed(replay(phone, sid, after_id=events[5]["id"])) == []


@on_both
def test_replay_since_a_time(bridge: Bridge, sid: str, phone: Phone) -> None:
    """Also what a new device never got: it starts at the present, asking gives the past."""
    bridge.accept(*[prompt(sid, number) for number in range(3)])
    phone.join(sid)
    payload = replay(phone, sid, since=now(-120))
    assert replayed(payload) == [0, 1, 2] and payload["complete"] is True
    assert replayed(replay(phone, sid, since=now(60))) == []


@on_both
def test_replay_since_the_time_of_a_message(bridge: Bridge, sid: str, phone: Phone) -> None:
    """Of what was stored together, nothing that came after that message is left out."""
    bridge.watch(phone, sid)
    bridge.post_batch([prompt(sid, number) for number in range(100)])
    for number, event in enumerate(phone.wait_numbers(sid, range(100))):
        if number % 10 == 9:
            answer = replay(phone, sid, since=event["timestamp"])
            assert set(replayed(answer)) >= set(range(number + 1, 100)) and answer["complete"]


def test_replay_moves_nothing(bridge: Bridge, sid: str, device: Phone) -> None:
    """D27: live events go on, the backlog is still due."""
    bridge.accept(prompt(sid, 0))
    device.ready().join(sid)
    bridge.accept(prompt(sid, 1))
    device.wait_numbers(sid, [1])
    assert replayed(replay(device, sid, since=now(-120))) == [0, 1]
    bridge.accept(prompt(sid, 2))
    device.wait_numbers(sid, [1, 2])
    device.close()
    back(device, sid, [1, 2])


def test_replay_after_an_unknown_id(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D29: it cannot be answered as complete."""
    bridge.watch(phone, sid)
    for unknown in (new_id(), "not-a-uuid"):
        answer = phone.request("replay_request", {"session_id": sid, "after_id": unknown})
        if answer["type"] == "replay_buffer":
            assert answer["payload"]["complete"] is False
        else:
            assert answer["type"] == "error" and answer["payload"]["code"], answer


def test_replay_of_nonsense(bridge: Bridge, sid: str, phone: Phone) -> None:
    bridge.watch(phone, sid)
    wrong: list[dict[str, Any]] = [{"since": "x"}, {"since": 5}, {"after_id": 5}, {"after_id": []}]
    for how in wrong:
        answer = phone.request("replay_request", {"session_id": sid} | how)
        assert assert_refused(answer, "PROTO_INVALID_MESSAGE", True)["violations"]


def test_replay_of_another_session_id(bridge: Bridge, sid: str, phone: Phone) -> None:
    """It does not open this session's log at a wrong place, nor the other's."""
    other = new_session()
    bridge.watch(phone, sid, other)
    bridge.accept(prompt(sid, 1), prompt(other, "secret"), prompt(sid, 2))
    phone.collect(lambda: "secret" in phone.numbers(other) and 2 in phone.numbers(sid), "all")
    asked = {"session_id": sid, "after_id": phone.events(other)[-1]["id"]}
    answer = phone.request("replay_request", asked)
    if answer["type"] == "replay_buffer":
        assert "secret" not in replayed(answer["payload"])
        assert replayed(answer["payload"]) == [2] or answer["payload"]["complete"] is False
