"""GET /ws (spec, Endpoints; D9, D14, D17, D18): who gets a socket and who does not."""

from __future__ import annotations

import pytest
from websockets.exceptions import InvalidStatus

from tests.conformance.bridge import Bridge
from tests.conformance.conftest import ALLOWED_ORIGIN
from tests.conformance.https import assert_error
from tests.conformance.phone import Phone
from tests.conformance.raw import RawSocket

pytestmark = pytest.mark.spec("http.ws")


def upgrade_status(bridge: Bridge, **headers: str | None) -> int:
    """The status of a hand-made upgrade; an error's body must be D9's."""
    socket = RawSocket(bridge.port)
    try:
        answer = socket.upgrade(
            headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        if answer.status in (401, 403, 429):
            assert_error(answer, answer.status)
        return answer.status
    finally:
        socket.close()


@pytest.mark.spec("code.WS_UPGRADE_REQUIRED")
def test_without_upgrade(shared: Bridge) -> None:
    """Spec: 400 WS_UPGRADE_REQUIRED with websocket_url carrying the wss address."""
    for token in (shared.device_token(), shared.admin_token):
        body = assert_error(shared.get("/api/v1/ws", token), 400, "WS_UPGRADE_REQUIRED")
        assert body["websocket_url"] == f"wss://127.0.0.1:{shared.port}/api/v1/ws"


def test_without_upgrade_and_token(shared: Bridge) -> None:
    """Spec, Authentication 1; the error body either way."""
    assert_error(shared.get("/api/v1/ws"), (400, 401))
    assert_error(shared.get("/api/v1/ws", "wrong" * 10), (400, 401))


def test_the_url_of_the_pairing(shared: Bridge, device: Phone) -> None:
    """D43: the pairing's url is the wss address; with its token in the header too the upgrade is a
    101.
    """
    pairing = shared.pairing()
    assert pairing.url == f"wss://127.0.0.1:{shared.port}/api/v1/ws"
    device.connect(headers={"Authorization": f"Bearer {device.token}"})
    assert device.auth()["type"] == "connection_ack"


def test_without_authorization(device: Phone) -> None:
    """D18: Authorization is optional, a browser cannot send it."""
    device.connect()
    assert device.auth()["type"] == "connection_ack"


def test_auth_is_needed_either_way(device: Phone) -> None:
    """D18: a token in the header does not replace the auth message."""
    device.connect(headers={"Authorization": f"Bearer {device.token}"})
    assert device.health_check()["payload"]["code"] == "PROTO_SEQUENCE_ERROR"


@pytest.mark.parametrize("authorization", ["Bearer nope", "Bearer", "Basic eDp5", "", "nonsense"])
def test_a_wrong_authorization(shared: Bridge, device: Phone, authorization: str) -> None:
    """D18: when present it must be a valid device token, else 401 (with the error body and
    WWW-Authenticate).
    """
    assert upgrade_status(shared, Authorization=authorization) == 401
    with pytest.raises(InvalidStatus) as refused:
        device.connect(headers={"Authorization": authorization})
    assert refused.value.response.status_code == 401


def test_other_tokens_do_not_upgrade(shared: Bridge) -> None:
    """D18: a device token; the hook and the admin token are none."""
    for token in (shared.hook_token, shared.admin_token):
        assert upgrade_status(shared, Authorization=f"Bearer {token}") in (401, 403)


def test_own_origins(shared: Bridge) -> None:
    """D18: the bridge's own, and those of BRIDGE_ALLOWED_ORIGINS."""
    for origin in (
        f"https://127.0.0.1:{shared.port}",
        f"https://localhost:{shared.port}",
        ALLOWED_ORIGIN,
    ):
        assert upgrade_status(shared, Origin=origin) == 101, origin


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "https://app.example.evil.example",
        "http://app.example",
        "https://app.example:444",
        "file://",
        "https://127.0.0.1.evil.example",
        "https://evil.example/https://app.example",
        "https://app.example@evil.example",
    ],
)
@pytest.mark.spec("auth.hardening")
def test_foreign_origins(shared: Bridge, origin: str) -> None:
    """D18: refused with 403."""
    assert upgrade_status(shared, Origin=origin) == 403


def test_an_origin_that_is_none(shared: Bridge) -> None:
    """D18: refused, as foreign or as malformed."""
    assert upgrade_status(shared, Origin="x") in (400, 403)


def test_a_foreign_origin_with_a_good_token(shared: Bridge) -> None:
    """D18: the origin is checked whatever the token."""
    assert (
        upgrade_status(
            shared, Origin="https://evil.example", Authorization=f"Bearer {shared.device_token()}"
        )
        == 403
    )


def test_a_wrong_host(shared: Bridge) -> None:
    """D18: the same names are ALLOWED_HOSTS (DNS rebinding)."""
    assert upgrade_status(shared, Host="evil.example") in (400, 403, 421)
    assert upgrade_status(shared, Host="evil.example", Origin="https://evil.example") in (
        400,
        403,
        421,
    )


@pytest.mark.parametrize(
    "path", ["/ws", "/api/v1/wss", "/api/v1/ws/x", "/", "/api/v1/health", "/api/v1/%00"]
)
def test_other_paths_do_not_upgrade(shared: Bridge, path: str) -> None:
    """D2: only under /api/v1; a refusal, not a crash."""
    socket = RawSocket(shared.port)
    try:
        assert 400 <= socket.upgrade(path=path).status < 500
    finally:
        socket.close()


def test_query_strings(shared: Bridge) -> None:
    """A query string does not change the path."""
    socket = RawSocket(shared.port)
    try:
        assert socket.upgrade(path="/api/v1/ws?client=x").status == 101
    finally:
        socket.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-WebSocket-Version": "8"},
        {"Sec-WebSocket-Key": "short"},
        {"Sec-WebSocket-Key": None},
        {"Sec-WebSocket-Version": None},
    ],
    ids=["version", "short-key", "no-key", "no-version"],
)
def test_broken_handshakes(shared: Bridge, headers: dict[str, str | None]) -> None:
    """RFC 6455: a 4xx, no socket."""
    socket = RawSocket(shared.port)
    try:
        assert 400 <= socket.upgrade(headers=headers).status < 500
    finally:
        socket.close()


def test_unasked_subprotocols_and_extensions(shared: Bridge, device: Phone) -> None:
    """A client that offers compression or a subprotocol is served."""
    socket = RawSocket(shared.port)
    try:
        answer = socket.upgrade(
            headers={
                "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
                "Sec-WebSocket-Protocol": "bridge.v1",
            }
        )
        assert answer.status == 101
    finally:
        socket.close()
