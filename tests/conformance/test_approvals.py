"""Deciding (spec, Approval decision; D7, D21, D37, D38): the record, the answer, who is told, and
what is refused.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.approvals import (
    APPROVAL_FIELDS,
    DECISIONS,
    ask,
    assert_recorded,
    assert_stands,
    call_ids,
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
    "ws.approval_required",
    "record.session_id",
    "record.tool",
    "record.description",
    "record.params",
    "record.risk_level",
    "event.PreToolUse",
)
def test_the_question(bridge: Bridge, sid: str, joined: Phone) -> None:
    """Spec, approval_required; D37: source hooks, what the agent wants to do as it said it, a
    description that is never empty.
    """
    for risk in ("low", "medium", "high", "critical"):
        params = {"command": "rm -r build", "timeout": None, "env": {"ä": [1, 2.5, True, risk]}}
        bridge.accept(pre(sid, params, approval=True, risk=risk, tool_call_id=risk))
        message = joined.expect("approval_required", session_id=sid)
        payload = message["payload"]
        assert is_uuid(message["id"]) and set(payload) >= APPROVAL_FIELDS
        assert (payload["tool_call_id"], payload["tool"], payload["params"]) == (
            risk,
            "Bash",
            params,
        )
        assert (payload["risk_level"], payload["source"]) == (risk, "hooks")
        assert isinstance(payload["description"], str) and payload["description"].strip()
    bridge.fence(joined)
    assert not of(joined, "tool_call", sid), "asked or told, not both"


def test_the_description_is_never_empty(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37, with little or much to tell."""
    calls: list[tuple[str, Any]] = [
        ("Bash", {}),
        ("x", {"": ""}),
        ("Bash", {"command": " \n"}),
        ("Edit", {"a": "b" * 200_000}),
    ]
    for tool, params in calls:
        bridge.accept(pre(sid, params, tool=tool, approval=True))
        payload = joined.expect("approval_required", session_id=sid)["payload"]
        assert payload["description"].strip() and payload["params"] == params


@pytest.mark.spec("record.reasoning")
def test_the_reasoning_is_passed_on(bridge: Bridge, sid: str, joined: Phone) -> None:
    """Spec, approval record: reasoning, the agent's explanation, optional (D3: it is in the event
    in any case).
    """
    bridge.accept(pre(sid, approval=True, reasoning="The build directory is stale."))
    payload = joined.expect("approval_required", session_id=sid)["payload"]
    assert payload["reasoning"] == "The build directory is stale."
    assert joined.events(sid)[-1]["payload"]["payload"]["reasoning"] == payload["reasoning"]


@pytest.mark.parametrize(
    ("first", "second"),
    [("approved", "rejected"), ("rejected", "approved"), ("modified", "approved")],
)
@pytest.mark.spec(
    "ws.approval_response",
    "ws.approval_recorded",
    "decision.approved",
    "decision.rejected",
    "decision.modified",
    "decision.logged",
    "record.decision",
    "record.decided_at",
    "record.modifications",
    "wscode.TOOL_ALREADY_DECIDED",
)
@on_both
def test_the_first_decision_wins(bridge: Bridge, sid: str, first: str, second: str) -> None:
    """Spec, Approval decision; D38: approval_recorded with the request's id, forwarded false: no
    agent session took it. A different one later, of whichever device, is told which stands and who
    made it.
    """
    one, two = bridge.pairing(), bridge.pairing()
    winner, loser = bridge.phone(one).ready(), bridge.phone(two).ready()
    bridge.watch(winner, sid)
    call_id = ask(bridge, winner, sid)
    recorded = assert_recorded(decide(winner, sid, call_id, first), sid, call_id, first)
    assert_now(recorded["decided_at"])
    assert_stands(decide(loser, sid, call_id, second), first, one.name)
    assert_stands(decide(winner, sid, call_id, second), first, one.name)
    same = decide(loser, sid, call_id, first)
    if same["type"] == "error":
        assert_stands(same, first, one.name)
    else:
        assert assert_recorded(same, sid, call_id, first)["decided_at"] == recorded["decided_at"], (
            "no second decision"
        )
    bridge.fence(loser)
    assert decided(loser, sid) == {call_id: first}, "said once"
    assert pending(bridge, sid) == []
    winner.close()
    loser.close()


def test_other_modifications_are_a_different_decision(
    bridge: Bridge, sid: str, joined: Phone
) -> None:
    """D38: what the tool would run with is the decision: nobody is told that theirs stands when it
    does not.
    """
    call_id = ask(bridge, joined, sid)
    answer = decide(joined, sid, call_id, "modified", {"command": "ls a"})
    assert_recorded(answer, sid, call_id, "modified")
    assert_stands(decide(joined, sid, call_id, "modified", {"command": "ls b"}), "modified", "")


@pytest.mark.spec("notification.type.approval_decided")
def test_every_ready_device_is_told(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D38: a notification approval_decided (D13: data has tool_call_id and decision), joined or
    not, the one that decided too. D21: none has to join for it: the notification that asks says
    what to decide.
    """
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
    """Spec, Approval decision: from pending only; what nobody was asked about has no decision. A
    later question is not answered by it.
    """
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
    """D38: pending approvals of a session that closes are rejected; a decision that comes later
    approves nothing.
    """
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
    ("decision", "params"), [("rejected", None), ("approved", {"command": "rm -r /"})]
)
def test_nothing_is_decided_by_a_reused_id(
    bridge: Bridge, sid: str, joined: Phone, decision: str, params: Any
) -> None:
    """Issue: nothing is ever approved by a reused id: after the call has run, its id brings a new
    question, which the old answer does not answer.
    """
    call_id = ask(bridge, joined, sid, tool_call_id="x")
    decide(joined, sid, call_id, decision)
    bridge.accept(post(sid, tool_call_id="x"))
    second = ask(bridge, joined, sid, params, tool_call_id="x")
    assert second != "x" and pending(bridge, sid) == [second]
    assert_recorded(decide(joined, sid, second, "rejected"), sid, second, "rejected")


def test_a_decided_call_seen_again_while_open(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37, D38: another call under a decided call's id is asked about, whatever was decided; the
    equal open one is the decided one.
    """
    call_id = ask(bridge, joined, sid, tool_call_id="x")
    decide(joined, sid, call_id, "approved")
    second = ask(bridge, joined, sid, {"command": "rm -r /"}, tool_call_id="x")
    assert second != "x" and pending(bridge, sid) == [second]
    bridge.accept(pre(sid, approval=True, tool_call_id="x"))
    bridge.fence(joined)
    assert pending(bridge, sid) == [second]
    assert_stands(decide(joined, sid, "x", "rejected"), "approved", "")


@on_both
def test_many_at_once(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: each call is a record of its own: fifty pending, decided in another order than they
    came.
    """
    bridge.accept(*[pre(sid, {"command": f"ls {number}"}, approval=True) for number in range(50)])
    joined.collect(lambda: len(call_ids(joined, "approval_required", sid)) == 50, "fifty questions")
    asked = call_ids(joined, "approval_required", sid)
    assert len(set(asked)) == 50
    for number, call_id in enumerate(reversed(asked)):
        decision = DECISIONS[number % 3]
        assert_recorded(decide(joined, sid, call_id, decision), sid, call_id, decision)
    bridge.fence(joined)
    wanted = {call_id: DECISIONS[number % 3] for number, call_id in enumerate(reversed(asked))}
    assert decided(joined, sid) == wanted
    assert pending(bridge, sid) == []
