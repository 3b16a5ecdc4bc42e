"""GET /ws (spec, Endpoints; D9, D14, D17, D18): who gets a socket; and CORS (D44)."""

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.conftest import ALLOWED_ORIGIN
from tests.conformance.https import assert_error
from tests.conformance.raw import upgraded

pytestmark = pytest.mark.spec("http.ws")


def upgrade_status(bridge: Bridge, path: str = "/api/v1/ws", **headers: str | None) -> int:
    """The status of a hand-made upgrade; an error's body must be D9's."""
    answer = upgraded(bridge.port, path, **headers)
    if answer.status in (401, 403, 429):
        assert_error(answer, answer.status)
    return answer.status


@pytest.mark.spec("code.WS_UPGRADE_REQUIRED")
def test_without_upgrade(shared: Bridge) -> None:
    half = {"Upgrade": "websocket"}  # of a proxy that passes on only one
    for token, given in ((shared.device_token(), {}), (shared.admin_token, half)):
        answer = shared.get("/api/v1/ws", token, headers=given)
        body = assert_error(answer, 400, "WS_UPGRADE_REQUIRED")
        assert body["websocket_url"] == f"wss://127.0.0.1:{shared.port}/api/v1/ws"
    for nobody in (None, "wrong" * 10):
        assert_error(shared.get("/api/v1/ws", nobody), (400, 401))


def test_a_wrong_authorization(shared: Bridge) -> None:
    """D18: when present it must be a valid device token; the hook and the admin token are none."""
    for wrong in ("Bearer nope", "Bearer", "Basic eDp5", "", "nonsense"):
        assert upgrade_status(shared, Authorization=wrong) == 401
    for token in (shared.hook_token, shared.admin_token):
        assert upgrade_status(shared, Authorization=f"Bearer {token}") in (401, 403)


@pytest.mark.spec("auth.hardening")
def test_origins(shared: Bridge) -> None:
    """D18: a page of another is refused, whatever its token; so is another Host (DNS rebinding)."""
    own = (f"https://127.0.0.1:{shared.port}", f"https://localhost:{shared.port}", ALLOWED_ORIGIN)
    for origin in own:
        assert upgrade_status(shared, Origin=origin) == 101, origin
    token = f"Bearer {shared.device_token()}"
    others = ("https://evil.example", "https://app.example.evil.example", "https://evil.example:x")
    for origin in (*others, "null", "file://", "x"):
        assert upgrade_status(shared, Origin=origin, Authorization=token) == 403, origin
    for headers in ({}, {"Origin": "https://evil.example"}):
        assert upgrade_status(shared, Host="evil.example", **headers) in (400, 403, 421)


def test_other_paths_do_not_upgrade(shared: Bridge) -> None:
    """D2: only under /api/v1, where a query string changes nothing."""
    for path in ("/ws", "/api/v1/ws/x", "/api/v1/health", "/api/v1/%00"):
        assert 400 <= upgrade_status(shared, path) < 500, path
    assert upgrade_status(shared, "/api/v1/ws?client=x") == 101


PREFLIGHT = {
    "Origin": "https://app.example",
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type",
}


@pytest.mark.spec("limit.cors")
def test_of_any_origin_when_asked_for(public: Bridge) -> None:
    """On errors too, else a browser cannot show them; pages are not for other origins."""
    answer = public.https().request("OPTIONS", "/api/v1/hooks/event", headers=PREFLIGHT)
    assert answer.status in (200, 204), answer
    allowed = {
        name.removeprefix("access-control-"): {word.strip().lower() for word in value.split(",")}
        for name, value in answer.headers.items()
    }
    assert (allowed["allow-origin"], allowed["max-age"]) == ({"*"}, {"86400"})
    assert allowed["allow-methods"] == {"get", "post", "options"}
    assert allowed["allow-headers"] == {"authorization", "content-type", "x-request-id"}
    headers = {"Origin": "https://app.example"}
    for path, token in {"health": public.hook_token, "info": None, "nope": None}.items():
        answer = public.get(f"/api/v1/{path}", token, headers=headers)
        assert answer.status == (200 if token else 401 if path == "info" else 404)
        assert answer.headers.get("access-control-allow-origin") == "*", answer.headers
        assert "access-control-allow-credentials" not in answer.headers
    for path in ("/hooks/event", "/app/"):  # refused by its length
        for own in (headers, {"Origin": "https://\xff"}):
            large = {"Content-Length": str(10**9)} | own
            answer = public.https().request("POST", path, body=b"", headers=large)
            open_ = answer.headers.get("access-control-allow-origin") == "*"
            assert (answer.status, open_) == (413, path == "/hooks/event")
    for page in ("/docs", "/admin/login/", "/pair"):
        answer = public.get(page, headers=headers)
        assert "access-control-allow-origin" not in answer.headers, page


@pytest.mark.spec("limit.cors")
def test_off_until_asked_for(shared: Bridge) -> None:
    """D44: without BRIDGE_CORS_ALLOW_ALL only those of BRIDGE_ALLOWED_ORIGINS are let in."""
    path, evil = "/api/v1/health", {"Origin": "https://evil.example"}
    for method, headers in {"GET": evil, "OPTIONS": PREFLIGHT | evil}.items():
        answer = shared.https().request(method, path, token=shared.hook_token, headers=headers)
        assert answer.status in (200, 204)
        assert "access-control-allow-origin" not in answer.headers
    answer = shared.get(path, shared.hook_token, headers={"Origin": ALLOWED_ORIGIN})
    assert answer.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
