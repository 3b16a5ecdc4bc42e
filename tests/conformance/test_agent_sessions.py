"""The life of a session that the bridge runs, seen from phones: created, attached to, left, paused,
resumed, ended (D7, D22, D28, D34 to D36, D41).
"""

from __future__ import annotations

import pytest

from tests.conformance.agent_tools import CHAT, http_say, status
from tests.conformance.agents import ask, begin, end, say, start, tool
from tests.conformance.approvals import assert_refused, notifications, of
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.https import assert_error
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository

# -- created ---------------------------------------------------------------------------------------


@pytest.mark.spec("ws.session_start", "ws.session_ready")
def test_a_session_is_created(shared: Bridge, phone: Phone, repository: Repository) -> None:
    """D22: session_id null creates one; session_ready has its id, agent, directory and branch; it
    is listed, titled by its directory (D6), and announced.
    """
    repository.commit_files({"a": "1\n"})
    branch = repository.git("branch", "--show-current").strip()
    with shared.phones(1) as (other,):
        ready = start(phone, repository.path)
        payload = ready["payload"]
        assert ready["type"] == "session_ready", ready
        assert (payload["agent"], payload["status"], payload["branch"]) == ("demo", "ready", branch)
        assert payload["working_directory"] == str(repository.path)
        listed = shared.session(sid := payload["session_id"])
        assert (listed["status"], listed["agent_type"]) == ("active", "demo")
        assert listed["title"] == repository.path.name
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


# -- several phones --------------------------------------------------------------------------------


@pytest.mark.spec("limit.replay_buffer", "ws.replay_buffer")
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
        assert notifications(other, session, "approval_decided")[0]["data"] == {
            "tool_call_id": call_id,
            "decision": "rejected",
            "decided_by": "bridge",
            "reason": "session_closed",
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
    assert status(shared, session) == "closed"


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
    for type_, fields in {
        "message": CHAT,
        "session_interrupt": {},
        "git_status_request": {},
        "file_list": {"path": "."},
        "replay_request": {},
    }.items():
        answer = phone.request(type_, {"session_id": session} | fields)
        assert_refused(answer, "SESS_CLOSED", False, session)
    over_http = http_say(shared, session, {"type": "user_message", "content": "hi"})
    assert_error(over_http, 409, "SESSION_CLOSED")


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
