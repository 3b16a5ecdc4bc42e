"""Talking with the agent of a session that the bridge runs: streams, tools, decisions, interrupts,
bad input, hooks in its name (SPEC WebSocket operations; D7, D31, D34, D38 to D41, D51).
"""

from __future__ import annotations

import pytest

from tests.conformance.agents import ask, begin, end, log_of, reasons, say, tool, words
from tests.conformance.approvals import (
    assert_refused,
    assert_stands,
    decide,
    notifications,
    of,
    pending,
)
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import send
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id

# -- the stream ------------------------------------------------------------------------------------


@pytest.mark.spec("ws.message", "ws.stream_start", "ws.stream_chunk", "ws.stream_end")
def test_a_turn(shared: Bridge, phone: Phone, session: str) -> None:
    """Spec: message → stream_start, stream_chunk..., stream_end; D41: demo repeats the prompt's
    words, in several chunks; D6: the title is the prompt.
    """
    shown, *messages = ask(phone, session, "Please count\nto seven")
    assert shown["payload"]["payload"]["prompt"] == "Please count\nto seven"
    first, *chunks, last = messages
    assert (first["type"], last["type"]) == ("stream_start", "stream_end") and len(chunks) >= 2
    assert {chunk["type"] for chunk in chunks} == {"stream_chunk"}
    of_all = {"session_id", "message_id"}
    assert set(first["payload"]) == of_all
    assert all(set(one["payload"]) == of_all | {"content", "is_tool_use"} for one in chunks)
    assert set(last["payload"]) - {"usage"} == of_all | {"finish_reason"}
    assert last["payload"]["finish_reason"] == "stop"
    assert len({message["payload"]["message_id"] for message in messages}) == 1
    assert len({message["id"] for message in messages}) == len(messages)
    assert "Please count\nto seven" in words(messages)
    assert shared.session(session)["title"] == "Please count"


@pytest.mark.spec("wscode.AGENT_ERROR", "severity.error")
def test_a_turn_that_fails(shared: Bridge, phone: Phone, session: str) -> None:
    """Spec: AGENT_ERROR, recoverable; D51: also a notification, to every device, that names it;
    D35: the session stays active; finish_reason error.
    """
    with shared.phones(1) as (other,):
        messages = ask(phone, session, "/fail The model is on holiday.")
        assert messages[-1]["payload"]["finish_reason"] == "error"
        error = phone.expect("error", session_id=session)
        told = assert_refused(error, "AGENT_ERROR", True, session)
        assert told["message"] == "The model is on holiday."
        notice = other.expect("notification", session_id=session, notification_type="error")
        assert notice["payload"]["body"] == told["message"]
        assert notice["payload"]["priority"] == "high"
        assert notice["payload"]["data"] == {"code": "AGENT_ERROR", "error_id": error["id"]}
    assert shared.session(session)["status"] == "active"
    assert words(ask(phone, session, "again")).endswith("again")
    assert error in log_of(phone, session), "it is kept like everything that was said"


# -- tools -----------------------------------------------------------------------------------------


@pytest.mark.spec(
    "decision.forwarded", "decision.approved", "decision.rejected", "decision.modified"
)
@pytest.mark.parametrize("decision", ["approved", "rejected", "modified"])
def test_a_tool_call(shared: Bridge, phone: Phone, session: str, decision: str) -> None:
    """Spec: approval_required with source agent_sdk; D38: forwarded to the agent session, which
    does as it was told; D31: once, however often it is sent. The turn goes on to stop.
    """
    asked = tool(phone, session, "Bash", command="make test")
    assert asked["source"] == "agent_sdk" and "make test" in asked["description"]
    assert asked["risk_level"] in ("low", "medium", "high", "critical")
    assert asked["params"] == {"command": "make test"}
    assert reasons(phone, session) == ["tool_call"]
    call = {"session_id": session, "tool_call_id": asked["tool_call_id"]}
    changed = {"command": "make -n"} if decision == "modified" else None
    body, id_ = call | {"decision": decision, "modifications": changed}, new_id()
    first, again = (send(phone, "approval_response", id_, body) for _ in range(2))
    assert first["type"] == "approval_recorded" and first["payload"]["forwarded"] is True, first
    assert again["payload"] == first["payload"]
    result = phone.expect("tool_result", **call)["payload"]["result"]
    assert result["success"] is (decision != "rejected")
    assert ("make -n" in result["content"]) is (decision == "modified")
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    shared.fence(phone)
    assert len(of(phone, "tool_result", session)) == 1
    kinds = [payload["notification_type"] for payload in notifications(phone, session)]
    assert kinds == ["approval_required", "approval_decided"], "a refusal's result is no alarm"


def test_the_risk_of_a_call(phone: Phone, session: str) -> None:
    """Issue: risk by documented rules."""
    asked = tool(phone, session, "Bash", command="rm -rf /")
    assert asked["risk_level"] == "critical"
    decide(phone, session, asked["tool_call_id"], "rejected")
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    assert tool(phone, session, "Bash", command="ls")["risk_level"] != "critical"


# -- interrupts ------------------------------------------------------------------------------------


@pytest.mark.spec("ws.session_interrupt")
def test_an_interrupt_while_somebody_thinks(shared: Bridge, phone: Phone, session: str) -> None:
    """D40: stops the turn, stream_end with finish_reason stop; its pending approvals are rejected,
    reason interrupted.
    """
    call_id = tool(phone, session)["tool_call_id"]
    phone.send("session_interrupt", {"session_id": session})
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    decided = notifications(phone, session, "approval_decided")[0]["data"]
    assert (decided["tool_call_id"], decided["decision"]) == (call_id, "rejected")
    assert decided["reason"] == "interrupted"
    assert_stands(decide(phone, session, call_id, "approved"), "rejected", "bridge")
    assert words(ask(phone, session, "and on")).endswith("and on")
    assert shared.session(session)["status"] == "active"


@pytest.mark.spec("ws.session_interrupt")
def test_an_interrupt_of_nothing_and_one_too_many(
    shared: Bridge, phone: Phone, session: str
) -> None:
    """D40: with no turn nothing happens, with a turn it ends once however often it is asked; what
    comes after is not touched.
    """
    phone.send("session_interrupt", {"session_id": session})
    assert ask(phone, session, "not interrupted")[-1]["payload"]["finish_reason"] == "stop"
    say(phone, session, "/sleep 60")
    for _ in range(3):  # the first at once: there may be no stream yet
        phone.send("session_interrupt", {"session_id": session})
    phone.collect(lambda: len(reasons(phone, session)) == 2, "its end")
    phone.untaken.clear()
    assert "not this one" in words(ask(phone, session, "not this one"))
    assert reasons(phone, session) == ["stop"] * 3 and not of(phone, "error", session)


# -- what it takes and what not --------------------------------------------------------------------


def test_odd_prompts(phone: Phone, session: str) -> None:
    """Issue, bad input: whatever is said, the turn ends and the session goes on; what says nothing
    is no message.
    """
    for content in ("\x00", "/tool", "/tool Bash {not json", "/sleep x", "\u2028 \U0001f600"):
        assert ask(phone, session, content)[-1]["payload"]["finish_reason"] == "stop", content
    for content in ("", " \n", "\u200b\u2060"):
        body = {"session_id": session, "content": content, "role": "user"}
        refused = assert_refused(phone.request("message", body), "PROTO_INVALID_MESSAGE", True)
        assert refused["violations"]
    phone.untaken.clear()
    assert words(ask(phone, session, "still there?")).endswith("still there?")
    assert len(reasons(phone, session)) == 6


def test_hooks_in_the_name_of_a_session(shared: Bridge, phone: Phone) -> None:
    """D34: passed on as agent_event, and nothing else: no state, no approval, no tool call, no
    title, while it runs and when it is closed.
    """
    sid = begin(shared, phone)
    call_id = tool(phone, sid)["tool_call_id"]
    before = shared.session(sid)
    call = {"tool": "Bash", "params": {"command": "make test"}}
    bodies = [
        hook("SessionStart", sid),
        hook("PreToolUse", sid, call | {"risk_level": "low", "requires_approval": True}),
        hook("PostToolUse", sid, call | {"result": "x", "success": True, "tool_call_id": call_id}),
        hook("Stop", sid),
        hook("SessionEnd", sid),
    ]
    shared.accept(*bodies)
    phone.collect(lambda: len(phone.events(sid)) == len(bodies), "the events")
    after = shared.session(sid)
    for name in ("status", "title", "working_directory", "agent_type"):
        assert after[name] == before[name]
    assert after["hook_count"] == len(bodies)
    assert pending(shared, sid) == [call_id], "neither decided nor doubled"
    assert not of(phone, "tool_result", sid) and not of(phone, "tool_call", sid)
    assert len(of(phone, "approval_required", sid)) == 1
    assert decide(phone, sid, call_id, "approved")["payload"]["forwarded"] is True
    phone.expect("tool_result", session_id=sid, tool_call_id=call_id)
    end(phone, sid)
    shared.accept(hook("SessionStart", sid))
    assert shared.session(sid)["status"] == "closed"
