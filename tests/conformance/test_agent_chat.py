"""Talking with the agent of a session that the bridge runs: streams, tools, decisions, interrupts,
bad input (SPEC WebSocket operations; D38 to D41, D51).
"""

from __future__ import annotations

import pytest

from tests.conformance.agents import ask, log_of, say, tool, words
from tests.conformance.approvals import assert_stands, decide, notifications, of
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.delivery import send
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id

# -- the stream ------------------------------------------------------------------------------------


@pytest.mark.spec("ws.message", "ws.stream_start", "ws.stream_chunk", "ws.stream_end")
def test_a_turn(shared: Bridge, phone: Phone, session: str) -> None:
    """Spec: message → stream_start, stream_chunk..., stream_end; D41: demo repeats the prompt's
    words, in several chunks; D6: the title is the prompt.
    """
    shown, *messages = ask(phone, session, "Please count\nto seven")
    assert shown["payload"]["payload"]["prompt"] == "Please count\nto seven"
    types = [message["type"] for message in messages]
    assert (
        types[0] == "stream_start"
        and types[-1] == "stream_end"
        and set(types[1:-1]) == {"stream_chunk"}
        and len(types) >= 4
    )
    assert set(messages[0]["payload"]) == {"session_id", "message_id"}
    assert all(
        set(message["payload"]) == {"session_id", "message_id", "content", "is_tool_use"}
        for message in messages[1:-1]
    )
    assert messages[-1]["payload"]["finish_reason"] == "stop" and set(messages[-1]["payload"]) - {
        "usage"
    } == {"session_id", "message_id", "finish_reason"}
    assert len({message["payload"]["message_id"] for message in messages}) == 1 and len(
        {message["id"] for message in messages}
    ) == len(messages)
    assert "Please count\nto seven" in words(messages)
    assert shared.session(session)["title"] == "Please count"


def test_turns_queue(phone: Phone, session: str) -> None:
    """Issue: turns queue in order: what is said while the agent answers is answered after it."""
    for number in range(4):
        say(phone, session, f"number {number}")
    phone.collect(lambda: len(of(phone, "stream_end", session)) == 4, "four answers")
    stream = [message for message in phone.messages if message["type"].startswith("stream_")]
    assert [message["type"] for message in stream if message["type"] != "stream_chunk"] == [
        "stream_start",
        "stream_end",
    ] * 4
    answers = [
        words(of_one)
        for of_one in (
            [m for m in stream if m["payload"]["message_id"] == end_["payload"]["message_id"]]
            for end_ in of(phone, "stream_end", session)
        )
    ]
    assert [answer[-1] for answer in answers] == list("0123"), answers


@pytest.mark.spec("client.repeat", "offline.flush")
def test_a_message_is_said_once(shared: Bridge, phone: Phone, session: str) -> None:
    """D31: a message has no answer of its own: repeated, it does nothing; on the next connection
    too, with a UUID.
    """
    body, id_ = {"session_id": session, "content": "only once", "role": "user"}, new_id()
    for _ in range(3):
        phone.send("message", body, id=id_)
    phone.expect("stream_end", session_id=session)
    phone.close()
    phone.ready()
    phone.join(session)
    phone.send("message", body, id=id_)
    ask(phone, session, "something else")
    assert (
        len([message for message in log_of(phone, session) if message["type"] == "stream_start"])
        == 2
    )


@pytest.mark.spec("wscode.AGENT_ERROR", "severity.error")
def test_a_turn_that_fails(shared: Bridge, phone: Phone, session: str) -> None:
    """Spec: AGENT_ERROR, recoverable; D51: also a notification, to every device, that names it;
    D35: the session stays active; finish_reason error.
    """
    with shared.phones(1) as (other,):
        messages = ask(phone, session, "/fail The model is on holiday.")
        assert messages[-1]["payload"]["finish_reason"] == "error"
        error = phone.expect("error", session_id=session)
        assert (
            error["payload"]["code"],
            error["payload"]["recoverable"],
            error["payload"]["message"],
        ) == ("AGENT_ERROR", True, "The model is on holiday.")
        notice = other.expect("notification", session_id=session, notification_type="error")[
            "payload"
        ]
        assert notice["body"] == "The model is on holiday." and notice["priority"] == "high"
        assert notice["data"] == {"code": "AGENT_ERROR", "error_id": error["id"]}
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
    does as it was told; the turn goes on to stop.
    """
    asked = tool(phone, session, "Bash", command="make test")
    assert (
        asked["source"] == "agent_sdk"
        and asked["description"]
        and asked["risk_level"] in ("low", "medium", "high", "critical")
    )
    assert (
        asked["params"] == {"command": "make test"}
        and of(phone, "stream_end", session)[0]["payload"]["finish_reason"] == "tool_call"
    )
    answer = decide(
        phone,
        session,
        asked["tool_call_id"],
        decision,
        {"command": "make -n"} if decision == "modified" else None,
    )
    assert answer["type"] == "approval_recorded" and answer["payload"]["forwarded"] is True, answer
    result = phone.expect("tool_result", session_id=session, tool_call_id=asked["tool_call_id"])[
        "payload"
    ]["result"]
    assert result["success"] is (decision != "rejected")
    assert ("make -n" in result["content"]) is (decision == "modified")
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    shared.fence(phone)
    kinds = [payload["notification_type"] for payload in notifications(phone, session)]
    assert kinds == ["approval_required", "approval_decided"], "a refusal's result is no alarm"


def test_the_risk_of_a_call(phone: Phone, session: str) -> None:
    """Issue: risk by documented rules, and a description that a person understands."""
    risks = {}
    for command in ("rm -rf /", "ls"):
        asked = tool(phone, session, "Bash", command=command)
        risks[command] = asked["risk_level"]
        assert command in asked["description"]
        decide(phone, session, asked["tool_call_id"], "rejected")
        phone.expect("stream_end", session_id=session, finish_reason="stop")
    assert risks["rm -rf /"] == "critical" and risks["ls"] != "critical"


def test_a_decision_from_a_second_phone(shared: Bridge, session: str, phone: Phone) -> None:
    """D28, D38; issue: the first phone has vanished, another one is asked when it connects,
    decides, and the agent goes on.
    """
    call_id = tool(phone, session)["tool_call_id"]
    phone.vanish()
    with shared.phones(1) as (other,):
        other.expect("approval_required", session_id=session, tool_call_id=call_id)
        assert decide(other, session, call_id, "approved")["payload"]["forwarded"] is True
        other.join(session)
        buffer = other.expect("replay_buffer", session_id=session)["payload"]["messages"]
        assert "approval_required" not in [message["type"] for message in buffer], "it has that"
        eventually(
            lambda: [
                message for message in log_of(other, session) if message["type"] == "tool_result"
            ]
        )
    phone.ready()
    assert_stands(decide(phone, session, call_id, "rejected"), "approved", "phone")


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
    assert (decided["tool_call_id"], decided["decision"], decided["reason"]) == (
        call_id,
        "rejected",
        "interrupted",
    )
    assert_stands(decide(phone, session, call_id, "approved"), "rejected", "bridge")
    assert (
        words(ask(phone, session, "and on")).endswith("and on")
        and shared.session(session)["status"] == "active"
    )


# -- bad input -------------------------------------------------------------------------------------


def test_odd_prompts(phone: Phone, session: str) -> None:
    """Issue, bad input: whatever is said, the turn ends and the session goes on."""
    for content in (
        "\x00",
        "/tool",
        "/tool Bash {not json",
        "/sleep x",
        "/tool Bash [1]",
        "\u2028 \U0001f600",
    ):
        assert ask(phone, session, content)[-1]["payload"]["finish_reason"] == "stop", content
        phone.untaken.clear()
        assert words(ask(phone, session, "still there?")).endswith("still there?"), content


def test_a_repeated_failure_is_answered_again(shared: Bridge, phone: Phone) -> None:
    """D31: a session_start that failed for good is told so each time."""
    body = {
        "agent": "demo",
        "session_id": None,
        "working_directory": f"{shared.root}/missing",
        "resume": False,
    }
    answers = [send(phone, "session_start", "create-1", body)["payload"] for _ in range(2)]
    assert answers[0] == answers[1] and answers[0]["code"] == "FILE_NOT_FOUND"
