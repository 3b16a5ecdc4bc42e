"""Asking and deciding (spec, Approval decision; D13, D21, D28, D37, D38, D40)."""

import itertools
from typing import Any

import pytest

from tests.conformance.agents import begin, end, log_of, tool
from tests.conformance.approvals import (
    APPROVAL_FIELDS,
    ask,
    assert_recorded,
    assert_stands,
    decide,
    decided,
    greeted,
    notifications,
    of,
    pending,
    post,
    pre,
)
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_now, is_uuid
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, prompt

on_both = pytest.mark.usefixtures("database")


@pytest.mark.spec("ws.approval_required", "record.*", "event.PreToolUse")
def test_the_question(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: source hooks, what the agent wants as it said it, a description that is never empty."""
    calls: dict[str, Any] = {
        "low": {},
        "medium": {"command": " \n"},
        "high": {"command": "rm -r build", "timeout": None, "env": {"ä": [1, 2.5, True]}},
        "critical": {"a": "b" * 200_000},
    }
    for risk, params in calls.items():
        more = {"tool_call_id": risk, "reasoning": f"because {risk}"}
        bridge.accept(pre(sid, params, approval=True, risk=risk, **more))
        message = joined.expect("approval_required", session_id=sid)
        payload = message["payload"]
        assert is_uuid(message["id"]) and set(payload) >= APPROVAL_FIELDS
        assert (payload["tool_call_id"], payload["risk_level"]) == (risk, risk)
        assert (payload["tool"], payload["params"]) == ("Bash", params)
        assert (payload["source"], payload["reasoning"]) == ("hooks", more["reasoning"])
        assert isinstance(payload["description"], str) and payload["description"].strip()
    bridge.fence(joined)
    assert not of(joined, "tool_call", sid), "asked or told, not both"


@pytest.mark.spec(
    "ws.approval_response ws.approval_recorded decision.approved decision.rejected",
    "decision.modified decision.logged wscode.TOOL_ALREADY_DECIDED",
)
@on_both
def test_the_first_decision_wins(bridge: Bridge, sid: str) -> None:
    """D38: a different one later is told which stands; D13: each device is told, joined or not."""
    one, two = bridge.pairing(), bridge.pairing()
    winner, loser = bridge.phone(one).ready(), bridge.phone(two).ready()
    bridge.watch(winner, sid)
    stands = {}
    for first, second in itertools.pairwise(("approved", "rejected", "modified", "modified")):
        call_id = ask(bridge, winner, sid)
        stands[call_id] = first
        answer = decide(winner, sid, call_id, first, {"a": 1} if first == "modified" else None)
        assert_now(assert_recorded(answer, sid, call_id, first)["decided_at"])
        assert_stands(decide(loser, sid, call_id, second), first, one.name)
        assert_stands(decide(winner, sid, call_id, second), first, one.name)
        assert not of(loser, "approval_required", sid), "D28: live rows of joined sessions only"
        bridge.fence(winner, loser)
        assert decided(winner, sid) == decided(loser, sid) == stands
        assert pending(bridge, sid) == []
    winner.close()
    loser.close()


def test_what_needs_no_approval_cannot_be_approved(bridge: Bridge, sid: str, joined: Phone) -> None:
    """A later question about it is not answered by the attempt."""
    bridge.accept(pre(sid, tool_call_id="x"))
    answer = decide(joined, sid, "x", "approved")
    codes = ("TOOL_CALL_NOT_FOUND", "TOOL_ALREADY_DECIDED")
    assert answer["type"] == "error" and answer["payload"]["code"] in codes, answer
    bridge.accept(pre(sid, approval=True, permission_request=True))
    assert pending(bridge, sid) == ["x"]


@on_both
def test_nothing_is_decided_by_a_reused_id(bridge: Bridge, sid: str, joined: Phone) -> None:
    """While the decided call is still open, too; only an equal open one is that call."""
    ask(bridge, joined, sid, tool_call_id="x")
    decide(joined, sid, "x", "approved")
    second = ask(bridge, joined, sid, {"command": "rm -r /"}, tool_call_id="x")
    bridge.accept(pre(sid, approval=True, tool_call_id="x"))
    assert second != "x" and pending(bridge, sid) == [second]
    assert_recorded(decide(joined, sid, second, "rejected"), sid, second, "rejected")


def asked(phone: Phone, session_id: str) -> list[str]:
    return [message["id"] for message in of(phone, "approval_required", session_id)]


@pytest.mark.spec("offline.pending")
def test_again_and_once_on_each_connection(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D28: with the same id, also when it was acknowledged, until it is decided: the backlog, the
    greeting and the join bring one question.
    """
    with bridge.phones(1) as (late,):
        call_id = ask(bridge, joined, sid)
        late.join(sid)
        late.expect("approval_required", session_id=sid, tool_call_id=call_id)
    first = asked(joined, sid)
    for expected in (first, first, []):
        if not expected:
            decide(joined, sid, call_id, "rejected")
        greeted(bridge, joined.again())
        for _ in range(2):
            joined.join(sid)
        bridge.fence(joined)
        assert asked(joined, sid) == expected
        joined.ack(*joined.messages)


def decisions(messages: list[dict[str, Any]]) -> dict[str, tuple[str, str] | None]:
    """Call id → what its question says of its decision, and by whom; None: it is open."""
    found: dict[str, tuple[str, str] | None] = {}
    for payload in (m["payload"] for m in messages if m["type"] == "approval_required"):
        found[payload["tool_call_id"]] = None
        if {"decision", "decided_at", "decided_by"} & payload.keys():
            assert_now(payload["decided_at"])
            found[payload["tool_call_id"]] = payload["decision"], payload["decided_by"]
    return found


def test_what_is_sent_after_its_decision(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D38: what a device missed, `replay_request`, and a session that has ended."""
    with bridge.phones(1) as (missing,):
        missing.join(sid)
        bridge.fence(missing)
        missing.ack(*[message for message in missing.messages if "id" in message])
        missing.close()
        for call_id in ("phone", "machine", "refused", "open"):
            ask(bridge, joined, sid, {"command": call_id}, tool_call_id=call_id)
            if call_id == "phone":
                decide(joined, sid, call_id, "modified")
            if call_id == "machine":
                bridge.accept(post(sid, {"command": call_id}, tool_call_id=call_id))
            if call_id == "refused":
                bridge.accept(prompt(sid, 1))
        told = {
            "phone": ("modified", "device"),
            "machine": ("approved", "agent"),
            "refused": ("rejected", "agent"),
            "open": None,
        }
        greeted(bridge, missing.ready())
        backlog = of(missing, "approval_required", sid)
        assert len(backlog) == 4 and decisions(backlog) == told
        questions = {message["id"]: message for message in of(joined, "approval_required", sid)}
        assert decisions(list(questions.values())) == dict.fromkeys(told), "nobody had decided then"
        for later in backlog:
            first = questions[later["id"]]
            assert later["timestamp"] == first["timestamp"]
            assert later["payload"] == later["payload"] | first["payload"]
            changed = later["payload"]["tool_call_id"] == "phone"
            assert ("modifications" in later["payload"]) is changed
        assert decisions(log_of(joined, sid)) == told
        late = pre(sid, approval=True, tool_call_id="late")  # by its own time before the end
        bridge.accept(hook("SessionEnd", sid), late)
        bridge.fence(joined)
        over = told | {"open": ("rejected", "agent"), "late": ("rejected", "bridge")}
        assert decisions(log_of(joined, sid)) == over


@pytest.mark.spec("ws.session_interrupt")
def test_decisions_of_a_session_of_the_bridge(bridge: Bridge, phone: Phone) -> None:
    """D38: the `replay_buffer` of who comes later; D40: an interrupt rejects what is pending."""
    sid, told = begin(bridge, phone), {}
    for decision in ("approved", "rejected", "modified"):
        call_id = tool(phone, sid)["tool_call_id"]
        decide(phone, sid, call_id, decision)
        told[call_id] = (decision, "device")
        phone.expect("stream_end", session_id=sid, finish_reason="stop")
    interrupted = tool(phone, sid)["tool_call_id"]
    with bridge.phones(1) as (other,):
        other.expect("approval_required", session_id=sid, tool_call_id=interrupted)
        other.join(sid)
        buffer = other.expect("replay_buffer", session_id=sid)["payload"]["messages"]
        assert decisions(buffer) == told, "it has the one that is pending"
    phone.send("session_interrupt", {"session_id": sid})
    phone.expect("stream_end", session_id=sid, finish_reason="stop")
    assert notifications(phone, sid, "approval_decided")[-1]["data"]["reason"] == "interrupted"
    assert_stands(decide(phone, sid, interrupted, "approved"), "rejected", "bridge")
    told[interrupted] = ("rejected", "bridge")
    with bridge.phones(1) as (other,):
        other.join(sid)
        buffer = other.expect("replay_buffer", session_id=sid)["payload"]["messages"]
        assert decisions(buffer) == decisions(log_of(other, sid)) == told
        greeted(bridge, other)
        assert of(other, "approval_required", sid) == []
    end(phone, sid)
