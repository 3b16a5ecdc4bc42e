"""Phases of a connection, versions, how many there may be (D4, D7, D15, D20 to D25, D28, D44)."""

import json
from contextlib import closing, suppress

import pytest

from bridge_project.protocol.server_messages import ConnectionAck
from tests.conformance.approvals import assert_refused, pre
from tests.conformance.bridge import Bridge, query
from tests.conformance.delivery import send
from tests.conformance.https import assert_now, is_uuid
from tests.conformance.phone import Closed, Phone
from tests.conformance.raw import RawSocket
from tests.conformance.samples import hook, new_id, new_session, now, prompt
from tests.servers import wait_until


@pytest.mark.spec("ws.connection_ack phase.accepted mode.local_only ws.auth versioning.names")
@pytest.mark.spec("mode.direct_public")
def test_connection_ack(shared: Bridge, device: Phone) -> None:
    """With the version of /info and /health; what it says of sessions: test_home_screen.py. D20:
    forwarding headers from a peer that is no trusted proxy make it direct_public.
    """
    answer = device.connect().auth()
    assert answer["type"] == "connection_ack"
    assert_now(answer["timestamp"])
    payload = answer["payload"]
    fields = ConnectionAck.model_fields.items()
    assert set(payload) >= {name for name, field in fields if field.is_required()}
    assert payload["requires_health_verification"] is True
    assert payload["connection_mode"] == "local_only" and payload["connection_mode_description"]
    assert payload["bridge_url"] == f"wss://127.0.0.1:{shared.port}/api/v1/ws"
    for path in ("info", "health"):
        told = shared.get(f"/api/v1/{path}", shared.hook_token).json()
        assert told["version"] == payload["server_version"]
    device.close()
    forwarded = device.connect(headers={"X-Forwarded-For": "127.0.0.1"}).auth()
    assert forwarded["payload"]["connection_mode"] == "direct_public"


@pytest.mark.spec("ws.health_check", "ws.health_status", "phase.health", "phase.ready")
def test_health_status(device: Phone) -> None:
    """local_only is healthy and ready at once; D25: a clock that is more than five minutes off is a
    warning, and ready stays true.
    """
    device.connect().auth()
    answer = device.health_check()
    payload = answer["payload"]
    assert answer["type"] == "health_status"
    checks = ("tls_valid", "clock_sync", "version_compatible", "token_permissions")
    healthy = {"status": "healthy", "warnings": [], "warning_details": {}, "ready": True}
    healthy |= {"connection_mode": "local_only", "requires_acknowledgment": False}
    assert payload == payload | healthy | {"checks": dict.fromkeys(checks, True)}
    assert isinstance(payload["latency_ms"], int | float) and payload["latency_ms"] >= 0
    assert_now(payload["server_timestamp"])
    for seconds in (-600, 600):
        skewed = device.health_check(timestamp=now(seconds))["payload"]
        assert (skewed["status"], skewed["warnings"]) == ("warning", ["CLOCK_SKEW"])
        assert "CLOCK_SKEW" in skewed["warning_details"]
        assert skewed["ready"] is True and skewed["requires_acknowledgment"] is False
        assert skewed["checks"]["clock_sync"] is False
        assert device.health_check(timestamp=now(seconds / 3))["payload"]["warnings"] == []


@pytest.mark.spec("phase.rejected", "connerror.AUTH_FAILED", "ws.connection_error", "auth.device")
def test_what_is_no_device_token_or_version(shared: Bridge, device: Phone) -> None:
    """D14: the hook and the admin token open no socket."""
    wrong = ("wrong", "", "x" * 300, "ünïcode", "a\x00b", shared.hook_token, shared.admin_token)
    for token in wrong:
        answer = device.connect().auth(token=token)
        assert answer["type"] == "connection_error", answer
        assert answer["payload"]["code"] == "AUTH_FAILED" and answer["payload"]["message"]
        assert device.wait_closed() == 4401
    for version in ("banana", "", "1.2.3.4", "v1.2.3", "-1.2.3", "1.2.3-", "1.2.3\n", "１.2.3"):
        answer = device.connect().auth(client_version=version)
        assert answer["payload"]["code"] in ("PROTO_INVALID_MESSAGE", "VERSION_INCOMPATIBLE")


@pytest.mark.spec("envelope.id", "ws.auth")
def test_ids(device: Phone, narrow: Bridge) -> None:
    """D4: 1 to 128 characters, and the reply carries it; absent: a fresh UUID; with
    BRIDGE_STRICT_PROTOCOL=1 each message but a heartbeat has a UUID v4.
    """
    body = {"token": device.token, "client_version": "1.2.3", "platform": "ios"}
    for id_ in ("auth-001", new_id().upper(), "y" * 128, "ü 会"):
        device.connect().send("auth", body, id=id_)
        assert device.receive()["id"] == id_
    nameless = json.dumps({"type": "auth", "timestamp": now(), "payload": body})
    device.connect().send_raw(nameless)
    answer = device.receive()
    assert answer["type"] == "connection_ack" and is_uuid(answer["id"])
    with closing(narrow.phone().connect()) as strict:
        for id_ in ("auth-001", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"):
            strict.send("auth", body, id=id_)
            assert strict.receive()["payload"]["code"] == "PROTO_INVALID_MESSAGE"
        strict.send_raw(nameless)
        assert strict.receive()["payload"]["violations"][0]["field"] == "id"
        assert strict.auth()["type"] == "connection_ack"
        strict.ping()


@pytest.mark.spec("ws.session_start", "ws.session_ready", "client.repeat")
def test_joining_an_observed_session(shared: Bridge, sid: str, phone: Phone) -> None:
    """D22: agent and working_directory are ignored; D31: joining is done, also with the same id."""
    started = {"working_directory": "/srv/app"}
    shared.accept(hook("SessionStart", sid, started))
    told = {"session_id": sid, "status": "ready", "agent": "primary-agent"} | started
    joining = {"agent": "a", "session_id": sid, "working_directory": "/", "resume": False}
    id_ = new_id()
    for resume in (False, True, False):
        ready = send(phone, "session_start", id_, joining | {"resume": resume})["payload"]
        assert ready == ready | told and "branch" in ready
        assert shared.accept(prompt(sid, 1))[0]["broadcast_count"] == 1
        phone.again()


@pytest.mark.spec("phase.misconfigured", "mode.misconfigured", "connerror.MISCONFIGURED")
def test_mode_misconfigured(misconfigured: Bridge) -> None:
    """A connection is rejected; D20: HTTP is served and /health says so."""
    health = misconfigured.get("/api/v1/health", misconfigured.hook_token)
    assert health.status == 200 and health.json()["connection_mode"] == "misconfigured"
    phone = Phone(misconfigured.port, "any token").connect()
    with suppress(Closed):
        phone.send("auth", {"token": phone.token, "client_version": "1.2.3", "platform": "ios"})
    assert phone.wait_closed() == 4403
    (error,) = phone.messages
    assert error["type"] == "connection_error"
    assert error["payload"]["code"] == "MISCONFIGURED" and error["payload"]["remediation"]


@pytest.mark.spec("phase.acknowledge mode.direct_public ws.acknowledg* limit.acknowledged")
def test_direct_public(public: Bridge) -> None:
    """Ready, and sent events (D28), once the user has acknowledged (D24: for 8 hours)."""
    sid, waits, warning = new_session(), new_session(), "DIRECT_PUBLIC_CONNECTION"
    acknowledge = {"warning_code": warning, "acknowledged": True, "acknowledged_at": now()}
    public.accept(prompt(sid, 0), pre(waits, approval=True, tool_call_id="x"))
    phone = public.phone(client_version="1.5.0").connect()
    assert phone.auth()["payload"]["connection_mode"] == "direct_public"
    status = phone.health_check()["payload"]
    assert (status["connection_mode"], status["status"]) == ("direct_public", "warning")
    assert status["warnings"] == [warning] == list(status["warning_details"])
    assert status["requires_acknowledgment"] is True and status["ready"] is False
    public.accept(prompt(sid, 1))
    refused = assert_refused(phone.start(sid), "PROTO_SEQUENCE_ERROR", True)
    assert "acknowledge_warning" in str(refused["details"]["expected"])
    for change in ({"acknowledged": False}, {"warning_code": "SOMETHING_ELSE"}):
        answer = phone.request("acknowledge_warning", acknowledge | change)
        assert answer["payload"].get("ready") is not True
    assert phone.health_check()["payload"]["ready"] is False
    kinds = {message["type"] for message in phone.messages}
    assert not kinds & {"agent_event", "approval_required"}, "D28: in mode direct_public once ready"
    answer = phone.request("acknowledge_warning", acknowledge)
    assert answer["type"] == "acknowledgment_accepted"
    accepted = {"warning_code": warning, "ready": True, "session_timeout": "8h"}
    assert answer["payload"] == accepted
    trail = "SELECT count(*) FROM devices_app_auditentry WHERE action = 'warning_acknowledged'"
    assert phone.request("acknowledge_warning", acknowledge)["payload"] == accepted
    assert query(public.data / "bridge.sqlite3", trail) == [(1,)], "once, as long as it holds"
    phone.wait_numbers(sid, [1])
    phone.expect("approval_required", session_id=waits, tool_call_id="x")
    assert phone.join(sid)["type"] == "session_ready"
    public.accept(hook("SessionEnd", waits))
    phone.close()
    phone.connect().auth()
    status = phone.health_check()["payload"]
    assert status["ready"] is True and status["requires_acknowledgment"] is False
    phone.close()


# which bridge, versions, why they are refused
VERSIONS = [
    ("public", "1.1.9 0.99.99", "CLIENT_TOO_OLD"),
    ("public", "1.2.0 1.9.9 1.10.0", None),
    ("public", "1.10.1 10.0.0", "CLIENT_TOO_NEW"),
    ("shared", "0.9.9", "CLIENT_TOO_OLD"),
    ("shared", "1.0.0 1.999.999", None),
    ("shared", "2.0.0", "CLIENT_TOO_NEW"),
]


@pytest.mark.parametrize(("name", "versions", "reason"), VERSIONS)
@pytest.mark.spec("connerror.VERSION_INCOMPATIBLE", "versioning.compatible")
def test_versions_of_clients(
    request: pytest.FixtureRequest, name: str, versions: str, reason: str | None
) -> None:
    """Compared as numbers; the defaults of D44. D15: a version that is refused claims nothing."""
    bridge: Bridge = request.getfixturevalue(name)
    for version in versions.split():
        pairing = bridge.pairing()
        phone = bridge.phone(pairing, device_id="app", client_version=version).connect()
        answer = phone.auth()
        if reason is not None:
            assert answer["type"] == "connection_error", version
            assert answer["payload"]["code"] == "VERSION_INCOMPATIBLE", version
            assert reason in json.dumps(answer["payload"])
            assert phone.wait_closed() == 4426
            phone = bridge.phone(pairing, device_id="new", client_version="1.5.0").connect()
            answer = phone.auth()
        assert answer["type"] == "connection_ack", version
        phone.close()


def let_in(phone: Phone) -> bool:
    """Connect; whether there was a place."""
    answer = phone.connect().auth()
    if answer["type"] == "connection_ack":
        return True
    assert answer["payload"]["code"] == "RATE_LIMITED", answer
    assert answer["type"] == "connection_error" and phone.wait_closed() == 4429
    return False


@pytest.mark.spec("limit.max_websocket_connections", "connerror.RATE_LIMITED")
def test_one_too_many(narrow: Bridge) -> None:
    """D23: only authenticated connections count, and a replaced one, which still looks open, frees
    its place first; the others stay. /info names BRIDGE_MAX_WEBSOCKETS (D44).
    """
    strangers = [RawSocket(narrow.port) for _ in range(6)]
    for stranger in strangers:
        assert stranger.upgrade().status == 101
    full = [narrow.phone() for _ in range(3)]
    for phone in full:
        wait_until(lambda phone=phone: let_in(phone))  # the places of earlier tests are freed first
    assert not let_in(narrow.phone())
    info, health = (narrow.get(f"/api/v1/{it}", narrow.hook_token) for it in ("info", "health"))
    assert info.json()["limits"]["max_websocket_connections"] == 3
    assert health.json()["active_websockets"] >= 3
    again = Phone(narrow.port, full[1].token, full[1].pin)
    assert let_in(again)
    assert full[1].wait_closed() == 4409
    for phone in (full[0], full[2], again):
        phone.ping()
        phone.close()
    for stranger in strangers:
        stranger.close()
