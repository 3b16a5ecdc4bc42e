"""Pairing, binding, scopes in time, revoking (spec, Authentication; D14, D15, D23, D43)."""

import hashlib
import re
import ssl
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error, parse_time, spki_pin
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_id, prompt
from tests.conformance.test_approval_restart import Ageing


def refused(phone: Phone) -> bool:
    """Whether a fresh connection's auth is AUTH_FAILED (and closed with 4401)."""
    answer = phone.connect().auth()
    if answer["payload"].get("code") == "AUTH_FAILED":
        assert answer["type"] == "connection_error" and phone.wait_closed() == 4401
        return True
    phone.close()
    # what is no device_id at all
    return bool(answer["payload"].get("code") == "PROTO_INVALID_MESSAGE")


@pytest.mark.spec("auth.device")
def test_the_pairing(shared: Bridge) -> None:
    """D43: pin and fingerprint; D15: 256 random bits, which are 43 characters of base64."""
    name = f"pixel-{new_id()[:8]}"
    pairing = shared.mint("--name", name)
    assert (pairing.v, pairing.name) == (1, name)
    assert re.fullmatch("bridge_device_.{43,}", pairing.token)
    assert pairing.url == f"wss://127.0.0.1:{shared.port}/api/v1/ws"
    with closing(shared.https().open()) as connection:
        assert isinstance(connection.sock, ssl.SSLSocket)
        certificate = connection.sock.getpeercert(binary_form=True)
    assert certificate is not None
    assert pairing.pin.lower() == spki_pin(certificate)
    fingerprint = re.sub("[^0-9a-f]", "", pairing.fingerprint.lower())
    assert fingerprint == hashlib.sha256(certificate).hexdigest()
    ttl = parse_time(pairing.expires_at) - datetime.now(UTC)
    assert timedelta(minutes=9) < ttl <= timedelta(minutes=10)


def test_tokens_are_neither_stored_nor_logged(shared: Bridge) -> None:
    """D15: only as a hash, before and after use. D45: directory 0700, secrets 0600."""
    pairing = shared.pairing()
    shared.phone(pairing).ready().close()
    shared.get(f"/api/v1/health?token={pairing.token[:12]}", pairing.token)
    files = [path for path in shared.data.rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = path.read_bytes()
        assert pairing.token.encode() not in content, path
        if b"PRIVATE KEY" in content:
            assert path.stat().st_mode & 0o777 == 0o600, path
    assert shared.data.stat().st_mode & 0o777 == 0o700
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
    for other in ("device-B", None, "", "device-a", "a\x00b", "x" * 300):
        assert refused(shared.phone(pairing, device_id=other)), other
    owner.ping()
    owner.close()
    assert not refused(shared.phone(pairing, device_id="device-A"))


def announced(phone: Phone, name: str) -> list[Message]:
    kinds = [message for message in phone.messages if message["type"] == "notification"]
    return [message for message in kinds if name in str(message["payload"])]


@pytest.mark.parametrize("device_id", ["mine", None])
@pytest.mark.spec("notification.type.agent_notification")
def test_a_claim_is_announced_to_other_devices(
    shared: Bridge, phone: Phone, device_id: str | None
) -> None:
    """D15: once, without a session, not to itself."""
    pairing = shared.pairing()
    other = shared.phone(pairing, device_id=device_id).ready()
    other.close()
    other.ready()
    shared.fence(phone, other)
    (message,) = announced(phone, pairing.name)
    payload = message["payload"]
    assert payload["notification_type"] == "agent_notification"
    assert payload["notification_id"] == message["id"]
    assert payload["title"] and payload["body"] and payload.get("session_id") is None
    assert payload["priority"] in ("low", "normal", "high") and isinstance(payload["data"], dict)
    assert announced(other, pairing.name) == []
    other.close()


@pytest.mark.spec("auth.invalid")
def test_tokens_end(make_bridge: Callable[..., Bridge]) -> None:
    """D15: unused after --ttl, on both ways in; used ones after --lifetime if minted with it."""
    bridge = make_bridge("tokens", kind=Ageing)
    assert isinstance(bridge, Ageing)
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


@pytest.mark.spec("device.revoke")
def test_listing_and_revoking(shared: Bridge) -> None:
    """D15: it closes the live sockets; others are left alone."""
    pairing, other = shared.pairing(), shared.phone().ready()
    phone = shared.phone(pairing, device_id="lost").ready()
    unused = shared.pairing()
    answer = shared.https().post("/hooks/event", token=unused.token, json_body=prompt("x", 1))
    assert_error(answer, 401, "HOOK_AUTH_FAILED")  # which uses no device's token up
    listing = shared.manage("list_devices").stdout
    assert re.search(rf"{pairing.name} +connected", listing) and pairing.token not in listing
    assert re.search(rf"{unused.name} +waiting", listing)
    shared.manage("revoke_device", pairing.name)
    assert phone.wait_closed() not in (1000, 1006)
    assert refused(shared.phone(pairing, device_id="lost"))
    assert_error(shared.get("/api/v1/sessions", pairing.token), 401, "AUTH_INVALID_TOKEN")
    other.ping()
    other.close()


def test_a_new_token_for_a_paired_device(shared: Bridge, sid: str) -> None:
    """D43: it keeps its place in the log; the old token is replaced."""
    first = shared.pairing()
    phone = shared.phone(first, device_id="old-install").ready()
    shared.accept(prompt(sid, 1))
    phone.join(sid)
    phone.ack(*phone.wait_numbers(sid, [1]))
    phone.close()
    shared.accept(prompt(sid, 2))
    second = shared.mint("--device", first.name)
    assert second.token != first.token and second.name == first.name
    renewed = shared.phone(second, device_id="new-install").ready()
    shared.accept(prompt(sid, 3))
    renewed.join(sid)
    renewed.wait_numbers(sid, [2, 3])
    renewed.close()
    assert refused(shared.phone(first, device_id="old-install"))


@pytest.mark.spec("device.replaced", "wscode.CONN_REPLACED")
def test_newer_connection_replaces_older(shared: Bridge, sid: str) -> None:
    """D23: only authenticated connections count. D33: who was replaced has joined nothing."""
    pairing = shared.pairing()
    older = shared.phone(pairing).ready()
    shared.accept(prompt(sid, 0))
    older.join(sid)
    stranger = shared.phone(pairing).connect(headers={"Authorization": f"Bearer {pairing.token}"})
    shared.fence(older)
    stranger.close()
    older.ping()
    newer = shared.phone(pairing).ready()
    assert shared.accept(prompt(sid, 1))[0]["broadcast_count"] == 0
    error = older.expect("error", code="CONN_REPLACED")
    assert error["payload"]["recoverable"] is False
    assert older.wait_closed() == 4409
    newer.ping()
    newer.close()
