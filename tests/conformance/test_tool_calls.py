"""Tool calls from hooks (spec, Tool call record, Hook events consumed; D37): which call an event is
about, and what becomes of it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.approvals import (
    ask,
    assert_recorded,
    assert_stands,
    call_ids,
    decide,
    notifications,
    of,
    pending,
    post,
    pre,
)
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session, prompt

pytestmark = pytest.mark.usefixtures("database")


@pytest.mark.spec("ws.tool_call", "event.PreToolUse")
def test_a_call_that_needs_no_approval(bridge: Bridge, sid: str, joined: Phone) -> None:
    """Spec, tool_call; D37: requires_approval false makes a tool_call; nobody is asked or
    notified.
    """
    params = {"file_path": "a.py", "limit": None, "deep": [{"ä": 1.5}]}
    bridge.accept(pre(sid, params, tool="Read", tool_call_id="call-1"))
    payload = joined.expect("tool_call", session_id=sid)["payload"]
    assert set(payload) >= {"session_id", "tool_call_id", "tool", "params", "description"}
    assert (payload["tool_call_id"], payload["tool"], payload["params"]) == (
        "call-1",
        "Read",
        params,
    )
    assert isinstance(payload["description"], str)
    bridge.fence(joined)
    assert not of(joined, "approval_required", sid) and not notifications(joined, sid)


@pytest.mark.spec("record.id")
def test_the_id_is_taken(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: tool_call_id is payload.tool_call_id or payload.tool_use_id."""
    given: list[tuple[dict[str, Any], str]] = [
        ({"tool_call_id": "a"}, "a"),
        ({"tool_use_id": "b"}, "b"),
        ({"tool_call_id": "c", "tool_use_id": "d"}, "c"),
        ({"tool_call_id": None, "tool_use_id": "e"}, "e"),
    ]
    for number, (ids, expected) in enumerate(given):
        bridge.accept(pre(sid, {"number": number}, **ids))
        assert joined.expect("tool_call", session_id=sid)["payload"]["tool_call_id"] == expected, (
            ids
        )


@pytest.mark.spec("record.id")
def test_the_id_is_made(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: else made; unique within the session."""
    bridge.accept(*[pre(sid, {"command": f"ls {number}"}) for number in range(5)])
    joined.collect(lambda: len(call_ids(joined, "tool_call", sid)) == 5, "five calls")
    ids = call_ids(joined, "tool_call", sid)
    assert len(set(ids)) == 5 and all(ids)


ODD_IDS: list[Any] = [5, "", " ", {}, ["x"], True, "a\x00b", "\ud800", "x" * 100_000]


def test_ids_that_are_none(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D3, D37: whatever stands there: a clear refusal (D8), or the call has an id by which it can
    be decided.
    """
    for number, odd in enumerate(ODD_IDS):
        answer = bridge.post_hook(pre(sid, {"number": number}, approval=True, tool_call_id=odd))
        if answer.status != 200:
            assert_error(answer, 400)
            assert odd in ("a\x00b", "\ud800"), "only what is no text may be refused"
            continue
        call_id = joined.expect("approval_required", session_id=sid)["payload"]["tool_call_id"]
        assert call_id.strip(), odd
        assert_recorded(decide(joined, sid, call_id, "approved"), sid, call_id, "approved")


def test_an_id_seen_again_is_the_open_call(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: an id seen again with an equal open call is that call, whatever the order of the keys:
    one record, one question, one notification.
    """
    first, again = (
        {"command": "make", "env": {"A": "1", "B": None}},
        {"env": {"B": None, "A": "1"}, "command": "make"},
    )
    bridge.accept(
        pre(sid, first, approval=True, tool_call_id="x"),
        pre(sid, again, approval=True, tool_call_id="x"),
    )
    joined.expect("approval_required", session_id=sid, tool_call_id="x")
    bridge.fence(joined)
    assert set(call_ids(joined, "approval_required", sid)) == {"x"} and pending(bridge, sid) == [
        "x"
    ]
    assert len(notifications(joined, sid, "approval_required")) == 1


def test_an_id_reused_otherwise_is_a_new_record(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: otherwise a new record with a made id: with other params, of another tool, or when the
    first is closed.
    """
    bridge.accept(
        pre(sid, tool_call_id="x"),
        pre(sid, {"command": "rm -r build"}, tool_call_id="x"),
        pre(sid, tool="Shell", tool_call_id="x"),
        post(sid, tool_call_id="x"),
        pre(sid, tool_call_id="x"),
    )
    joined.collect(lambda: len(call_ids(joined, "tool_call", sid)) == 4, "four calls")
    first, *made = call_ids(joined, "tool_call", sid)
    assert first == "x" and len({"x", "", *made}) == 5


def test_ids_are_unique_within_a_session_only(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: the same id in another session is another call; its end ends nothing here."""
    other = new_session()
    bridge.watch(joined, other)
    bridge.accept(
        pre(sid, approval=True, tool_call_id="x"),
        pre(other, approval=True, tool_call_id="x"),
        post(other, tool_call_id="x"),
    )
    assert joined.expect("tool_result", session_id=other)["payload"]["tool_call_id"] == "x"
    assert pending(bridge, sid) == ["x"] and pending(bridge, other) == []


@pytest.mark.spec("ws.tool_result", "result.*", "event.PostToolUse")
def test_a_result(bridge: Bridge, sid: str, joined: Phone) -> None:
    """Spec, tool_result and tool result; D37: PostToolUse gives tool_result with the same
    tool_call_id.
    """
    bridge.accept(
        pre(sid, tool_call_id="x"),
        post(sid, tool_call_id="x", result="README.md", execution_time_ms=12.7),
    )
    payload = joined.expect("tool_result", session_id=sid)["payload"]
    assert set(payload) >= {"session_id", "tool_call_id", "tool", "result"} and (
        payload["tool_call_id"],
        payload["tool"],
    ) == ("x", "Bash")
    result = payload["result"]
    assert result["success"] is True and result["content"] == "README.md"
    assert type(result.get("duration_ms", 12)) is int and result.get("duration_ms", 12) in (12, 13)
    assert result.get("error") is None and isinstance(result.get("metadata") or {}, dict)


def test_results_of_any_shape(bridge: Bridge, sid: str, joined: Phone) -> None:
    """Spec: PostToolUse result is any; content is a string."""
    results: list[Any] = [None, 5, True, {"stdout": "a", "n": None}, ["a", {"b": 1}], ""]
    for number, result in enumerate(results):
        bridge.accept(
            pre(sid, tool_call_id=str(number)), post(sid, tool_call_id=str(number), result=result)
        )
        payload = joined.expect("tool_result", session_id=sid)["payload"]
        assert payload["tool_call_id"] == str(number) and isinstance(
            payload["result"]["content"], str
        ), result


@pytest.mark.spec("ws.tool_error", "error.tool_error.*", "wscode.TOOL_EXECUTION_FAILED")
def test_a_tool_that_failed(bridge: Bridge, sid: str, joined: Phone) -> None:
    """Spec, WebSocket errors: tool failures use a tool_error; D50: its code. A tool_result beside
    it says the same.
    """
    bridge.accept(
        pre(sid, tool_call_id="x"),
        post(
            sid,
            tool_call_id="x",
            success=False,
            result={"error": "make: *** Error 2", "interrupted": False},
        ),
    )
    payload = joined.expect("tool_error", session_id=sid)["payload"]
    assert (payload["tool_call_id"], payload["tool"], payload["code"]) == (
        "x",
        "Bash",
        "TOOL_EXECUTION_FAILED",
    )
    assert "make: *** Error 2" in payload["message"] and isinstance(payload["details"], dict)
    assert (
        isinstance(payload["retryable"], bool)
        and type(payload["max_retries"]) is int
        and payload["max_retries"] >= 0
    )
    bridge.fence(joined)
    assert all(
        message["payload"]["result"]["success"] is False
        for message in of(joined, "tool_result", sid)
    )


def test_a_result_matched_by_id(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: matched by id, whatever the order."""
    bridge.accept(
        *[pre(sid, tool_call_id=name) for name in "abc"],
        *[post(sid, tool_use_id=name) for name in "cab"],
    )
    joined.collect(lambda: len(call_ids(joined, "tool_result", sid)) == 3, "three results")
    assert call_ids(joined, "tool_result", sid) == ["c", "a", "b"]


def test_a_result_matched_by_tool_and_params(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: else by the oldest open call of that tool and params, the order of keys aside."""
    bridge.accept(
        pre(sid, {"a": 1, "b": [2]}, tool_call_id="first"),
        pre(sid, {"a": 1, "b": [3]}, tool_call_id="other"),
        pre(sid, {"b": [2], "a": 1}, tool_call_id="second"),
        post(sid, {"b": [2], "a": 1}),
        post(sid, {"a": 1, "b": [2]}, tool_call_id="an id that no call has"),
        post(sid, {"a": 1, "b": [3]}),
    )
    joined.collect(lambda: len(call_ids(joined, "tool_result", sid)) == 3, "three results")
    assert call_ids(joined, "tool_result", sid) == ["first", "second", "other"]


def test_a_result_of_no_call(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D34, D37: a bridge that came late still tells the result; nothing else is closed by it."""
    call_id = ask(bridge, joined, sid, {"command": "rm x"})
    bridge.accept(
        post(sid, {"command": "never seen"}), post(sid, {"command": "rm x"}, tool="Shell")
    )
    joined.collect(lambda: len(call_ids(joined, "tool_result", sid)) == 2, "both results")
    assert all(call_ids(joined, "tool_result", sid)) and call_id not in call_ids(
        joined, "tool_result", sid
    )
    assert pending(bridge, sid) == [call_id]


def test_a_result_of_a_reused_id(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37; issue: nothing is approved by a reused id: the result of the second call under it is not
    the first call's.
    """
    bridge.accept(
        pre(sid, {"command": "rm -r /"}, approval=True, tool_call_id="x"),
        pre(sid, tool_call_id="x"),
        post(sid, tool_call_id="x"),
    )
    made = joined.expect("tool_call", session_id=sid)["payload"]["tool_call_id"]
    assert joined.expect("tool_result", session_id=sid)["payload"]["tool_call_id"] == made != "x"
    assert pending(bridge, sid) == ["x"]


def test_a_permission_request_is_the_open_call(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: PreToolUse with permission_request is the open call of that tool and params, now waiting
    for a human.
    """
    bridge.accept(pre(sid, tool_call_id="other", tool="Read"), pre(sid, tool_call_id="x"))
    bridge.accept(pre(sid, approval=True, permission_request=True, risk="high"))
    payload = joined.expect("approval_required", session_id=sid)["payload"]
    assert (
        payload["tool_call_id"] == "x"
        and payload["risk_level"] == "high"
        and payload["source"] == "hooks"
    )
    bridge.fence(joined)
    assert call_ids(joined, "tool_call", sid) == ["other", "x"] and pending(bridge, sid) == ["x"]
    assert [
        payload["data"]["tool_call_id"]
        for payload in notifications(joined, sid, "approval_required")
    ] == ["x"]
    bridge.accept(pre(sid, approval=True, permission_request=True, risk="high"))
    assert pending(bridge, sid) == ["x"], "asked again, it is still that call"


def test_a_permission_request_of_no_open_call(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: without an open call of that tool and params it is a call of its own."""
    bridge.accept(
        pre(sid, tool_call_id="x"),
        post(sid, tool_call_id="x"),
        pre(sid, {"command": "pwd"}, tool_call_id="y"),
    )
    call_id = ask(bridge, joined, sid, permission_request=True)
    assert call_id not in ("x", "y") and pending(bridge, sid) == [call_id]


def test_granted_at_the_machine(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: a pending approval whose tool then ran was granted at the machine: approved, decided_by
    agent; D38: and said.
    """
    call_id = ask(bridge, joined, sid)
    bridge.accept(post(sid))
    assert joined.expect("tool_result", session_id=sid)["payload"]["tool_call_id"] == call_id
    data = joined.until(lambda message: of_decided(message, sid), "approval_decided")["payload"][
        "data"
    ]
    assert (data["tool_call_id"], data["decision"]) == (call_id, "approved")
    assert_stands(decide(joined, sid, call_id, "rejected"), "approved", "agent")
    assert pending(bridge, sid) == []


def of_decided(message: dict[str, Any], session_id: str) -> bool:
    payload = message.get("payload", {})
    return bool(
        message["type"] == "notification"
        and payload["session_id"] == session_id
        and payload["notification_type"] == "approval_decided"
    )


@pytest.mark.parametrize("event", ["UserPromptSubmit", "Stop", "SessionEnd"])
def test_not_granted_at_the_machine(bridge: Bridge, sid: str, joined: Phone, event: str) -> None:
    """D37: still pending at the session's next UserPromptSubmit, Stop or SessionEnd: rejected,
    decided_by agent; D38: and said.
    """
    other = new_session()
    bridge.watch(joined, other)
    call_id, elsewhere = ask(bridge, joined, sid), ask(bridge, joined, other)
    bridge.accept(hook(event, sid))
    data = joined.until(lambda message: of_decided(message, sid), "approval_decided")["payload"][
        "data"
    ]
    assert (data["tool_call_id"], data["decision"]) == (call_id, "rejected")
    if event != "SessionEnd":
        assert_stands(decide(joined, sid, call_id, "approved"), "rejected", "agent")
    assert pending(bridge, sid) == [] and pending(bridge, other) == [elsewhere], (
        "another session's prompt is not this one's"
    )
    bridge.accept(hook("SessionEnd", other))


def test_what_decides_nothing(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: the other events say nothing about a pending approval."""
    call_id = ask(bridge, joined, sid, {"command": "rm x"})
    bridge.accept(
        *[
            hook(event, sid)
            for event in (
                "Notification",
                "PreCompact",
                "SubagentStop",
                "SessionStart",
                "PreToolUse",
                "PostToolUse",
            )
        ],
        prompt(new_session(), 1),
    )
    assert pending(bridge, sid) == [call_id]


@pytest.mark.spec("notification.priority")
def test_a_rejected_call_that_ran_anyway(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: raises a high notification of type error; the decision stands, the result is told."""
    call_id = ask(bridge, joined, sid, tool_call_id="x")
    decide(joined, sid, call_id, "rejected")
    bridge.accept(post(sid, tool_call_id="x"))
    assert joined.expect("tool_result", session_id=sid)["payload"]["tool_call_id"] == call_id
    bridge.fence(joined)
    (alarm,) = notifications(joined, sid, "error")
    assert (
        alarm["priority"] == "high"
        and alarm["data"]["tool_call_id"] == call_id
        and alarm["title"]
        and alarm["body"]
    )
    assert_stands(decide(joined, sid, call_id, "approved"), "rejected", "")


@pytest.mark.parametrize("decision", ["approved", "modified"])
def test_a_granted_call_that_ran(bridge: Bridge, sid: str, joined: Phone, decision: str) -> None:
    """D37: nobody is alarmed, nothing is decided twice."""
    call_id = ask(bridge, joined, sid, tool_call_id="x")
    decide(joined, sid, call_id, decision)
    bridge.accept(
        post(sid, {"command": "ls -l"} if decision == "modified" else None, tool_call_id="x"),
        hook("Stop", sid),
    )
    assert joined.expect("tool_result", session_id=sid)["payload"]["tool_call_id"] == call_id
    bridge.fence(joined)
    assert not notifications(joined, sid, "error")
    assert [
        payload["data"]["decision"] for payload in notifications(joined, sid, "approval_decided")
    ] == [decision]
