"""Deciding (spec, Approval decision; D7, D21, D37, D38)."""

from typing import Any

import pytest

from tests.conformance.approvals import (
    APPROVAL_FIELDS,
    ask,
    assert_recorded,
    assert_stands,
    decide,
    decided,
    of,
    pending,
    post,
    pre,
)
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_now, is_uuid
from tests.conformance.phone import Phone
from tests.conformance.samples import hook

on_both = pytest.mark.usefixtures("database")


@pytest.mark.spec(
    "ws.approval_required record.session_id record.tool record.description record.params",
    "record.risk_level record.reasoning event.PreToolUse",
)
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


@pytest.mark.parametrize(
    ("first", "second"),
    [("approved", "rejected"), ("rejected", "modified"), ("modified", "modified")],
)
@pytest.mark.spec(
    "ws.approval_response ws.approval_recorded decision.approved decision.rejected",
    "decision.modified decision.logged record.decision record.decided_at record.modifications",
    "wscode.TOOL_ALREADY_DECIDED",
)
@on_both
def test_the_first_decision_wins(bridge: Bridge, sid: str, first: str, second: str) -> None:
    """D38: a different one later, other modifications too, of whichever device, is told which
    stands and who made it.
    """
    one, two = bridge.pairing(), bridge.pairing()
    winner, loser = bridge.phone(one).ready(), bridge.phone(two).ready()
    bridge.watch(winner, sid)
    call_id = ask(bridge, winner, sid)
    answer = decide(winner, sid, call_id, first, {"a": 1} if first == "modified" else None)
    recorded = assert_recorded(answer, sid, call_id, first)
    assert_now(recorded["decided_at"])
    assert_stands(decide(loser, sid, call_id, second), first, one.name)
    assert_stands(decide(winner, sid, call_id, second), first, one.name)
    bridge.fence(loser)
    assert decided(loser, sid) == {call_id: first}, "said once"
    assert pending(bridge, sid) == []
    winner.close()
    loser.close()


@pytest.mark.spec("notification.type.approval_decided")
def test_every_ready_device_is_told(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D38, D13: joined or not, the one that decided too. D21: none has to join to decide."""
    with bridge.phones(2) as others:
        bridge.accept(pre(sid, approval=True))
        asks: dict[str, Any] = {"session_id": sid, "notification_type": "approval_required"}
        call_id = others[0].expect("notification", **asks)["payload"]["data"]["tool_call_id"]
        assert not of(others[0], "approval_required", sid), "D28: live rows of joined sessions only"
        decide(others[0], sid, call_id, "approved")
        tells = asks | {"notification_type": "approval_decided"}
        seen = [phone.expect("notification", **tells) for phone in (joined, *others)]
    assert len({message["id"] for message in seen}) == 1, "one notification"
    assert seen[0]["payload"]["notification_id"] == seen[0]["id"]
    assert decided(joined, sid) == {call_id: "approved"}


def test_what_needs_no_approval_cannot_be_approved(bridge: Bridge, sid: str, joined: Phone) -> None:
    """A later question about it is not answered by the attempt."""
    bridge.accept(pre(sid, tool_call_id="x"))
    answer = decide(joined, sid, "x", "approved")
    assert answer["type"] == "error" and answer["payload"]["code"] in (
        "TOOL_CALL_NOT_FOUND",
        "TOOL_ALREADY_DECIDED",
    ), answer
    bridge.accept(pre(sid, approval=True, permission_request=True))
    assert pending(bridge, sid) == ["x"]


@on_both
@pytest.mark.spec("wscode.SESS_CLOSED")
def test_a_session_that_closes(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D38: its pending approvals are rejected; a later decision approves nothing."""
    calls = [ask(bridge, joined, sid, {"command": f"ls {number}"}) for number in range(3)]
    bridge.accept(hook("SessionEnd", sid))
    joined.collect(lambda: len(decided(joined, sid)) == 3, "three rejections")
    assert decided(joined, sid) == dict.fromkeys(calls, "rejected")
    answer = decide(joined, sid, calls[0], "approved")
    assert answer["type"] == "error" and answer["payload"]["code"] in (
        "SESS_CLOSED",
        "TOOL_ALREADY_DECIDED",
    ), answer
    assert answer["payload"]["recoverable"] is False
    bridge.accept(hook("SessionStart", sid))
    assert pending(bridge, sid) == [], "nor does the session's return bring them back"


@on_both
@pytest.mark.parametrize(
    ("decision", "params", "ended"),
    [
        ("rejected", None, True),
        ("approved", {"command": "rm -r /"}, True),
        ("approved", {"command": "rm -r /"}, False),
    ],
)
def test_nothing_is_decided_by_a_reused_id(
    bridge: Bridge, sid: str, joined: Phone, decision: str, params: Any, ended: bool
) -> None:
    """Issue: also while the decided call is still open; only an equal open one is that call."""
    call_id = ask(bridge, joined, sid, tool_call_id="x")
    decide(joined, sid, call_id, decision)
    if ended:
        bridge.accept(post(sid, tool_call_id="x"))
    second = ask(bridge, joined, sid, params, tool_call_id="x")
    assert second != "x" and pending(bridge, sid) == [second]
    if not ended:
        bridge.accept(pre(sid, approval=True, tool_call_id="x"))
        assert pending(bridge, sid) == [second]
    assert_recorded(decide(joined, sid, second, "rejected"), sid, second, "rejected")
