"""CORS (spec, Limits; D44: off until asked for)."""

from __future__ import annotations

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.conftest import ALLOWED_ORIGIN

pytestmark = pytest.mark.spec("limit.cors")

PREFLIGHT = {
    "Origin": "https://app.example",
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type",
}


def words(header: str) -> set[str]:
    return {word.strip().lower() for word in header.split(",")}


def test_a_preflight(public: Bridge) -> None:
    """Spec: Allow-Origin *, Allow-Methods GET, POST, OPTIONS, Allow-Headers Authorization,
    Content-Type, X-Request-ID, Max-Age 86400; no token.
    """
    answer = public.https().request("OPTIONS", "/api/v1/hooks/event", headers=PREFLIGHT)
    assert answer.status in (200, 204), answer
    assert answer.headers["access-control-allow-origin"] == "*"
    assert words(answer.headers["access-control-allow-methods"]) == {"get", "post", "options"}
    assert words(answer.headers["access-control-allow-headers"]) == {
        "authorization",
        "content-type",
        "x-request-id",
    }
    assert answer.headers["access-control-max-age"] == "86400"


def test_answers_and_errors_can_be_read(public: Bridge) -> None:
    """Spec: Access-Control-Allow-Origin *, on errors too, else a browser cannot show them."""
    headers = {"Origin": "https://app.example"}
    for path, token, status in (
        ("/api/v1/health", public.hook_token, 200),
        ("/api/v1/health", None, 401),
        ("/api/v1/nope", public.admin_token, 404),
    ):
        answer = public.get(path, token, headers=headers)
        assert (
            answer.status == status and answer.headers.get("access-control-allow-origin") == "*"
        ), answer.headers
        assert "access-control-allow-credentials" not in answer.headers
    for page in ("/docs", "/admin/login/", "/pair"):
        answer = public.get(page, headers=headers)
        assert "access-control-allow-origin" not in answer.headers, page


def test_off_until_asked_for(shared: Bridge) -> None:
    """D44: without BRIDGE_CORS_ALLOW_ALL only those of BRIDGE_ALLOWED_ORIGINS are let in."""
    answer = shared.get(
        "/api/v1/health", shared.hook_token, headers={"Origin": "https://evil.example"}
    )
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    preflight = shared.https().request(
        "OPTIONS", "/api/v1/health", headers=PREFLIGHT | {"Origin": "https://evil.example"}
    )
    assert preflight.headers.get("access-control-allow-origin") is None
    answer = shared.get("/api/v1/health", shared.hook_token, headers={"Origin": ALLOWED_ORIGIN})
    assert answer.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
