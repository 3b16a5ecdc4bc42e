"""Where it listens; TLS, and the insecure ways in (spec, Authentication 6; D19, D20, D44)."""

import plistlib
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import LOOPBACK, Https, assert_error
from tests.conformance.phone import Closed, Phone
from tests.conformance.samples import hook, new_session
from tests.faults.quick import QuickBridge

PROXY = {"X-Forwarded-Proto": "HTTPS, https", "X-Forwarded-For": "203.0.113.9"}


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
    """D55: Apple's devices get the same in a profile; a second download replaces the first."""
    for path in ("/api/v1/health", "/pair", "/api/v1/nope", "/ca.crt"):
        answer = shared.get(path, shared.hook_token)
        assert "strict-transport-security" not in answer.headers, "D19: never"
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


def test_a_proxy_is_served(public: Bridge) -> None:
    """HTTP and WebSocket; D43: devices are paired with the public address."""
    assert public.pairing().url == "wss://bridge.example.com/api/v1/ws"
    https, event = Https(plain_port(public), plain=True), hook("Stop", new_session())
    sent = {"token": public.hook_token, "json_body": event}
    headers = PROXY | {"Host": "bridge.example.com"}
    assert https.post("/api/v1/hooks/event", headers=headers, **sent).status == 200
    phone = Phone(plain_port(public), public.device_token(), plain=True, client_version="1.5.0")
    told = phone.connect(headers=PROXY).auth()["payload"]
    assert told["connection_mode"] == "direct_public"
    assert told["bridge_url"] == "wss://bridge.example.com/api/v1/ws"
    phone.close()


INSECURE: list[tuple[dict[str, str], str | None]] = [
    ({}, None),
    ({"X-Forwarded-Proto": "http"}, None),
    ({"X-Forwarded-Proto": "https, http"}, None),
    ({"X-Forwarded-Proto": "http", "x-forwarded-proto": "https"}, None),
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
    """D19: 403 over HTTP; over WebSocket at once, before any message is read: a token too."""
    for path in ("/api/v1/health", "/api/v1/nope", "/pair", "/ca.crt", "/admin/"):
        https = Https(plain_port(public), plain=True, source=source)
        answer = https.get(path, token=public.admin_token, headers=headers)
        assert_error(answer, 403, "INSECURE_TRANSPORT")
    phone = Phone(plain_port(public), public.device_token(), plain=True, source=source)
    phone.connect(headers=headers)
    if not headers:
        with suppress(Closed):
            phone.send("auth", {"token": phone.token, "platform": "web"})
    # without a close frame when what was sent arrives behind it
    assert phone.wait_closed() in ((4403,) if headers else (4403, 1006))
    (message,) = phone.messages
    assert message["type"] == "connection_error", message
    assert message["payload"]["code"] == "INSECURE_TRANSPORT", message


def test_over_tls_too_a_trusted_proxys_word_counts(public: Bridge) -> None:
    """And nobody else's."""
    for source, status in ((None, 403), ("127.0.0.77", 200)):
        https, plain = public.https(source=source), {"X-Forwarded-Proto": "http"}
        answer = https.get("/api/v1/health", token=public.hook_token, headers=plain)
        assert answer.status == status


def test_a_misconfigured_bridge_still_ingests(misconfigured: Bridge) -> None:
    """Nothing is lost while its owner repairs it."""
    sid = new_session()
    misconfigured.accept(hook("Stop", sid))
    assert misconfigured.knows(sid)
    told = misconfigured.get("/api/v1/ws").json()
    assert told["websocket_url"] == f"wss://{LOOPBACK}:{misconfigured.port}/api/v1/ws"
    assert told["documentation_url"].startswith(f"https://{LOOPBACK}:{misconfigured.port}/docs/")


def test_a_port_that_is_taken(shared: Bridge, tmp_path: Path) -> None:
    """The one that listens goes on."""
    done = QuickBridge(tmp_path, BRIDGE_PORT=str(shared.port)).manage("serve", check=False)
    assert done.returncode == 1 and str(shared.port) in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert shared.get("/api/v1/health", shared.hook_token).status == 200


def test_listens_where_it_was_told(shared: Bridge, public: Bridge) -> None:
    """BRIDGE_HOST 127.0.0.1 is there alone; so is the plain listener."""
    sockets = psutil.net_connections("tcp")
    listening = [one.laddr for one in sockets if one.laddr and one.status == psutil.CONN_LISTEN]
    for bridge in (shared, public):
        for port in {int(bridge.settings.get("BRIDGE_PLAIN_PORT", bridge.port)), bridge.port}:
            hosts = {address.ip for address in listening if address.port == port}
            assert hosts and hosts <= {"127.0.0.1", "::1"}
