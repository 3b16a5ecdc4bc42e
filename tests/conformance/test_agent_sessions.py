"""The life of a session that the bridge runs, seen from phones: created, attached to, left, paused,
resumed, ended (D7, D22, D28, D34 to D36, D41).
"""

from __future__ import annotations

import pytest

from tests.conformance.agents import ask, begin, end, say, start, tool, words
from tests.conformance.approvals import assert_refused, notifications, of
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository
from tests.conformance.samples import new_id

GRACE = 2


def statuses(bridge: Bridge, session_id: str) -> str:
    return str(bridge.session(session_id)["status"])


# -- created ---------------------------------------------------------------------------------------


@pytest.mark.spec("ws.session_start", "ws.session_ready")
def test_a_session_is_created(shared: Bridge, phone: Phone, repository: Repository) -> None:
    """D22: session_id null creates one; session_ready has its id, agent, directory and branch; it
    is listed, titled by its directory (D6), and announced.
    """
    repository.commit_files({"a": "1\n"})
    with shared.phones(1) as (other,):
        ready = start(phone, repository.path)
        payload = ready["payload"]
        assert (
            ready["type"] == "session_ready"
            and payload["agent"] == "demo"
            and payload["status"] == "ready"
        ), ready
        assert (
            payload["working_directory"] == str(repository.path)
            and payload["branch"] == repository.git("branch", "--show-current").strip()
        )
        sid = payload["session_id"]
        listed = shared.session(sid)
        assert (listed["status"], listed["agent_type"], listed["title"]) == (
            "active",
            "demo",
            repository.path.name,
        )
        assert listed["websocket_connected"] is True and listed["hook_count"] == 0
        other.expect("session_started", session_id=sid)
        other.close()
        other.connect()
        assert sid in [one["session_id"] for one in other.auth()["payload"]["active_sessions"]]
    assert phone.request("git_status_request", {"session_id": sid})["type"] == "git_status_response"
    end(phone, sid)


def test_a_session_with_an_id_of_the_clients(shared: Bridge, phone: Phone, sid: str) -> None:
    """D22: an unknown id with resume false creates a session with that id; again, it is attached
    to.
    """
    assert begin(shared, phone, sid) == sid and begin(shared, phone, sid) == sid
    end(phone, sid)


@pytest.mark.spec("client.repeat")
def test_creation_is_done_once(shared: Bridge, phone: Phone) -> None:
    """D31: the same session_start with session_id null again, also on the next connection: the same
    session, joined again, not another one.
    """
    body = {
        "agent": "demo",
        "session_id": None,
        "working_directory": str(shared.root),
        "resume": False,
    }
    id_ = new_id()
    phone.send("session_start", body, id=id_)
    phone.send("session_start", body, id=id_)
    answers = [phone.expect("session_ready") for _ in range(2)]
    phone.close()
    phone.ready()
    phone.send("session_start", body, id=id_)
    answers.append(phone.expect("session_ready"))
    assert {answer["id"] for answer in answers} == {id_} and len(
        {answer["payload"]["session_id"] for answer in answers}
    ) == 1, answers
    sid = answers[0]["payload"]["session_id"]
    assert words(ask(phone, sid, "joined again")), "the third one joined it"
    end(phone, sid)


# -- several phones --------------------------------------------------------------------------------


@pytest.mark.spec("limit.replay_buffer")
def test_several_phones_on_one_session(shared: Bridge, phone: Phone, session: str) -> None:
    """D22, D28: a device new to it gets session_ready, one replay_buffer with all there is, then
    what is live; both see the same, once and in order.
    """
    first = ask(phone, session, "said before the second phone came")
    with shared.phones(1) as (other,):
        other.join(session)
        buffer = other.expect("replay_buffer", session_id=session)
        assert buffer["payload"]["messages"] == first and buffer["payload"]["complete"] is True
        say(other, session, "from the second phone")
        for one in (phone, other):
            one.expect("stream_end", session_id=session)
        assert [m for m in phone.messages if m["type"].startswith("stream_")][len(first) - 1 :] == [
            m for m in other.messages if m["type"].startswith("stream_")
        ]
        assert len(of(other, "replay_buffer", session)) == 1


@pytest.mark.spec("state.reconnect", "ws.replay_buffer.reconnect", "ws.replay_buffer")
def test_back_within_the_grace_time(shared: Bridge, phone: Phone, session: str) -> None:
    """Spec: reconnect within grace: buffered messages in a replay_buffer: those that this device
    has not acknowledged; nothing before it joins.
    """
    seen = ask(phone, session, "seen")
    phone.ack(*seen)
    with shared.phones(1) as (other,):
        other.join(session)
        phone.vanish()
        missed = ask(other, session, "missed in a tunnel")
    phone.ready()
    shared.fence(phone)
    assert not [message for message in phone.messages if message["type"].startswith("stream_")], (
        "D28: when it is joined"
    )
    phone.join(session)
    assert phone.expect("replay_buffer", session_id=session)["payload"]["messages"] == missed
    assert words(ask(phone, session, "and live again")).endswith("and live again")


# -- left ------------------------------------------------------------------------------------------


@pytest.mark.spec("ws.session_end")
def test_ending_a_session(shared: Bridge, phone: Phone, session: str) -> None:
    """D22: session_end ends it for everybody, whatever the agent is doing; what waited for a
    decision is rejected (D38). It comes once, and whoever had joined has left.
    """
    call_id = tool(phone, session)["tool_call_id"]
    with shared.phones(1) as (other,):
        other.join(session)
        answer = end(phone, session)
        assert answer["type"] == "session_end" and answer["payload"] == {
            "session_id": session,
            "reason": "user_request",
        }
        other.expect("session_end", session_id=session, reason="user_request")
        other.expect("notification", notification_type="approval_decided", session_id=session)
        assert notifications(other, session, "approval_decided")[0]["data"] | {"x": 1} == {
            "tool_call_id": call_id,
            "decision": "rejected",
            "decided_by": "bridge",
            "reason": "session_closed",
            "x": 1,
        }
        for one in (phone, other):
            shared.fence(one)
            assert len(of(one, "session_end", session)) == 1
        eventually(lambda: not shared.session(session)["websocket_connected"])
        phone.ack(*[message for message in phone.messages if "payload" in message])
        phone.close()
        phone.ready()
        shared.fence(phone)
        assert not of(phone, "session_end", session), "the answer's acknowledgement is the row's"
    assert statuses(shared, session) == "closed"


@pytest.mark.spec("wscode.SESS_CLOSED", "state.closed")
def test_a_closed_session(shared: Bridge, phone: Phone, session: str) -> None:
    """D7, D35: everything that names it is SESS_CLOSED: joining, resuming, talking, looking; over
    HTTP 409.
    """
    end(phone, session)
    for resume in (False, True):
        assert_refused(
            start(phone, shared.root, session, resume=resume), "SESS_CLOSED", False, session
        )
    chat = {"content": "hi", "role": "user"}
    for type_, fields in {
        "message": chat,
        "session_interrupt": {},
        "git_status_request": {},
        "file_list": {"path": "."},
        "replay_request": {},
    }.items():
        assert_refused(
            phone.request(type_, {"session_id": session} | fields), "SESS_CLOSED", False, session
        )
    answer = shared.https().post(
        f"/api/v1/sessions/{session}/events",
        token=shared.admin_token,
        json_body={"type": "user_message", "content": "hi"},
    )
    assert (answer.status, answer.json()["code"]) == (409, "SESSION_CLOSED")


# -- resumed ---------------------------------------------------------------------------------------


@pytest.mark.spec("state.unknown", "wscode.SESS_NOT_FOUND")
def test_resuming_what_is_not_there(shared: Bridge, phone: Phone, sid: str) -> None:
    """D7: session_start with resume true on an unknown id: SESS_NOT_FOUND; on one that runs: it is
    joined.
    """
    assert_refused(start(phone, shared.root, sid, resume=True), "SESS_NOT_FOUND", False, sid)
    begin(shared, phone, sid)
    assert start(phone, shared.root, sid, resume=True)["type"] == "session_ready"
    end(phone, sid)
