"""The life of a session that the bridge runs, seen from phones (D7, D22, D28, D34 to D36, D41)."""

from typing import Any

import pytest

from tests.conformance.agent_tools import CHAT, http_say, status
from tests.conformance.agents import begin, end, start, tool
from tests.conformance.approvals import assert_refused, notifications, of
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.https import assert_error
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository


@pytest.mark.spec("ws.session_start", "ws.session_ready")
def test_a_session_is_created(shared: Bridge, phone: Phone, repository: Repository) -> None:
    """D22, D6: with session_id null; it is listed, titled by its directory, and announced."""
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


@pytest.mark.spec("ws.session_end")
def test_ending_a_session(shared: Bridge, phone: Phone, session: str) -> None:
    """D22, D38: for everybody, once, whatever the agent is doing; what is pending is rejected."""
    call_id = tool(phone, session)["tool_call_id"]
    with shared.phones(1) as (other,):
        other.join(session)
        answer = end(phone, session)
        assert answer["type"] == "session_end"
        assert answer["payload"] == {"session_id": session, "reason": "user_request"}
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
    """D7, D35: everything that names it is SESS_CLOSED; over HTTP 409."""
    end(phone, session)
    for resume in (False, True):
        answer = start(phone, shared.root, session, resume=resume)
        assert_refused(answer, "SESS_CLOSED", False, session)
    fields: dict[str, dict[str, Any]] = {"message": CHAT, "file_list": {"path": "."}}
    for type_ in ("message", "session_interrupt", "git_status_request", "file_list"):
        answer = phone.request(type_, {"session_id": session} | fields.get(type_, {}))
        assert_refused(answer, "SESS_CLOSED", False, session)
    assert_error(http_say(shared, session), 409, "SESSION_CLOSED")


@pytest.mark.spec("state.unknown", "wscode.SESS_NOT_FOUND")
def test_resuming_what_is_not_there(shared: Bridge, phone: Phone, sid: str) -> None:
    """D7, D22: SESS_NOT_FOUND; without resume it is created under that id, and then attached to."""
    assert_refused(start(phone, shared.root, sid, resume=True), "SESS_NOT_FOUND", False, sid)
    assert begin(shared, phone, sid) == sid and begin(shared, phone, sid) == sid
    assert start(phone, shared.root, sid, resume=True)["type"] == "session_ready"
    end(phone, sid)
