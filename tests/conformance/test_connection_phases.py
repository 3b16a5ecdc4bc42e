"""Phases of a connection (spec, States and Authentication; D4, D7, D20 to D22, D24, D25)."""

from __future__ import annotations

import json

import pytest

from bridge_project.protocol.server_messages import ConnectionAck
from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_now, is_uuid
from tests.conformance.phone import Closed, Phone
from tests.conformance.samples import hook, new_id, new_session, now, prompt

ACKNOWLEDGE = {
    "warning_code": "DIRECT_PUBLIC_CONNECTION",
    "acknowledged": True,
    "acknowledged_at": "2026-01-01T00:00:00Z",
}


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
    fields = ConnectionAck.model_fields.items()
    assert set(payload) >= {name for name, field in fields if field.is_required()}
    assert payload["requires_health_verification"] is True
    assert payload["connection_mode"] == "local_only" and payload["connection_mode_description"]
    assert payload["bridge_url"] == f"wss://127.0.0.1:{shared.port}/api/v1/ws"
    sessions = {session["session_id"]: session for session in payload["active_sessions"]}
    assert sessions[sid]["agent"] == "primary-agent"
    assert sessions[sid]["working_directory"] == "/srv/app"
    assert sessions[sid]["title"] == "app"
    assert closed not in sessions, "D25: active_sessions lists no closed session"


@pytest.mark.spec("ws.health_check", "ws.health_status", "phase.health", "phase.ready")
def test_health_status(device: Phone) -> None:
    """Spec: the payload of health_status; local_only is healthy and ready at once."""
    device.connect()
    device.auth()
    answer = device.health_check()
    payload = answer["payload"]
    assert answer["type"] == "health_status"
    assert payload["status"] == "healthy"
    assert payload["connection_mode"] == "local_only"
    assert payload["warnings"] == []
    assert payload["warning_details"] == {}
    assert payload["checks"] == {
        "tls_valid": True,
        "clock_sync": True,
        "version_compatible": True,
        "token_permissions": True,
    }
    assert payload["ready"] is True and payload["requires_acknowledgment"] is False
    assert isinstance(payload["latency_ms"], int | float) and payload["latency_ms"] >= 0
    assert_now(payload["server_timestamp"])


@pytest.mark.spec("ws.health_status")
def test_a_wrong_clock_is_a_warning(device: Phone) -> None:
    """D25: more than 5 minutes off: warning CLOCK_SKEW, ready stays true."""
    device.connect()
    device.auth()
    for seconds in (-600, 600):
        payload = device.health_check(timestamp=now(seconds))["payload"]
        assert (payload["status"], payload["warnings"]) == ("warning", ["CLOCK_SKEW"])
        assert "CLOCK_SKEW" in payload["warning_details"]
        assert payload["ready"] is True and payload["requires_acknowledgment"] is False
        assert payload["checks"]["clock_sync"] is False
        assert device.health_check(timestamp=now(seconds / 3))["payload"]["warnings"] == []


@pytest.mark.spec("phase.rejected", "connerror.AUTH_FAILED", "ws.connection_error", "auth.device")
def test_what_is_no_device_token(shared: Bridge, device: Phone) -> None:
    """Spec: token invalid: connection_error (AUTH_FAILED, id of the auth); D21: close 4401; D14:
    the hook and the admin token open no socket.
    """
    wrong = ("wrong", "", "x" * 300, "ünïcode", "a\x00b", shared.hook_token, shared.admin_token)
    for token in wrong:
        device.connect()
        answer = device.auth(token=token)
        assert answer["type"] == "connection_error", answer
        assert answer["payload"]["code"] == "AUTH_FAILED" and answer["payload"]["message"]
        assert device.wait_closed() == 4401


@pytest.mark.spec("envelope.id", "ws.auth")
def test_ids_of_any_form(device: Phone) -> None:
    """D4: id is any string of 1 to 128 characters, and the reply carries it; absent: a fresh
    UUID.
    """
    body = {"token": device.token, "client_version": "1.2.3", "platform": "ios"}
    for id_ in ("auth-001", new_id().upper(), "y" * 128, "ü 会"):
        device.connect()
        device.send("auth", body, id=id_)
        assert device.receive()["id"] == id_
    device.connect()
    device.send_raw(json.dumps({"type": "auth", "timestamp": now(), "payload": body}))
    answer = device.receive()
    assert answer["type"] == "connection_ack" and is_uuid(answer["id"])


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
    assert ready["payload"]["working_directory"] == "/srv/app"
    assert ready["payload"]["agent"] == "primary-agent"
    assert phone.join(sid)["payload"]["session_id"] == sid, "joining is always done (D31)"


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
    assert error["type"] == "connection_error"
    assert error["payload"]["code"] == "MISCONFIGURED"
    assert error["payload"]["remediation"]


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
    assert status["connection_mode"] == "direct_public"
    assert status["status"] == "warning"
    assert status["warnings"] == ["DIRECT_PUBLIC_CONNECTION"]
    assert "DIRECT_PUBLIC_CONNECTION" in status["warning_details"]
    assert status["requires_acknowledgment"] is True and status["ready"] is False
    public.accept(prompt(sid, 1))
    refused = assert_refused(with_events.start(sid), "PROTO_SEQUENCE_ERROR", True)
    assert "acknowledge_warning" in str(refused["details"]["expected"])
    for change in ({"acknowledged": False}, {"warning_code": "SOMETHING_ELSE"}):
        answer = with_events.request("acknowledge_warning", ACKNOWLEDGE | change)
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
