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
IN_A_SESSION: dict[str, dict[str, Any]] = {
    "session_end": {"reason": "user_request"},
    "session_interrupt": {},
    "message": {"content": "hi", "role": "user"},
    "git_status_request": {},
    "git_commit": {"message": "m", "files": None},
    "git_diff": {"files": None, "cached": False},
    "file_list": {"path": "."},
    "file_read": {"path": "a", "offset": 0, "limit": 1},
    "replay_request": {"since": "2026-01-01T00:00:00Z"},
}


AGENTS = ("message", "session_interrupt")  # what only a session that the bridge runs can take
SERVED = {type_: fields for type_, fields in IN_A_SESSION.items() if type_ not in AGENTS}


def assert_sequence(answer: Message, received: str, phase: str, expected: str) -> None:
    """Spec: details expected, received, currentPhase; recoverable: the client may go on in the
    right order.
    """
    details = assert_refused(answer, "PROTO_SEQUENCE_ERROR", True)["details"]
    assert (
        set(details) == {"expected", "received", "currentPhase"} and details["received"] == received
    ), details
    assert str(details["currentPhase"]).lower().replace("_", " ") == phase, details
    assert expected in json.dumps(details["expected"]), details


@pytest.mark.spec("auth.first")
def test_before_auth(device: Phone, sid: str) -> None:
    """Spec: raised when auth is not first; D21: only auth, which still works afterwards;
    heartbeats neither.
    """
    device.connect()
    for type_, fields in (HANDSHAKE | JOINING | IN_A_SESSION).items():
        payload = fields if type_ in HANDSHAKE else {"session_id": sid} | fields
        assert_sequence(device.request(type_, payload), type_, "open", "auth")
    device.send_raw(json.dumps({"type": "heartbeat_ping", "timestamp": now()}))
    assert_sequence(device.receive(), "heartbeat_ping", "open", "auth")
    assert device.auth()["type"] == "connection_ack"


def test_before_ready(shared: Bridge, sid: str, device: Phone) -> None:
    """D21: before ready only health_check, acknowledge_warning, notification_ack and heartbeats;
    known session or not.
    """
    shared.accept(prompt(sid, 0))
    device.connect()
    device.auth()
    for session_id in (sid, new_session()):
        for type_, fields in (JOINING | IN_A_SESSION).items():
            assert_sequence(
                device.request(type_, {"session_id": session_id} | fields),
                type_,
                "authenticated",
                "health_check",
            )
    assert_sequence(device.request("auth", AUTH), "auth", "authenticated", "health_check")
    device.send("notification_ack", HANDSHAKE["notification_ack"])
    device.ping()
    assert device.health_check()["payload"]["ready"] is True


def test_auth_when_ready(phone: Phone) -> None:
    """D21: auth is for a connection that has none."""
    details = assert_refused(phone.request("auth", AUTH), "PROTO_SEQUENCE_ERROR", True)["details"]
    assert (
        details["received"] == "auth" and details["currentPhase"] == "ready" and details["expected"]
    ), details


def test_before_joining(shared: Bridge, sid: str, phone: Phone) -> None:
    """Spec: raised when a session message precedes joining; D7: after unknown and closed, and only
    then.
    """
    shared.accept(prompt(sid, 0))
    for type_, fields in IN_A_SESSION.items():
        answer = phone.request(type_, {"session_id": sid} | fields)
        assert_sequence(answer, type_, "ready", "session_start")
        assert answer["payload"]["session_id"] == sid
        unknown = new_session()
        assert_refused(
            phone.request(type_, {"session_id": unknown} | fields),
            "SESSION_NOT_FOUND",
            False,
            unknown,
        )
    assert (
        phone.request("approval_response", {"session_id": sid} | JOINING["approval_response"])[
            "payload"
        ]["code"]
        == "TOOL_CALL_NOT_FOUND"
    )
    phone.join(sid)
    assert (
        phone.request("replay_request", {"session_id": sid} | IN_A_SESSION["replay_request"])[
            "type"
        ]
        == "replay_buffer"
    )


def test_after_leaving(shared: Bridge, sid: str, joined: Phone) -> None:
    """D21, D22: a session that was left is not joined."""
    joined.leave(sid)
    for type_, fields in IN_A_SESSION.items():
        assert_sequence(
            joined.request(type_, {"session_id": sid} | fields), type_, "ready", "session_start"
        )


def test_a_new_connection_has_joined_nothing(shared: Bridge, sid: str, joined: Phone) -> None:
    """D21, D28: joins are a connection's own."""
    joined.close()
    joined.ready()
    assert_sequence(
        joined.request("file_list", {"session_id": sid, "path": "."}),
        "file_list",
        "ready",
        "session_start",
    )
