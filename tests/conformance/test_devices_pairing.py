"""Pairing, binding, scopes in time, revoking (spec, Authentication; D14, D15, D23, D43)."""

import hashlib
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.conformance.agents import start
from tests.conformance.approvals import assert_refused, decide, pre
from tests.conformance.bridge import Bridge
from tests.conformance.https import LOOPBACK, parse_time, spki_pin
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_id, new_session, prompt
from tests.conformance.test_approval_restart import Ageing
from tests.faults.quick import QuickBridge, with_limits


def refused(phone: Phone, *codes: str) -> bool:
    """Whether a fresh connection's auth is AUTH_FAILED, or an error with one of these codes."""
    answer = phone.connect().auth()
    phone.close()
    return answer["payload"].get("code") in ("AUTH_FAILED", *codes)


@pytest.mark.spec("auth.device")
def test_the_pairing(shared: Bridge) -> None:
    """D43: pin and fingerprint; D15: 256 random bits, which are 43 characters of base64."""
    name = f"pixel-{new_id()[:8]}"
    pairing = shared.mint("--name", name)
    assert (pairing.v, pairing.name) == (1, name)
    assert re.fullmatch("bridge_device_.{43,}", pairing.token)
    assert pairing.url == f"wss://127.0.0.1:{shared.port}/api/v1/ws"
    pem = ssl.get_server_certificate((LOOPBACK, shared.port))
    certificate = ssl.PEM_cert_to_DER_cert(pem)
    assert pairing.pin.lower() == spki_pin(certificate)
    fingerprint = re.sub("[^0-9a-f]", "", pairing.fingerprint.lower())
    assert fingerprint == hashlib.sha256(certificate).hexdigest()
    ttl = parse_time(pairing.expires_at) - datetime.now(UTC)
    assert timedelta(minutes=9) < ttl <= timedelta(minutes=10)


def test_tokens_are_neither_stored_nor_logged(shared: Bridge) -> None:
    """D15: only as a hash, before and after use."""
    pairing = shared.pairing()
    shared.phone(pairing).ready().close()
    shared.get(f"/api/v1/health?token={pairing.token[:12]}", pairing.token)
    files = [path for path in shared.data.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert pairing.token.encode() not in path.read_bytes(), path
    log = shared.log.read_text(errors="replace")
    for token in (pairing.token, shared.hook_token, shared.admin_token):
        assert token not in log


@pytest.mark.spec("device.binding")
def test_the_first_device_id_binds(shared: Bridge) -> None:
    """D15: from then on another one, or none, is AUTH_FAILED. D23: which replaces no connection."""
    pairing = shared.pairing()
    for _ in range(2):
        assert not refused(shared.phone(pairing))
    owner = shared.phone(pairing, device_id="device-A").ready()
    for other in ("device-B", None, "device-a"):
        assert refused(shared.phone(pairing, device_id=other)), other
    for none in ("", "a\x00b", "x" * 300):
        assert refused(shared.phone(pairing, device_id=none), "PROTO_INVALID_MESSAGE"), none
    owner.ping()
    owner.close()
    assert not refused(shared.phone(pairing, device_id="device-A"))


def announced(phone: Phone, name: str) -> list[Message]:
    return [one for one in phone.messages if one["type"] == "notification" and name in str(one)]


@pytest.mark.spec("notification.type.agent_notification")
def test_a_claim_is_announced_to_other_devices(shared: Bridge, phone: Phone) -> None:
    """D15: once, without a session, not to itself; also one without a device_id."""
    for device_id in ("mine", None):
        pairing = shared.pairing()
        other = shared.phone(pairing, device_id=device_id).ready()
        other.again()
        shared.fence(phone, other)
        (message,) = announced(phone, pairing.name)
        payload = message["payload"]
        assert payload["notification_type"] == "agent_notification"
        assert payload["title"] and payload["body"] and payload.get("session_id") is None
        assert announced(other, pairing.name) == []
        other.close()


@pytest.mark.spec("auth.invalid")
def test_tokens_end(make_bridge: Callable[..., Ageing]) -> None:
    """D15: unused after --ttl, on both ways in; used ones after --lifetime if minted with it."""
    bridge = make_bridge("tokens", kind=Ageing)
    ttl, lifetime = ("--ttl", "10m"), ("--lifetime", "10m")
    options = (ttl, ttl, ttl, lifetime, ("--ttl", "60m", *lifetime))
    late, used, claimed, short, shorter = bridge.mint_many(
        *[("--name", new_id(), *one) for one in options]
    )
    assert bridge.get("/api/v1/health", used.token).status == 200, "HTTP counts as its first use"
    for pairing in (claimed, short):
        assert not refused(bridge.phone(pairing, device_id="in-time"))
    bridge.later(11 * 60)
    for ended in (late, short, shorter):
        assert refused(bridge.phone(ended, device_id="in-time"))
        assert bridge.get("/api/v1/sessions", ended.token).status == 401
    assert bridge.get("/api/v1/sessions", used.token).status == 200
    assert not refused(bridge.phone(used, device_id="binds-now")), "HTTP binds nothing"
    assert refused(bridge.phone(used, device_id="somebody-else"))
    assert not refused(bridge.phone(claimed, device_id="in-time"))
    bridge.stop()


def test_a_new_token_for_a_paired_device(shared: Bridge, sid: str) -> None:
    """D43: it keeps its place in the log; the old token is replaced. D15: the others are told."""
    first = shared.pairing()
    phone = shared.phone(first, device_id="old-install").ready()
    shared.accept(prompt(sid, 1))
    phone.join(sid)
    phone.ack(*phone.wait_numbers(sid, [1]))
    phone.close()
    shared.accept(prompt(sid, 2))
    second = shared.mint("--device", first.name)
    assert second.token != first.token and second.name == first.name
    with shared.phones(1) as (other,):
        renewed = shared.phone(second, device_id="new-install").ready()
        told = f"{first.name} was paired from 127.0.0.1."
        other.expect("notification", title="New device", body=told)
        shared.accept(prompt(sid, 3))
        renewed.join(sid)
        renewed.wait_numbers(sid, [2, 3])
        shared.fence(renewed)
        assert not [one for one in renewed.messages if told in str(one)]
        third = shared.mint("--device", first.name)
        assert shared.get("/api/v1/info", third.token).status == 200
        assert renewed.wait_closed() == 4401
    assert refused(shared.phone(first, device_id="old-install"))


@pytest.mark.spec("device.replaced", "wscode.CONN_REPLACED")
def test_newer_connection_replaces_older(shared: Bridge, sid: str) -> None:
    """D23: only authenticated connections count; D18: the token in a header is no `auth`. D33: who
    was replaced has joined nothing.
    """
    pairing = shared.pairing()
    older = shared.phone(pairing).ready()
    shared.accept(prompt(sid, 0))
    older.join(sid)
    stranger = shared.phone(pairing).connect(headers={"Authorization": f"Bearer {pairing.token}"})
    shared.fence(older)
    assert stranger.health_check()["payload"]["code"] == "PROTO_SEQUENCE_ERROR"
    stranger.close()
    older.ping()
    newer = shared.phone(pairing).ready()
    assert shared.accept(prompt(sid, 1))[0]["broadcast_count"] == 0
    error = older.expect("error", code="CONN_REPLACED")
    assert error["payload"]["recoverable"] is False
    assert older.wait_closed() == 4409
    newer.ping()
    newer.close()


def test_a_revoked_device_whose_socket_is_not_closed_yet_decides_nothing(tmp_path: Path) -> None:
    """D15: the socket lives for up to two seconds, and a yes cannot be taken back."""
    with QuickBridge(tmp_path, first=with_limits(POLL_SECONDS=3600)) as bridge:
        pairing, session = bridge.pairing(), new_session()
        thief = bridge.phone(pairing).ready()
        bridge.accept(pre(session, approval=True, tool_call_id="call"))
        bridge.manage("revoke_device", pairing.name)
        assert_refused(decide(thief, session, "call", "approved"), "AUTH_FAILED", False)
        assert_refused(start(thief, bridge.root, new_session(), agent="demo"), "AUTH_FAILED", False)
        owner = bridge.phone().ready()
        assert decide(owner, session, "call", "rejected")["type"] == "approval_recorded"
