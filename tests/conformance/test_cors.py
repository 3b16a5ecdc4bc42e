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


def test_a_preflight(public: Bridge) -> None:
    answer = public.https().request("OPTIONS", "/api/v1/hooks/event", headers=PREFLIGHT)
    assert answer.status in (200, 204), answer
    allowed = {
        name.removeprefix("access-control-"): {word.strip().lower() for word in value.split(",")}
        for name, value in answer.headers.items()
    }
    assert (allowed["allow-origin"], allowed["max-age"]) == ({"*"}, {"86400"})
    assert allowed["allow-methods"] == {"get", "post", "options"}
    assert allowed["allow-headers"] == {"authorization", "content-type", "x-request-id"}


def test_answers_and_errors_can_be_read(public: Bridge) -> None:
    """On errors too, else a browser cannot show them; pages are not for other origins."""
    headers = {"Origin": "https://app.example"}
    for path, token, status in (
        ("/api/v1/health", public.hook_token, 200),
        ("/api/v1/health", None, 401),
        ("/api/v1/nope", public.admin_token, 404),
    ):
        answer = public.get(path, token, headers=headers)
        assert answer.status == status
        assert answer.headers.get("access-control-allow-origin") == "*", answer.headers
        assert "access-control-allow-credentials" not in answer.headers
    for page in ("/docs", "/admin/login/", "/pair"):
        answer = public.get(page, headers=headers)
        assert "access-control-allow-origin" not in answer.headers, page


def test_off_until_asked_for(shared: Bridge) -> None:
    """D44: without BRIDGE_CORS_ALLOW_ALL only those of BRIDGE_ALLOWED_ORIGINS are let in."""
    path, evil = "/api/v1/health", {"Origin": "https://evil.example"}
    answer = shared.get(path, shared.hook_token, headers=evil)
    assert answer.status == 200
    preflight = shared.https().request("OPTIONS", path, headers=PREFLIGHT | evil)
    for name in (*answer.headers, *preflight.headers):
        assert name != "access-control-allow-origin"
    answer = shared.get(path, shared.hook_token, headers={"Origin": ALLOWED_ORIGIN})
    assert answer.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
