"""Phases of a connection (spec, States and Authentication; D4, D7, D20 to D22, D24, D25)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_now, is_uuid
from tests.conformance.phone import Closed, Message, Phone
from tests.conformance.samples import hook, new_id, new_session, now, prompt

SESSION = "some-session"
SESSION_MESSAGES: dict[str, dict[str, Any]] = {
    "session_start": {
        "agent": "a",
        "session_id": SESSION,
        "working_directory": "/",
        "resume": False,
    },
    "session_end": {"session_id": SESSION, "reason": "user_request"},
    "message": {"session_id": SESSION, "content": "hi", "role": "user"},
    "replay_request": {"session_id": SESSION, "since": "2026-01-01T00:00:00Z"},
    "git_status_request": {"session_id": SESSION},
    "file_list": {"session_id": SESSION, "path": "."},
    "file_read": {"session_id": SESSION, "path": "a", "offset": 0, "limit": 10},
    "approval_response": {
        "session_id": SESSION,
        "tool_call_id": "t",
        "decision": "approved",
        "modifications": None,
    },
}
HEALTH = {
    "timestamp": "2026-01-01T00:00:00Z",
    "client_nonce": "n",
    "client_capabilities": ["health_v1"],
}
ACKNOWLEDGE = {
    "warning_code": "DIRECT_PUBLIC_CONNECTION",
    "acknowledged": True,
    "acknowledged_at": "2026-01-01T00:00:00Z",
}


def assert_sequence_error(answer: Message, received: str) -> None:
    """D21: PROTO_SEQUENCE_ERROR with details {expected, received, currentPhase}, as an error
    message (spec, WebSocket errors).
    """
    assert answer["type"] == "error", answer
    payload = answer["payload"]
    assert (
        payload["code"] == "PROTO_SEQUENCE_ERROR"
        and isinstance(payload["message"], str)
        and isinstance(payload["recoverable"], bool)
    ), payload
    assert "session_id" in payload
    assert (
        set(payload["details"]) >= {"expected", "received", "currentPhase"}
        and payload["details"]["received"] == received
    ), payload


def assert_refused(phone: Phone, answer: Message, code: str, close: int) -> dict[str, Any]:
    """A connection_error and then the close (D21)."""
    assert answer["type"] == "connection_error", answer
    payload = dict(answer["payload"])
    assert payload["code"] == code and isinstance(payload["message"], str) and payload["message"], (
        payload
    )
    assert phone.wait_closed() == close
    return payload


@pytest.mark.spec("ws.connection_ack", "info.*", "phase.accepted", "mode.local_only", "ws.auth")
def test_connection_ack(shared: Bridge, sid: str, device: Phone) -> None:
    """Spec: the payload of connection_ack, its id that of auth; active_sessions as session info."""
    shared.accept(hook("SessionStart", sid, {"working_directory": "/srv/app"}))
    closed = new_session()
    shared.accept(hook("SessionStart", closed), hook("SessionEnd", closed))
    device.connect()
    answer = device.auth()
    assert answer["type"] == "connection_ack"
    assert_now(answer["timestamp"])
    payload = answer["payload"]
    assert set(payload) >= {
        "server_version",
        "supported_agents",
        "connection_mode",
        "connection_mode_description",
        "bridge_url",
        "requires_health_verification",
        "active_sessions",
    }
    assert (
        payload["requires_health_verification"] is True
        and payload["connection_mode"] == "local_only"
    )
    assert payload["bridge_url"].startswith("wss://") or payload["bridge_url"].startswith(
        "https://"
    )
    assert str(shared.port) in payload["bridge_url"] and payload["connection_mode_description"]
    sessions = {session["session_id"]: session for session in payload["active_sessions"]}
    assert (
        sessions[sid]["agent"] == "primary-agent"
        and sessions[sid]["working_directory"] == "/srv/app"
        and sessions[sid]["title"] == "app"
    )
    assert closed not in sessions, "D25: active_sessions lists no closed session"


@pytest.mark.parametrize(
    "type_", ["health_check", "acknowledge_warning", "notification_ack", *SESSION_MESSAGES]
)
@pytest.mark.spec("auth.first", "wscode.PROTO_SEQUENCE_ERROR")
def test_auth_comes_first(device: Phone, type_: str) -> None:
    """D21: before connection_ack only auth is allowed; the connection stays open and auth still
    works.
    """
    payload = (
        SESSION_MESSAGES.get(type_)
        or {
            "health_check": HEALTH,
            "acknowledge_warning": ACKNOWLEDGE,
            "notification_ack": {"notification_ids": []},
        }[type_]
    )
    device.connect()
    assert_sequence_error(device.request(type_, payload), type_)
    assert device.auth()["type"] == "connection_ack"


def test_a_heartbeat_before_auth(device: Phone) -> None:
    """D21: only auth, so no pong either."""
    device.connect()
    device.send_raw(f'{{"type": "heartbeat_ping", "timestamp": "{now()}"}}')
    assert_sequence_error(device.receive(), "heartbeat_ping")


@pytest.mark.parametrize("type_", SESSION_MESSAGES)
@pytest.mark.spec("wscode.PROTO_SEQUENCE_ERROR")
def test_health_check_comes_second(shared: Bridge, device: Phone, type_: str) -> None:
    """D21: before ready only health_check, acknowledge_warning, notification_ack and heartbeats."""
    device.connect()
    device.auth()
    assert_sequence_error(device.request(type_, SESSION_MESSAGES[type_]), type_)
    device.send("notification_ack", {"notification_ids": [new_id()]})
    device.ping()
    assert device.health_check()["payload"]["ready"] is True


def test_auth_twice(device: Phone) -> None:
    """D21: auth is for a connection that has none; anything else is a sequence error, and the first
    stays in force.
    """
    device.connect()
    assert device.auth()["type"] == "connection_ack"
    assert_sequence_error(device.auth(), "auth")
    assert device.health_check()["payload"]["ready"] is True
    assert_sequence_error(device.auth(), "auth")
    device.ping()


@pytest.mark.spec("ws.health_check", "ws.health_status", "phase.health", "phase.ready")
def test_health_status(device: Phone) -> None:
    """Spec: the payload of health_status; local_only is healthy and ready at once."""
    device.connect()
    device.auth()
    answer = device.health_check()
    payload = answer["payload"]
    assert answer["type"] == "health_status"
    assert (
        payload["status"] == "healthy"
        and payload["connection_mode"] == "local_only"
        and payload["warnings"] == []
        and payload["warning_details"] == {}
    )
    assert payload["checks"] == {
        "tls_valid": True,
        "clock_sync": True,
        "version_compatible": True,
        "token_permissions": True,
    }
    assert payload["ready"] is True and payload["requires_acknowledgment"] is False
    assert isinstance(payload["latency_ms"], int | float) and payload["latency_ms"] >= 0
    assert_now(payload["server_timestamp"])


def test_health_checks_may_be_repeated(phone: Phone) -> None:
    """A client may check its health again; it stays ready."""
    assert phone.health_check()["payload"]["ready"] is True


@pytest.mark.parametrize("seconds", [-600, 600])
@pytest.mark.spec("ws.health_status")
def test_a_wrong_clock_is_a_warning(device: Phone, seconds: int) -> None:
    """D25: more than 5 minutes off: warning CLOCK_SKEW, ready stays true."""
    device.connect()
    device.auth()
    payload = device.health_check(timestamp=now(seconds))["payload"]
    assert (
        payload["warnings"] == ["CLOCK_SKEW"]
        and "CLOCK_SKEW" in payload["warning_details"]
        and payload["status"] == "warning"
    )
    assert (
        payload["ready"] is True
        and payload["requires_acknowledgment"] is False
        and payload["checks"]["clock_sync"] is False
    )
    assert device.health_check(timestamp=now(seconds / 3))["payload"]["warnings"] == []


@pytest.mark.parametrize("token", ["wrong", "", "x" * 300, "ünïcode", "a\x00b"], ids=repr)
@pytest.mark.spec("phase.rejected", "connerror.AUTH_FAILED", "ws.connection_error")
def test_a_wrong_token(device: Phone, token: str) -> None:
    """Spec: token invalid: connection_error (AUTH_FAILED, id of the auth); D21: close 4401."""
    device.connect()
    answer = device.auth(token=token)
    assert_refused(device, answer, "AUTH_FAILED", 4401)


@pytest.mark.spec("auth.device")
def test_other_tokens_are_no_device_tokens(shared: Bridge, device: Phone) -> None:
    """D14: the hook and the admin token open no socket."""
    for token in (shared.hook_token, shared.admin_token):
        device.connect()
        assert_refused(device, device.auth(token=token), "AUTH_FAILED", 4401)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"platform": "windows"}, "platform"),
        ({"platform": None}, "platform"),
        ({"client_version": 5}, "client_version"),
        ({"token": 5}, "token"),
        ({"token": None}, "token"),
        ({"device_id": {}}, "device_id"),
    ],
    ids=str,
)
@pytest.mark.spec("ws.auth")
def test_a_malformed_auth(device: Phone, change: dict[str, Any], field: str) -> None:
    """Spec: auth's fields; PROTO_INVALID_MESSAGE with violations {field, constraint, received}; a
    right one may follow.
    """
    device.connect()
    answer = device.auth(**change)
    assert answer["type"] == "error" and answer["payload"]["code"] == "PROTO_INVALID_MESSAGE", (
        answer
    )
    violations = answer["payload"]["violations"]
    assert [violation["field"] for violation in violations] == [f"payload.{field}"] or [
        violation["field"] for violation in violations
    ] == [field]
    assert all(set(violation) == {"field", "constraint", "received"} for violation in violations)
    assert device.auth()["type"] == "connection_ack"


def test_auth_may_carry_more(device: Phone) -> None:
    """D3: unknown fields of a payload are never an error."""
    device.connect()
    assert (
        device.auth(device_model="Phone 9", push={"a": 1}, platform="web")["type"]
        == "connection_ack"
    )


@pytest.mark.parametrize(
    "id_",
    [
        "auth-001",
        "auth-6f1c2a90-1d2e-4c3b-9a8f-0b1c2d3e4f50",
        "x",
        "y" * 128,
        "ü 会",
        "6F1C2A90-1D2E-4C3B-9A8F-0B1C2D3E4F50",
    ],
)
@pytest.mark.spec("envelope.id")
def test_ids_of_any_form(device: Phone, id_: str) -> None:
    """D4: id is any string of 1 to 128 characters, and the reply carries it."""
    device.connect()
    device.send(
        "auth", {"token": device.token, "client_version": "1.2.3", "platform": "ios"}, id=id_
    )
    assert device.receive()["id"] == id_


@pytest.mark.spec("envelope.id")
def test_no_id(device: Phone) -> None:
    """D4: absent id: answered with a fresh UUID."""
    device.connect()
    device.send_raw(
        f'{{"type": "auth", "timestamp": "{now()}", "payload": {{"token": "{device.token}", "client_version": "1.2.3", "platform": "ios"}}}}'
    )
    answer = device.receive()
    assert answer["type"] == "connection_ack" and is_uuid(answer["id"])


@pytest.mark.parametrize("id_", ["", "y" * 129, 5, {}, ["x"], True], ids=repr)
@pytest.mark.spec("envelope.id")
def test_ids_that_are_none(phone: Phone, id_: Any) -> None:
    """D4: PROTO_INVALID_MESSAGE for anything but a string of 1 to 128 characters; the answer has a
    good id.
    """
    phone.send("health_check", HEALTH, id=id_)
    answer = phone.expect("error", code="PROTO_INVALID_MESSAGE")
    assert is_uuid(answer["id"])
    phone.ping()


@pytest.mark.spec("envelope.id")
def test_strict_ids(narrow: Bridge) -> None:
    """D4: with BRIDGE_STRICT_PROTOCOL=1 only a UUID v4 is an id."""
    phone = narrow.phone()
    phone.connect()
    body = {"token": phone.token, "client_version": "1.2.3", "platform": "ios"}
    for id_ in ("auth-001", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"):
        phone.send("auth", body, id=id_)
        assert phone.receive()["payload"]["code"] == "PROTO_INVALID_MESSAGE"
    assert phone.auth()["type"] == "connection_ack"
    phone.close()


@pytest.mark.spec("wscode.SESSION_NOT_FOUND", "ws.error", "error.recoverable")
def test_unknown_closed_not_joined(shared: Bridge, sid: str, phone: Phone) -> None:
    """D7: the checks come in the order unknown, closed, not joined; D21: a session message needs
    its session joined.
    """
    answer = phone.request("replay_request", {"session_id": "never-heard-of", "since": now(-60)})
    assert (
        answer["type"] == "error"
        and answer["payload"]["code"] == "SESSION_NOT_FOUND"
        and answer["payload"]["recoverable"] is False
    )
    assert answer["payload"]["session_id"] == "never-heard-of"
    shared.accept(prompt(sid, 1))
    assert_sequence_error(
        phone.request("session_end", {"session_id": sid, "reason": "user_request"}), "session_end"
    )
    assert_sequence_error(
        phone.request("replay_request", {"session_id": sid, "since": now(-60)}), "replay_request"
    )


@pytest.mark.parametrize("type_", ["session_end", "replay_request"])
@pytest.mark.spec("wscode.SESSION_NOT_FOUND")
def test_unknown_sessions(phone: Phone, type_: str) -> None:
    """D7: any message but session_start naming an unknown session: SESSION_NOT_FOUND."""
    answer = phone.request(type_, SESSION_MESSAGES[type_] | {"session_id": new_session()})
    assert answer["payload"]["code"] == "SESSION_NOT_FOUND"


@pytest.mark.spec("state.unknown", "wscode.SESS_NOT_FOUND")
def test_resuming_an_unknown_session(phone: Phone) -> None:
    """D7: session_start with resume true on an unknown id: SESS_NOT_FOUND."""
    answer = phone.start(new_session(), resume=True)
    assert answer["type"] == "error" and answer["payload"]["code"] == "SESS_NOT_FOUND"


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.spec("ws.session_start", "ws.session_ready")
def test_joining_an_observed_session(shared: Bridge, sid: str, phone: Phone, resume: bool) -> None:
    """D22: a known id joins it, agent and working_directory are ignored; session_ready reports
    status ready.
    """
    shared.accept(hook("SessionStart", sid, {"working_directory": "/srv/app"}))
    ready = phone.join(sid, resume=resume)
    assert set(ready["payload"]) >= {"session_id", "agent", "working_directory", "branch", "status"}
    assert ready["payload"]["session_id"] == sid and ready["payload"]["status"] == "ready"
    assert (
        ready["payload"]["working_directory"] == "/srv/app"
        and ready["payload"]["agent"] == "primary-agent"
    )
    assert phone.join(sid)["payload"]["session_id"] == sid, "joining is always done (D31)"


def test_a_closed_observed_session_can_be_joined(shared: Bridge, sid: str, phone: Phone) -> None:
    """D7: replay works there; message gets SESS_CLOSED."""
    shared.accept(prompt(sid, 1), prompt(sid, 2), hook("SessionEnd", sid))
    phone.join(sid)
    replay = phone.request("replay_request", {"session_id": sid, "since": now(-60)})
    assert replay["type"] == "replay_buffer"


CHAT = {"content": "hi", "role": "user"}


def test_a_message_to_unknown_closed_and_not_joined_sessions(
    shared: Bridge, sid: str, phone: Phone
) -> None:
    """D7: SESSION_NOT_FOUND, then SESS_CLOSED (also where not joined), then
    PROTO_SEQUENCE_ERROR.
    """
    assert (
        phone.request("message", CHAT | {"session_id": new_session()})["payload"]["code"]
        == "SESSION_NOT_FOUND"
    )
    shared.accept(prompt(sid, 1))
    assert_sequence_error(phone.request("message", CHAT | {"session_id": sid}), "message")
    shared.accept(hook("SessionEnd", sid))
    assert phone.request("message", CHAT | {"session_id": sid})["payload"]["code"] == "SESS_CLOSED"
    phone.join(sid)
    assert phone.request("message", CHAT | {"session_id": sid})["payload"]["code"] == "SESS_CLOSED"


def test_a_message_to_an_observed_session(shared: Bridge, sid: str, phone: Phone) -> None:
    """Spec: hooks are observation only: a joined observed session takes no chat message; the client
    is told.
    """
    shared.accept(prompt(sid, 1))
    phone.join(sid)
    answer = phone.request("message", {"session_id": sid, "content": "x", "role": "user"})
    assert answer["type"] == "error" and answer["payload"]["session_id"] == sid


@pytest.mark.spec(
    "phase.misconfigured", "mode.misconfigured", "connerror.MISCONFIGURED", "health.connection_mode"
)
def test_mode_misconfigured(misconfigured: Bridge) -> None:
    """Spec: a connection in mode misconfigured is rejected; D20: HTTP is served and /health says
    so; D21: close 4403.
    """
    health = misconfigured.get("/api/v1/health", misconfigured.hook_token)
    assert health.status == 200 and health.json()["connection_mode"] == "misconfigured"
    phone = misconfigured.phone()
    phone.connect()
    try:
        phone.send("auth", {"token": phone.token, "client_version": "1.2.3", "platform": "ios"})
    except Closed:
        pass
    assert phone.wait_closed() == 4403
    (error,) = phone.messages
    assert (
        error["type"] == "connection_error"
        and error["payload"]["code"] == "MISCONFIGURED"
        and error["payload"]["remediation"]
    )


@pytest.mark.spec(
    "phase.acknowledge",
    "mode.direct_public",
    "ws.acknowledge_warning",
    "ws.acknowledgment_accepted",
    "limit.acknowledged",
)
def test_direct_public(public: Bridge) -> None:
    """Spec: requires user acknowledgment before ready becomes true; D24, D28: no event before,
    everything after; holds across reconnects.
    """
    sid = new_session()
    public.accept(prompt(sid, 0))
    with_events = public.phone(client_version="1.5.0")
    with_events.connect()
    assert with_events.auth()["payload"]["connection_mode"] == "direct_public"
    status = with_events.health_check()["payload"]
    assert (
        status["connection_mode"] == "direct_public"
        and status["status"] == "warning"
        and status["warnings"] == ["DIRECT_PUBLIC_CONNECTION"]
    )
    assert "DIRECT_PUBLIC_CONNECTION" in status["warning_details"]
    assert status["requires_acknowledgment"] is True and status["ready"] is False
    public.accept(prompt(sid, 1))
    assert_sequence_error(with_events.start(sid), "session_start")
    answer = with_events.request("acknowledge_warning", ACKNOWLEDGE | {"acknowledged": False})
    assert answer["payload"].get("ready") is not True
    answer = with_events.request(
        "acknowledge_warning", ACKNOWLEDGE | {"warning_code": "SOMETHING_ELSE"}
    )
    assert answer["payload"].get("ready") is not True
    assert with_events.health_check()["payload"]["ready"] is False
    assert with_events.events(sid) == [], "D28: in mode direct_public once ready"
    answer = with_events.request("acknowledge_warning", ACKNOWLEDGE | {"acknowledged_at": now()})
    assert answer["type"] == "acknowledgment_accepted"
    assert answer["payload"] == {
        "warning_code": "DIRECT_PUBLIC_CONNECTION",
        "ready": True,
        "session_timeout": "8h",
    }
    with_events.wait_numbers(sid, [1])
    assert with_events.join(sid)["type"] == "session_ready"
    with_events.close()
    with_events.connect()
    with_events.auth()
    status = with_events.health_check()["payload"]
    assert status["ready"] is True and status["requires_acknowledgment"] is False, (
        "D24: 8 hours, across reconnects"
    )
    with_events.close()


@pytest.mark.spec("mode.direct_public")
def test_forwarding_headers_from_a_stranger(shared: Bridge, device: Phone) -> None:
    """D20: forwarding headers from a peer that is no trusted proxy make it direct_public."""
    device.connect(headers={"X-Forwarded-For": "127.0.0.1"})
    assert device.auth()["payload"]["connection_mode"] == "direct_public"


def test_a_host_header_changes_no_mode(device: Phone) -> None:
    """D20: the mode never comes from a Host header (localhost is one of the bridge's names)."""
    device.connect(
        headers={"X-Forwarded-Host": "192.168.1.5", "Origin": f"https://localhost:{device.port}"}
    )
    assert device.auth()["payload"]["connection_mode"] in ("local_only", "direct_public")
