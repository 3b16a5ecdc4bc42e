"""PROTO_SEQUENCE_ERROR (spec, WebSocket errors and Connection phases; D7, D21): each message in
each phase in which it may not come.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_session, now, prompt

pytestmark = pytest.mark.spec("wscode.PROTO_SEQUENCE_ERROR", "error.recoverable")

AUTH = {"token": "x" * 43, "client_version": "1.2.3", "platform": "ios"}
HANDSHAKE: dict[str, dict[str, Any]] = {
    "health_check": {"timestamp": now(), "client_nonce": "n", "client_capabilities": ["health_v1"]},
    "acknowledge_warning": {
        "warning_code": "DIRECT_PUBLIC_CONNECTION",
        "acknowledged": True,
        "acknowledged_at": now(),
    },
    "notification_ack": {"notification_ids": ["x"]},
}
JOINING: dict[str, dict[str, Any]] = {
    "session_start": {"agent": "a", "working_directory": "/", "resume": False},
    "approval_response": {"tool_call_id": "x", "decision": "approved", "modifications": None},
}
# what only a session that the bridge runs can take
AGENTS: dict[str, dict[str, Any]] = {
    "message": {"content": "hi", "role": "user"},
    "session_interrupt": {},
}
SERVED: dict[str, dict[str, Any]] = {
    "session_end": {"reason": "user_request"},
    "git_status_request": {},
    "git_commit": {"message": "m", "files": None},
    "git_diff": {"files": None, "cached": False},
    "file_list": {"path": "."},
    "file_read": {"path": "a", "offset": 0, "limit": 1},
    "replay_request": {"since": "2026-01-01T00:00:00Z"},
}
IN_A_SESSION = AGENTS | SERVED


def assert_sequence(answer: Message, received: str, phase: str, expected: str) -> None:
    details = assert_refused(answer, "PROTO_SEQUENCE_ERROR", True)["details"]
    assert set(details) == {"expected", "received", "currentPhase"}, details
    assert (details["received"], details["currentPhase"]) == (received, phase), details
    assert expected in json.dumps(details["expected"]), details


def assert_not_joined(phone: Phone, session_id: str) -> None:
    for type_, fields in IN_A_SESSION.items():
        answer = phone.request(type_, {"session_id": session_id} | fields)
        assert_sequence(answer, type_, "ready", "session_start")
        assert answer["payload"]["session_id"] == session_id


@pytest.mark.spec("auth.first")
def test_before_auth(device: Phone, sid: str) -> None:
    """Not even heartbeats; auth still works afterwards."""
    device.connect()
    for type_, fields in (HANDSHAKE | JOINING | IN_A_SESSION).items():
        payload = fields if type_ in HANDSHAKE else {"session_id": sid} | fields
        assert_sequence(device.request(type_, payload), type_, "open", "auth")
    device.send_raw(json.dumps({"type": "heartbeat_ping", "timestamp": now()}))
    assert_sequence(device.receive(), "heartbeat_ping", "open", "auth")
    assert device.auth()["type"] == "connection_ack"


def test_before_ready(shared: Bridge, sid: str, device: Phone) -> None:
    """Only health_check, acknowledge_warning, notification_ack and heartbeats."""
    shared.accept(prompt(sid, 0))
    device.connect().auth()
    for session_id in (sid, new_session()):
        for type_, fields in (JOINING | IN_A_SESSION).items():
            answer = device.request(type_, {"session_id": session_id} | fields)
            assert_sequence(answer, type_, "authenticated", "health_check")
    assert_sequence(device.request("auth", AUTH), "auth", "authenticated", "health_check")
    device.send("notification_ack", HANDSHAKE["notification_ack"])
    device.ping()
    assert device.health_check()["payload"]["ready"] is True


def test_auth_when_ready(phone: Phone) -> None:
    assert_sequence(phone.request("auth", AUTH), "auth", "ready", "")


def test_before_joining(shared: Bridge, sid: str, phone: Phone) -> None:
    """D7: after unknown and closed, and only then."""
    shared.accept(prompt(sid, 0))
    assert_not_joined(phone, sid)
    decision = {"approval_response": JOINING["approval_response"]}
    for type_, fields in (IN_A_SESSION | decision).items():
        for unknown in (new_session(), "x" * 256, "%s", "../x", "ü 会"):
            answer = phone.request(type_, {"session_id": unknown} | fields)
            assert_refused(answer, "SESSION_NOT_FOUND", False, unknown)
    answer = phone.request("approval_response", {"session_id": sid} | JOINING["approval_response"])
    assert answer["payload"]["code"] == "TOOL_CALL_NOT_FOUND"
    phone.join(sid)
    asked = {"session_id": sid} | SERVED["replay_request"]
    assert phone.request("replay_request", asked)["type"] == "replay_buffer"


def test_after_leaving_or_on_a_new_connection(sid: str, joined: Phone) -> None:
    """D22, D28: a session that was left is not joined; joins are a connection's own."""
    joined.leave(sid)
    assert_not_joined(joined, sid)
    joined.join(sid)
    joined.close()
    assert_not_joined(joined.ready(), sid)
