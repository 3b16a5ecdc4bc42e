"""GET /ws (spec, Endpoints; D9, D14, D17, D18): who gets a socket and who does not."""

from __future__ import annotations

import pytest

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
    for nobody in (None, "wrong" * 10):
        assert_error(shared.get("/api/v1/ws", nobody), (400, 401))


def test_auth_is_needed_either_way(device: Phone) -> None:
    """D18: a token in the header does not replace the auth message."""
    device.connect(headers={"Authorization": f"Bearer {device.token}"})
    assert device.health_check()["payload"]["code"] == "PROTO_SEQUENCE_ERROR"


def test_a_wrong_authorization(shared: Bridge) -> None:
    """D18: when present it must be a valid device token, else 401 (with the error body and
    WWW-Authenticate); the hook and the admin token are none.
    """
    for wrong in ("Bearer nope", "Bearer", "Basic eDp5", "", "nonsense"):
        assert upgrade_status(shared, Authorization=wrong) == 401
    for token in (shared.hook_token, shared.admin_token):
        assert upgrade_status(shared, Authorization=f"Bearer {token}") in (401, 403)


@pytest.mark.spec("auth.hardening")
def test_origins(shared: Bridge) -> None:
    """D18: the bridge's own, and those of BRIDGE_ALLOWED_ORIGINS; a page of any other is refused,
    whatever its token.
    """
    own = (f"https://127.0.0.1:{shared.port}", f"https://localhost:{shared.port}", ALLOWED_ORIGIN)
    for origin in own:
        assert upgrade_status(shared, Origin=origin) == 101, origin
    token = f"Bearer {shared.device_token()}"
    for origin in ("https://evil.example", "null", "https://app.example.evil.example", "file://"):
        assert upgrade_status(shared, Origin=origin, Authorization=token) == 403, origin
    assert upgrade_status(shared, Origin="x") in (400, 403)


def test_a_wrong_host(shared: Bridge) -> None:
    """D18: the same names are ALLOWED_HOSTS (DNS rebinding)."""
    assert upgrade_status(shared, Host="evil.example") in (400, 403, 421)
    assert upgrade_status(shared, Host="evil.example", Origin="https://evil.example") in (
        400,
        403,
        421,
    )


def test_other_paths_do_not_upgrade(shared: Bridge) -> None:
    """D2: only under /api/v1, where a query string changes nothing; a refusal, not a crash."""
    for path in ("/ws", "/api/v1/ws/x", "/api/v1/health", "/api/v1/%00", "/api/v1/ws?client=x"):
        socket = RawSocket(shared.port)
        status = socket.upgrade(path=path).status
        assert status == 101 if path.endswith("?client=x") else 400 <= status < 500, path
        socket.close()
