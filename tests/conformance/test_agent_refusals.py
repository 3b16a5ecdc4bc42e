"""Messages, interrupts, decisions, HTTP events and hooks that a session's state does not allow or
that come twice (D7, D21, D31, D34, D38 to D40).
"""

from __future__ import annotations

import pytest

from tests.conformance.agent_tools import CHAT, alive, http_say, status
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
from tests.conformance.https import assert_error
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id

# -- messages that nothing can be done with --------------------------------------------------------


def test_to_whom_nobody_listens(bridge: Bridge, phone: Phone, sid: str) -> None:
    """D7, D21: unknown, closed, not joined, in this order; the words of an observed session cannot
    be said for it.
    """
    for type_, fields in {"message": CHAT, "session_interrupt": {}}.items():
        assert_refused(
            phone.request(type_, {"session_id": sid} | fields), "SESSION_NOT_FOUND", False, sid
        )
    begin(bridge, phone, sid)
    with bridge.phones(1) as (other,):
        for type_, fields in {
            "message": CHAT,
            "session_interrupt": {},
            "session_end": {"reason": "user_request"},
        }.items():
            error = assert_refused(
                other.request(type_, {"session_id": sid} | fields),
                "PROTO_SEQUENCE_ERROR",
                True,
                sid,
            )
            assert set(error["details"]) == {"expected", "received", "currentPhase"}
        end(phone, sid)
        assert_refused(
            other.request("message", {"session_id": sid} | CHAT), "SESS_CLOSED", False, sid
        )
        alive(other)
    alive(phone)


def test_messages_without_sense(bridge: Bridge, phone: Phone) -> None:
    """PROTO_INVALID_MESSAGE with every violation; the session does not notice."""
    sid = begin(bridge, phone)
    for fields in (
        {"content": 1, "role": "user"},
        {"content": "hi", "role": "assistant"},
        {"role": "user"},
        {"content": None, "role": None},
        {"content": "", "role": "user"},
        {"content": " \n", "role": "user"},
        {"content": "\u200b\u2060", "role": "user"},
    ):
        error = assert_refused(
            phone.request("message", {"session_id": sid} | fields), "PROTO_INVALID_MESSAGE", True
        )
        assert error["violations"]
    assert words(ask(phone, sid, "sense")).endswith("sense")
    assert (
        len([message for message in log_of(phone, sid) if message["type"] == "stream_start"]) == 1
    )
    end(phone, sid)


@pytest.mark.spec("ws.session_interrupt")
def test_an_interrupt_of_nothing_and_one_too_many(bridge: Bridge, phone: Phone) -> None:
    """D40: with no turn nothing happens, with a turn it ends once however often it is asked; what
    comes after is not touched.
    """
    sid = begin(bridge, phone)
    phone.send("session_interrupt", {"session_id": sid})
    assert ask(phone, sid, "not interrupted")[-1]["payload"]["finish_reason"] == "stop"
    say(phone, sid, "/sleep 60")
    for _ in range(3):  # the first at once: there may be no stream yet
        phone.send("session_interrupt", {"session_id": sid})
    phone.collect(lambda: len(of(phone, "stream_end", sid)) == 2, "its end")
    phone.untaken.clear()
    assert "not this one" in words(ask(phone, sid, "not this one"))
    assert reasons(phone, sid) == ["stop"] * 3
    assert not of(phone, "error", sid) and status(bridge, sid) == "active"
    end(phone, sid)


# -- decisions -------------------------------------------------------------------------------------


@pytest.mark.spec("wscode.TOOL_ALREADY_DECIDED", "ws.approval_recorded")
def test_deciding_twice(bridge: Bridge, phone: Phone) -> None:
    """D38, D31: repeated it is answered again and forwarded once; a different one later is
    TOOL_ALREADY_DECIDED; modified without modifications is refused.
    """
    sid = begin(bridge, phone)
    call_id = tool(phone, sid, "Bash", command="make test")["tool_call_id"]
    body = {
        "session_id": sid,
        "tool_call_id": call_id,
        "decision": "modified",
        "modifications": None,
    }
    assert assert_refused(phone.request("approval_response", body), "PROTO_INVALID_MESSAGE", True)[
        "violations"
    ]
    assert call_id in pending(bridge, sid), "that decided nothing"
    changed, id_ = body | {"modifications": {"command": "make -n"}}, new_id()
    answers = []
    for _ in range(2):
        phone.send("approval_response", changed, id=id_)
        answers.append(phone.until(lambda message: message["id"] == id_, "its answer"))
    assert (
        answers[0]["payload"] == answers[1]["payload"]
        and answers[0]["payload"]["forwarded"] is True
    )
    result = phone.expect("tool_result", session_id=sid, tool_call_id=call_id)["payload"]["result"]
    assert (
        result["success"] is True
        and "make -n" in result["content"]
        and "make test" not in result["content"]
    )
    phone.expect("stream_end", session_id=sid, finish_reason="stop")
    with bridge.phones(1) as (other,):
        assert_stands(decide(other, sid, call_id, "rejected"), "modified", "phone")
        assert (
            decide(other, sid, call_id, "modified", {"command": "rm -rf /"})["type"] == "error"
        ), "another change is another decision"
        assert_refused(decide(other, sid, "never-asked", "approved"), "TOOL_CALL_NOT_FOUND", False)
    assert (
        len(of(phone, "tool_result", sid)) == 1
        and len(notifications(phone, sid, "approval_decided")) == 1
    )
    end(phone, sid)


# -- over HTTP, and by hooks -----------------------------------------------------------------------


@pytest.mark.spec("http.session.events")
def test_every_answer_of_session_events(bridge: Bridge, phone: Phone, sid: str) -> None:
    """Spec and D39: 202 accepted true, 404, 409, 400; only what was accepted is said, once. Of
    observed sessions, and who may: test_sessions_http.
    """
    good = {
        "type": "user_message",
        "content": "by HTTP",
        "metadata": {"source": "test", "client_version": "1.2.3"},
    }
    assert_error(http_say(bridge, sid, good), 404, "SESSION_NOT_FOUND")
    begin(bridge, phone, sid)
    for token in (bridge.admin_token, phone.token):
        answer = http_say(bridge, sid, good, token)
        assert answer.status == 202 and set(answer.json()) >= {
            "accepted",
            "event_id",
            "session_id",
        }, answer
        assert (
            answer.json()["accepted"] is True
            and answer.json()["session_id"] == sid
            and answer.json()["event_id"]
        )
        phone.expect("stream_end", session_id=sid)
    assert_error(http_say(bridge, sid, good | {"metadata": "x"}), 400)
    bridge.fence(phone)
    assert words(of(phone, "stream_chunk", sid)).count("by HTTP") == 2
    end(phone, sid)
    assert_error(http_say(bridge, sid, good), 409, "SESSION_CLOSED")


def test_hooks_in_the_name_of_a_session(bridge: Bridge, phone: Phone) -> None:
    """D34: passed on as agent_event, and nothing else: no state, no approval, no tool call, no
    title, while it runs and when it is closed.
    """
    sid = begin(bridge, phone)
    call_id = tool(phone, sid)["tool_call_id"]
    before = bridge.session(sid)
    asks = {
        "tool": "Bash",
        "params": {"command": "make test"},
        "risk_level": "low",
        "requires_approval": True,
    }
    done = {
        "tool": "Bash",
        "params": {"command": "make test"},
        "result": "x",
        "success": True,
        "tool_call_id": call_id,
    }
    bodies = [
        hook("SessionStart", sid),
        hook("PreToolUse", sid, asks),
        hook("PostToolUse", sid, done),
        hook("Stop", sid),
        hook("SessionEnd", sid),
    ]
    bridge.accept(*bodies)
    phone.collect(lambda: len(phone.events(sid)) == len(bodies), "the events")
    after = bridge.session(sid)
    same = ("status", "title", "working_directory", "agent_type")
    assert [after[name] for name in same] == [before[name] for name in same] and after[
        "hook_count"
    ] == len(bodies)
    assert pending(bridge, sid) == [call_id], "neither decided nor doubled"
    assert (
        not of(phone, "tool_result", sid)
        and not of(phone, "tool_call", sid)
        and len(of(phone, "approval_required", sid)) == 1
    )
    assert decide(phone, sid, call_id, "approved")["payload"]["forwarded"] is True
    phone.expect("tool_result", session_id=sid, tool_call_id=call_id)
    end(phone, sid)
    bridge.accept(hook("SessionStart", sid))
    assert status(bridge, sid) == "closed"
