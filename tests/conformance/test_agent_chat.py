"""A session that the bridge runs: how it begins and ends, and talking with its agent (D7, D22, D31,
D34, D35, D38 to D41, D51, D52).
"""

from typing import Any

import pytest

from tests.conformance.agent_tools import CHAT, http_say, status
from tests.conformance.agents import ask, begin, end, log_of, reasons, say, start, tool, words
from tests.conformance.approvals import assert_refused, decide, of, pending, post, pre
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error, assert_now, is_uuid
from tests.conformance.phone import Message, Phone
from tests.conformance.repositories import Repository
from tests.conformance.samples import hook, new_id
from tests.conformance.test_bad_requests import IN_A_SESSION, ask_in
from tests.servers import wait_until


@pytest.mark.spec("ws.session_start", "ws.session_ready")
def test_a_session_is_created(shared: Bridge, phone: Phone, repository: Repository) -> None:
    """D22, D6: with session_id null, titled by its directory. Who is told: test_home_screen.py."""
    repository.commit_files({"a": "1\n"})
    ready = start(phone, repository.path)
    payload = ready["payload"]
    assert ready["type"] == "session_ready", ready
    assert (payload["agent"], payload["status"], payload["branch"]) == ("demo", "ready", "main")
    assert payload["working_directory"] == str(repository.path)
    listed = shared.session(sid := payload["session_id"])
    assert (listed["status"], listed["agent_type"]) == ("active", "demo")
    assert listed["title"] == repository.path.name
    assert listed["websocket_connected"] is True and listed["hook_count"] == 0
    assert phone.request("git_status_request", {"session_id": sid})["type"] == "git_status_response"
    end(phone, sid)


@pytest.mark.spec("ws.session_end", "wscode.SESS_CLOSED", "state.closed")
def test_ending_a_session(shared: Bridge, phone: Phone, session: str) -> None:
    """D22, D38: for everybody, once, whatever the agent is doing; what is pending is rejected. D7,
    D35: then everything that names it is SESS_CLOSED; over HTTP 409.
    """
    call_id = tool(phone, session)["tool_call_id"]
    with shared.phones(1) as (other,):
        other.join(session)
        answer = end(phone, session)
        about = {"session_id": session, "reason": "user_request"}
        assert answer["payload"] == about | {"title": shared.session(session)["title"]}
        row = other.expect("session_end", session_id=session, reason="user_request")
        assert answer == row | {"id": answer["id"]}, "of the same moment"
        told = other.expect(
            "notification", session_id=session, notification_type="approval_decided"
        )
        closed = {"decision": "rejected", "decided_by": "bridge", "reason": "session_closed"}
        assert told["payload"]["data"] == {"tool_call_id": call_id} | closed
        for one in (phone, other):
            shared.fence(one)
            assert len(of(one, "session_end", session)) == 1
        wait_until(lambda: not shared.session(session)["websocket_connected"])
        phone.ack(*[message for message in phone.messages if "payload" in message])
        shared.fence(phone.again())
        assert not of(phone, "session_end", session), "the answer's acknowledgement is the row's"
    assert status(shared, session) == "closed"
    for resume in (False, True):
        answer = start(phone, shared.root, session, resume=resume)
        assert_refused(answer, "SESS_CLOSED", False, session)
    for type_ in IN_A_SESSION:
        assert_refused(ask_in(phone, session, type_), "SESS_CLOSED", False, session)
    assert_error(http_say(shared, session), 409, "SESSION_CLOSED")


@pytest.mark.spec("state.unknown", "wscode.SESS_NOT_FOUND")
def test_resuming_what_is_not_there(shared: Bridge, phone: Phone, sid: str) -> None:
    """D7, D22: SESS_NOT_FOUND; without resume it is created under that id, and then attached to."""
    assert_refused(start(phone, shared.root, sid, resume=True), "SESS_NOT_FOUND", False, sid)
    assert begin(shared, phone, sid) == sid and begin(shared, phone, sid) == sid
    assert start(phone, shared.root, sid, resume=True)["type"] == "session_ready"
    end(phone, sid)


@pytest.mark.spec("ws.message ws.stream_start ws.stream_chunk ws.stream_end")
def test_a_turn(bridge: Bridge, phone: Phone, session: str) -> None:
    """D52: every phone sees the question before the answer begins, who comes later too; it counts
    as no hook event. D41: demo repeats it, in several chunks; D6: its first line is the title.
    """
    with bridge.phones(1) as (other,):
        other.join(session)
        sent = phone.send("message", {"session_id": session} | CHAT | {"content": "one\ntwo"})
        for one in (phone, other):
            one.expect("stream_end", session_id=session)
        turn = [message for message in phone.messages if "stream" in message["type"]]
        (shown,) = [message for message in phone.messages if message["type"] == "agent_event"]
        log = log_of(other, session)
        assert log == [shown, *turn]
        for one in (phone, other):
            assert [message for message in one.messages if message in log] == log
    event = shown["payload"]
    assert event["event"] == event["event_type"] == "UserPromptSubmit"
    assert is_uuid(event["event_id"]) and event["session_id"] == session
    assert_now(event["timestamp"])
    told = {"prompt": "one\ntwo", "source": "device", "message_id": sent, "queued": False}
    assert event["payload"] == told | {"device": event["payload"]["device"] or "a name"}

    first, *chunks, last = turn
    assert (first["type"], last["type"]) == ("stream_start", "stream_end") and len(chunks) >= 2
    assert {chunk["type"] for chunk in chunks} == {"stream_chunk"}
    of_all = {"session_id", "message_id"}
    assert set(first["payload"]) == of_all
    assert all(set(one["payload"]) == of_all | {"content", "is_tool_use"} for one in chunks)
    assert set(last["payload"]) - {"usage"} == of_all | {"finish_reason"}
    assert last["payload"]["finish_reason"] == "stop"
    assert len({message["payload"]["message_id"] for message in turn}) == 1
    assert len({message["id"] for message in turn}) == len(turn)
    assert "one\ntwo" in words(turn)
    view = bridge.session(session)
    assert (view["hook_count"], view["recent_events"], view["title"]) == (0, [], "one")
    with bridge.phones(1) as (third,):
        third.join(session)
        assert shown in third.expect("replay_buffer")["payload"]["messages"]


@pytest.mark.spec("wscode.AGENT_ERROR", "severity.error")
def test_a_turn_that_fails(shared: Bridge, phone: Phone, session: str) -> None:
    """D51: also a notification to every device; D35: the session stays active."""
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


@pytest.mark.spec("decision.forwarded decision.approved decision.rejected decision.modified")
@pytest.mark.parametrize("decision", ["approved", "rejected", "modified"])
def test_a_tool_call(shared: Bridge, phone: Phone, session: str, decision: str) -> None:
    """D38: forwarded to the agent, which does as it was told."""
    asked = tool(phone, session, "Bash", command="make test")
    assert asked["source"] == "agent_sdk" and "make test" in asked["description"]
    assert asked["risk_level"] in ("low", "medium", "high", "critical")
    assert asked["params"] == {"command": "make test"}
    assert reasons(phone, session) == ["tool_call"]
    call_id, changed = asked["tool_call_id"], {"command": "make -n"}
    answer = decide(phone, session, call_id, decision, changed if decision == "modified" else None)
    assert answer["type"] == "approval_recorded" and answer["payload"]["forwarded"] is True, answer
    told = phone.expect("tool_result", session_id=session, tool_call_id=call_id)
    result = told["payload"]["result"]
    assert result["success"] is (decision != "rejected")
    assert ("make -n" in result["content"]) is (decision == "modified")
    assert ("nothing was run" in result["content"]) is (decision != "rejected"), "no shell"
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    shared.fence(phone)
    assert len(of(phone, "tool_result", session)) == 1
    kinds = [one["payload"]["notification_type"] for one in of(phone, "notification", session)]
    expected = ["approval_required", "approval_decided", "task_complete"]
    assert kinds == expected, "a refusal's result is no alarm"


@pytest.mark.spec("ws.session_interrupt")
def test_interrupts(shared: Bridge, phone: Phone, session: str) -> None:
    """D40: a turn ends once however often it is asked; what comes after is not touched."""
    phone.send("session_interrupt", {"session_id": session})
    assert ask(phone, session, "not interrupted")[-1]["payload"]["finish_reason"] == "stop"
    say(phone, session, "/sleep 60")
    for _ in range(3):  # the first at once: there may be no stream yet
        phone.send("session_interrupt", {"session_id": session})
    phone.collect(lambda: len(reasons(phone, session)) == 2, "its end")
    phone.untaken.clear()
    assert "not this one" in words(ask(phone, session, "not this one"))
    assert reasons(phone, session) == ["stop"] * 3 and not of(phone, "error", session)
    ends = [end["payload"].get("interrupted") for end in of(phone, "stream_end", session)]
    assert ends == [None, True, None]


def test_odd_prompts(phone: Phone, session: str) -> None:
    """Issue, bad input: the turn ends and the session goes on; what says nothing is no message."""
    for content in ("\x00", "/tool", "/tool Bash {not json", "/sleep x", "\u2028 \U0001f600"):
        assert ask(phone, session, content)[-1]["payload"]["finish_reason"] == "stop", content
    for content in ("", " \n", "\u200b\u2060"):
        answer = phone.request("message", {"session_id": session} | CHAT | {"content": content})
        assert assert_refused(answer, "PROTO_INVALID_MESSAGE", True)["violations"]
    phone.untaken.clear()
    assert words(ask(phone, session, "still there?")).endswith("still there?")
    assert len(reasons(phone, session)) == 6


def test_hooks_in_the_name_of_a_session(shared: Bridge, phone: Phone) -> None:
    """D34: passed on as agent_event; no state, approval, call or title changes by them."""
    sid = begin(shared, phone)
    call_id = tool(phone, sid)["tool_call_id"]
    before = shared.session(sid)
    call = {"command": "make test"}
    bodies = [
        hook("SessionStart", sid),
        pre(sid, call, approval=True),
        post(sid, call, tool_call_id=call_id),
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


def prompts(messages: list[Message]) -> list[dict[str, Any]]:
    return [one["payload"]["payload"] for one in messages if one["type"] == "agent_event"]


def test_what_waits_says_so(bridge: Bridge, phone: Phone, session: str) -> None:
    """Each is shown when it is accepted, not when it is answered."""
    for text in ("/sleep 1", "second", "third"):
        say(phone, session, text)
    for _ in range(3):
        phone.expect("stream_end", session_id=session)
    ask(phone, session, "fourth")
    shown = [(one["prompt"], one["queued"]) for one in prompts(phone.messages)]
    assert shown == [("/sleep 1", False), ("second", True), ("third", True), ("fourth", False)]
    said = words(phone.messages)
    assert said.index("second") < said.index("third") < said.index("fourth"), "answered in order"
    types = [m["type"] for m in phone.messages if m["type"] in ("agent_event", "stream_end")]
    assert types == ["agent_event"] * 3 + ["stream_end"] * 3 + ["agent_event", "stream_end"]


@pytest.mark.spec("http.session.events")
def test_over_http(bridge: Bridge, phone: Phone, sid: str) -> None:
    """D39; the answer's event_id is the prompt's message_id; an administrator has no device."""
    begin(bridge, phone, sid)
    for token in (phone.token, bridge.admin_token):
        answer = http_say(bridge, sid, token=token)
        told = answer.json()
        assert (answer.status, told["accepted"], told["session_id"]) == (202, True, sid)
        phone.expect("stream_end", session_id=sid)
        shown = prompts(phone.messages)[-1]
        assert (shown["source"], shown["message_id"]) == ("http", told["event_id"])
        assert (shown["device"] is None) is (token == bridge.admin_token)
    end(phone, sid)


@pytest.mark.spec("client.repeat", "offline.flush")
def test_once(phone: Phone, session: str) -> None:
    """D31: sent again, on the next connection too, it is neither shown nor answered again."""
    id_ = new_id()
    body = {"session_id": session} | CHAT | {"content": "only once"}
    for _ in range(2):
        phone.send("message", body, id=id_)
    phone.expect("stream_end", session_id=session)
    phone.again().join(session)
    phone.send("message", body, id=id_)
    ask(phone, session, "something else")
    log = log_of(phone, session)
    assert [one["prompt"] for one in prompts(log)] == ["only once", "something else"]
    assert len([message for message in log if message["type"] == "stream_start"]) == 2
