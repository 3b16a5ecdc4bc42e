"""Pairing, binding, scopes in time, revoking (spec, Authentication; D14, D15, D23, D43)."""

from __future__ import annotations

import hashlib
import re
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.https import assert_error, parse_time, spki_pin
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id, prompt
from tests.conformance.test_approval_restart import Ageing
from tests.faults.quick import QuickBridge


@pytest.fixture(scope="module")
def quick(shared: Bridge, tmp_path_factory: pytest.TempPathFactory) -> Bridge:
    """The commands of the shared bridge, forked instead of started."""
    return QuickBridge(tmp_path_factory.mktemp("commands"), **shared.settings)


def refused(phone: Phone, **auth: object) -> bool:
    """Whether a fresh connection's auth is AUTH_FAILED (and closed with 4401)."""
    phone.connect()
    answer = phone.auth(**auth)
    if answer["type"] == "connection_ack":
        phone.close()
        return False
    if answer["payload"]["code"] == "PROTO_INVALID_MESSAGE":  # what is no device_id at all
        phone.close()
        return True
    assert answer["payload"]["code"] == "AUTH_FAILED" and phone.wait_closed() == 4401, answer
    return True


def certificate(bridge: Bridge) -> bytes:
    connection = bridge.https().open()
    assert isinstance(connection.sock, ssl.SSLSocket)
    found = connection.sock.getpeercert(binary_form=True)
    connection.close()
    assert found is not None
    return found


@pytest.mark.spec("auth.device")
def test_the_pairing(shared: Bridge) -> None:
    """D43: {v, name, url, token, pin, fingerprint, expires_at}; pin: SHA-256 of the SPKI,
    fingerprint: of the certificate, both in hex; D15: 10 minutes.
    """
    name = f"pixel-{new_id()[:8]}"
    pairing = shared.mint("--name", name)
    assert pairing.v == 1 and pairing.name == name
    assert pairing.url == f"wss://127.0.0.1:{shared.port}/api/v1/ws"
    found = certificate(shared)
    assert pairing.pin.lower() == spki_pin(found)
    assert re.sub("[^0-9a-f]", "", pairing.fingerprint.lower()) == hashlib.sha256(found).hexdigest()
    ttl = parse_time(pairing.expires_at) - datetime.now(UTC)
    assert timedelta(minutes=9) < ttl <= timedelta(minutes=10)


def test_tokens_are_long_and_recognisable(shared: Bridge) -> None:
    """D15: at least 256 random bits and a recognisable prefix."""
    tokens = [shared.pairing().token for _ in range(8)]
    assert len(set(tokens)) == 8
    prefix = tokens[0][
        : next(
            index for index in range(len(tokens[0])) if len({token[index] for token in tokens}) > 1
        )
    ]
    assert len(prefix) >= 2
    assert all(len(token) - len(prefix) >= 43 for token in tokens), (
        "43 characters of base64 are 256 bits (hex has more)"
    )


def test_tokens_are_not_stored(shared: Bridge) -> None:
    """D15: only as a hash: no file in the data directory has them, before and after use. D45:
    directory 0700, secrets 0600.
    """
    pairing = shared.pairing()
    phone = shared.phone(pairing).ready()
    files = [path for path in shared.data.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert pairing.token.encode() not in path.read_bytes(), path
    phone.close()
    assert shared.data.stat().st_mode & 0o777 == 0o700
    for path in files:
        if b"PRIVATE KEY" in path.read_bytes():
            assert path.stat().st_mode & 0o777 == 0o600, path


def test_the_log_names_no_token(shared: Bridge) -> None:
    """D15, D45: what the server prints does not give tokens away."""
    pairing = shared.pairing()
    shared.phone(pairing).ready().close()
    shared.get(f"/api/v1/health?token={pairing.token[:12]}", pairing.token)
    text = shared.log.read_text(errors="replace")
    for token in (pairing.token, shared.hook_token, shared.admin_token):
        assert token not in text


@pytest.mark.spec("device.binding")
def test_the_first_device_id_binds(shared: Bridge) -> None:
    """D15: unbound until an auth with a device_id; from then on another one, or none, is
    AUTH_FAILED. D23: who is refused so does not replace the live connection.
    """
    pairing = shared.pairing()
    for _ in range(2):
        assert not refused(shared.phone(pairing))
    owner = shared.phone(pairing, device_id="device-A").ready()
    for other in ("device-B", None, "", "device-a", "a\x00b", "x" * 300):
        assert refused(shared.phone(pairing, device_id=other)), other
    owner.ping()
    owner.close()
    assert not refused(shared.phone(pairing, device_id="device-A"))


@pytest.mark.parametrize("device_id", ["mine", None])
@pytest.mark.spec("notification.type.agent_notification")
def test_a_claim_is_announced_to_other_devices(
    shared: Bridge, phone: Phone, device_id: str | None
) -> None:
    """D15: to all other devices, an agent_notification without session (D13: notification_id is the
    envelope's id); once.
    """
    pairing = shared.pairing()
    name = pairing.name
    other = shared.phone(pairing, device_id=device_id).ready()
    message = phone.until(
        lambda message: message["type"] == "notification" and name in str(message["payload"]),
        "the announcement",
    )
    payload = message["payload"]
    assert payload["notification_type"] == "agent_notification"
    assert payload["notification_id"] == message["id"]
    assert payload["title"]
    assert payload["body"]
    assert payload.get("session_id") is None
    assert payload["priority"] in ("low", "normal", "high")
    assert isinstance(payload["data"], dict)
    other.close()
    other.ready()
    shared.fence(phone, other)
    assert (
        sum(
            name in str(message["payload"])
            for message in phone.messages
            if message["type"] == "notification"
        )
        == 1
    )
    assert not [
        message
        for message in other.messages
        if message["type"] == "notification" and name in str(message["payload"])
    ], "not to itself"
    other.close()


@pytest.mark.spec("auth.invalid")
def test_tokens_end(make_bridge: Callable[..., Bridge]) -> None:
    """D15: a minted token must be used within --ttl, else it is void, on both ways in; a used one
    does not expire unless it was minted with --lifetime.
    """
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
def test_listing_and_revoking(shared: Bridge, quick: Bridge) -> None:
    """D43, D15: revoke_device by name closes the live sockets within two seconds; the token opens
    nothing any more; others are left alone.
    """
    pairing, other = shared.pairing(), shared.phone().ready()
    phone = shared.phone(pairing, device_id="lost").ready()
    unused = shared.pairing()
    answer = shared.https().post("/hooks/event", token=unused.token, json_body=prompt("x", 1))
    assert_error(answer, 401, "HOOK_AUTH_FAILED")  # which uses no device's token up
    listing = quick.manage("list_devices").stdout
    assert re.search(rf"{pairing.name} +paired", listing) and pairing.token not in listing
    assert re.search(rf"{unused.name} +waiting", listing)
    shared.manage("revoke_device", pairing.name)
    revoked = time.monotonic()
    code = phone.wait_closed()
    assert time.monotonic() - revoked < 30 and code != 1000 and code != 1006
    assert refused(shared.phone(pairing, device_id="lost"))
    assert_error(shared.get("/api/v1/sessions", pairing.token), 401, "AUTH_INVALID_TOKEN")
    other.ping()
    other.close()


def test_a_new_token_for_a_paired_device(shared: Bridge, quick: Bridge, sid: str) -> None:
    """D43: --device gives a paired device a new token and keeps its place in the log."""
    first = shared.pairing()
    phone = shared.phone(first, device_id="old-install").ready()
    shared.accept(prompt(sid, 1))
    phone.join(sid)
    phone.ack(*phone.wait_numbers(sid, [1]))
    shared.accept(prompt(sid, 2))
    phone.ack(*phone.wait_numbers(sid, [1, 2]))
    phone.close()
    shared.accept(prompt(sid, 3))
    second = quick.mint("--device", first.name)
    assert second.token != first.token and second.name == first.name
    renewed = shared.phone(second, device_id="new-install").ready()
    shared.accept(prompt(sid, 4))
    renewed.join(sid)
    renewed.collect(lambda: 4 in renewed.numbers(sid), "event 4")
    assert renewed.numbers(sid) == [3, 4]
    renewed.close()
    assert refused(shared.phone(first, device_id="old-install")), "the old token is replaced"


def test_a_pin_that_does_not_match_is_noticed(shared: Bridge) -> None:
    """The tests' own client checks the pin; without this every other test would prove less."""
    pairing = shared.pairing()
    wrong = Pairing(**(pairing.__dict__ | {"pin": "0" * 64}))
    with pytest.raises(AssertionError, match="key is not the one"):
        shared.phone(wrong).connect()


@pytest.mark.spec("device.replaced", "wscode.CONN_REPLACED")
def test_newer_connection_replaces_older(shared: Bridge) -> None:
    """D23: error CONN_REPLACED, not recoverable, then close 4409; the newer one works."""
    pairing = shared.pairing()
    older = shared.phone(pairing).ready()
    newer = shared.phone(pairing).ready()
    error = older.expect("error", code="CONN_REPLACED")
    assert error["payload"]["recoverable"] is False
    assert older.wait_closed() == 4409
    newer.ping()
    newer.close()


def test_an_unauthenticated_connection_replaces_nothing(shared: Bridge) -> None:
    """D23: only authenticated connections count."""
    pairing = shared.pairing()
    phone = shared.phone(pairing).ready()
    other = shared.phone(pairing)
    other.connect(headers={"Authorization": f"Bearer {pairing.token}"})
    shared.fence(phone)
    other.close()
    phone.ping()
    phone.close()
