"""TLS, the plain listener for a proxy, the insecure ways in (spec, Authentication 6; D19, D20,
D45).
"""

from __future__ import annotations

import plistlib
import socket
import ssl
from collections.abc import Callable

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import LOOPBACK, Https, Response, assert_error
from tests.conformance.phone import Phone
from tests.conformance.raw import RawSocket
from tests.conformance.samples import hook, new_session, now

PROXY = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"}


def plain_port(bridge: Bridge) -> int:
    return int(bridge.settings["BRIDGE_PLAIN_PORT"])


def verified(bridge: Bridge, authority: str | bytes, name: str = LOOPBACK) -> None:
    """Shake hands as one who trusts this authority alone (PEM, or DER in bytes)."""
    context = ssl.create_default_context(cadata=authority)
    with (
        socket.create_connection((LOOPBACK, bridge.port), 10) as raw,
        context.wrap_socket(raw, server_hostname=name) as connection,
    ):
        assert connection.version() in ("TLSv1.2", "TLSv1.3")


@pytest.mark.spec("tls.certificate")
def test_the_certificate_verifies_with_its_authority(shared: Bridge) -> None:
    """D19: an own CA at /ca.crt (no token), a leaf with all its names and addresses. D55: Apple's
    devices get the same in a profile; a second download replaces the first.
    """
    answer = shared.get("/ca.crt")
    assert answer.status == 200 and b"PRIVATE" not in answer.body
    for name in ("127.0.0.1", "localhost"):
        verified(shared, answer.body.decode(), name)
    answers = [shared.get("/ca.mobileconfig") for _ in range(2)]
    assert {one.headers["content-type"] for one in answers} == {"application/x-apple-aspen-config"}
    profile, again = (plistlib.loads(one.body) for one in answers)
    assert profile == again
    [root] = profile["PayloadContent"]
    assert root["PayloadType"] == "com.apple.security.root"
    verified(shared, root["PayloadContent"])


def test_new_ca_asks(make_bridge: Callable[..., Bridge]) -> None:
    """D55: it says what it costs, and keeps the pin."""
    bridge = make_bridge("authority")
    before = bridge.get("/ca.crt").body
    asked = bridge.manage("new_ca", check=False)
    assert asked.returncode and "give --yes" in asked.stderr
    assert bridge.get("/ca.crt").body == before
    done = bridge.manage("new_ca", "--yes").stdout
    assert "/ca.mobileconfig again" in done and "localhost" in done
    assert bridge.get("/ca.crt").body != before


def test_never_hsts(shared: Bridge) -> None:
    """D19: never HSTS with an own certificate."""
    for path in ("/api/v1/health", "/pair", "/ca.crt", "/api/v1/nope"):
        assert "strict-transport-security" not in shared.get(path, shared.hook_token).headers


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_tls_is_refused(shared: Bridge) -> None:
    """Spec: TLS is required; 1.0 and 1.1 are none any more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection((LOOPBACK, shared.port), 10) as raw,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(raw, server_hostname=LOOPBACK)


def test_a_client_that_never_shakes_hands_holds_nobody_up(shared: Bridge) -> None:
    """Silent TCP connections on the TLS port do not block others."""
    sockets = [socket.create_connection((LOOPBACK, shared.port), 10) for _ in range(20)]
    assert shared.get("/api/v1/health", shared.hook_token).status == 200
    for silent in sockets:
        silent.close()


def test_a_proxy_is_served(public: Bridge) -> None:
    """D19: a trusted proxy that terminated TLS: HTTP and WebSocket; D43: devices are paired with the
    public address.
    """
    assert public.pairing().url == "wss://bridge.example.com/api/v1/ws"
    https = Https(plain_port(public), plain=True)
    assert https.get("/api/v1/health", token=public.hook_token, headers=PROXY).status == 200
    answer = https.post(
        "/api/v1/hooks/event",
        token=public.hook_token,
        json_body=hook("Stop", new_session()),
        headers=PROXY | {"Host": "bridge.example.com"},
    )
    assert answer.status == 200
    phone = Phone(plain_port(public), public.device_token(), plain=True, client_version="1.5.0")
    phone.connect(headers=PROXY)
    acknowledged = phone.auth()
    assert acknowledged["type"] == "connection_ack"
    assert acknowledged["payload"]["connection_mode"] == "direct_public"
    assert acknowledged["payload"]["bridge_url"].startswith(
        ("wss://bridge.example.com", "https://bridge.example.com")
    )
    phone.close()


INSECURE: list[tuple[dict[str, str], str | None]] = [
    ({}, None),
    ({"X-Forwarded-Proto": "http"}, None),
    ({"X-Forwarded-For": "10.0.0.1"}, None),
    ({"X-Forwarded-Proto": "https"}, "127.0.0.77"),
    ({"X-Forwarded-Proto": "http, https"}, "127.0.0.77"),
    ({"Forwarded": "proto=https"}, None),
    ({"X-Forwarded-Ssl": "on"}, None),
]


@pytest.mark.parametrize(("headers", "source"), INSECURE, ids=str)
@pytest.mark.spec("auth.tls", "connerror.INSECURE_TRANSPORT")
def test_anything_else_on_the_plain_listener(
    public: Bridge, headers: dict[str, str], source: str | None
) -> None:
    """D19: 403 INSECURE_TRANSPORT over HTTP; over WebSocket connection_error INSECURE_TRANSPORT and
    4403, at once, before any message is read.
    """
    for path in ("/api/v1/health", "/api/v1/nope", "/pair", "/ca.crt", "/admin/"):
        answer: Response = Https(plain_port(public), plain=True, source=source).get(
            path, token=public.admin_token, headers=headers
        )
        assert_error(answer, 403, "INSECURE_TRANSPORT")
    phone = Phone(plain_port(public), public.device_token(), plain=True, source=source)
    phone.connect(headers=headers)
    message = phone.receive()
    assert (
        message["type"] == "connection_error" and message["payload"]["code"] == "INSECURE_TRANSPORT"
    ), message
    assert phone.wait_closed() == 4403


def test_a_token_sent_in_the_clear_does_nothing(public: Bridge) -> None:
    """D19: before any message is read: an auth that came along at once gets no ack."""
    raw = RawSocket(plain_port(public), plain=True)
    try:
        assert raw.upgrade().status == 101
        try:
            raw.send(
                "auth",
                {"token": public.device_token(), "client_version": "1.5.0", "platform": "web"},
            )
        except OSError:
            pass
        messages, code = raw.until_closed()
        assert [message["payload"].get("code") for message in messages] == ["INSECURE_TRANSPORT"]
        assert code in (4403, None)
    finally:
        raw.close()


def test_insecure_over_a_wrong_mode_only(misconfigured: Bridge) -> None:
    """D20: a misconfigured bridge still ingests over TLS: nothing is lost while its owner repairs
    it.
    """
    sid = new_session()
    misconfigured.accept(hook("Stop", sid, timestamp=now()))
    assert misconfigured.knows(sid)
