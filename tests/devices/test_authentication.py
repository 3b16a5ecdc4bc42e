"""Who may use what over HTTP (D14), and what a token's first use does (D15).

What is no token is in tests/conformance/test_errors_http.py, failures in test_rate_limits.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import caches
from django.http import HttpResponseBase
from django.test import RequestFactory
from pytest_django import DjangoAssertNumQueries
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from bridge_project.kernel.config import conf
from devices_app.authentication import (
    AdminOnly,
    AnyToken,
    BearerAuthentication,
    DeviceOrAdmin,
    HookOnly,
)
from tests.devices.conftest import Minted

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh_counts() -> Iterator[None]:
    for name in ("default", "local"):
        caches[name].clear()
    yield
    for name in ("default", "local"):
        caches[name].clear()


def ask(
    permission: type[BasePermission], authorization: str | None, address: str = "192.168.1.7"
) -> HttpResponseBase:
    """What a view that has this permission answers."""

    class View(APIView):
        authentication_classes = (BearerAuthentication,)
        permission_classes = (permission,)

        def get(self, request: Request) -> Response:
            return Response({"kind": request.user.kind})  # type: ignore[union-attr]

    headers = {} if authorization is None else {"Authorization": authorization}
    response = View.as_view()(RequestFactory().get("/", headers=headers, REMOTE_ADDR=address))
    if isinstance(response, Response):
        response.render()
    return response


def outcome(response: HttpResponseBase) -> tuple[int, Any]:
    body = json.loads(getattr(response, "content", b""))
    return response.status_code, body.get("code") or body.get("kind")


@pytest.mark.parametrize(
    ("permission", "kinds", "refusal"),
    [
        (AnyToken, {"device", "hook", "admin"}, ()),
        (DeviceOrAdmin, {"device", "admin"}, (403, "AUTH_INSUFFICIENT_SCOPE")),
        (AdminOnly, {"admin"}, (403, "AUTH_INSUFFICIENT_SCOPE")),
        (HookOnly, {"hook"}, (401, "HOOK_AUTH_FAILED")),
    ],
)
@pytest.mark.parametrize("kind", ["device", "hook", "admin"])
def test_scopes(
    permission: type[BasePermission],
    kinds: set[str],
    refusal: tuple[int, str],
    kind: str,
    mint: Callable[..., Minted],
) -> None:
    tokens = {"hook": conf.secret("hook_token"), "admin": conf.secret("admin_token")}
    token = mint()[2] if kind == "device" else tokens[kind]
    expected = (200, kind) if kind in kinds else refusal
    assert outcome(ask(permission, f"Bearer {token}")) == expected


class TestUse:
    def test_the_first_request_claims_and_is_seen(
        self, mint: Callable[..., Minted], paired: list[dict[str, Any]]
    ) -> None:
        device, token, plain = mint()
        ask(AnyToken, f"Bearer {plain}", address="10.1.2.3")
        device.refresh_from_db()
        token.refresh_from_db()
        assert token.used_at and device.last_address == "10.1.2.3" and device.last_seen_at
        assert len(paired) == 1

    def test_a_request_costs_one_query(
        self, mint: Callable[..., Minted], django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        _, _, plain = mint()
        ask(AnyToken, f"Bearer {plain}")
        with django_assert_num_queries(1):
            ask(AnyToken, f"Bearer {plain}")
        with django_assert_num_queries(0):
            ask(HookOnly, f"Bearer {conf.secret('hook_token')}")

    def test_a_device_token_at_the_hooks_is_not_used_up(
        self, mint: Callable[..., Minted], paired: list[dict[str, Any]]
    ) -> None:
        _, token, plain = mint()
        ask(HookOnly, f"Bearer {plain}")
        token.refresh_from_db()
        assert token.used_at is None and not paired
