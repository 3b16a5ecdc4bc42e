"""Who may use what over HTTP: the scopes of D14, malformed headers, and the count of failures (D15,
D16).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import caches
from django.http import HttpResponseBase
from django.test import RequestFactory
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from bridge_project.kernel.config import conf
from devices_app import pairing
from devices_app.authentication import (
    AdminOnly,
    AnyToken,
    BearerAuthentication,
    DeviceOrAdmin,
    HookOnly,
)
from devices_app.models import Device, Token
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


SCOPES: list[tuple[type[BasePermission], dict[str, tuple[int, str]]]] = [
    (AnyToken, {"device": (200, "device"), "hook": (200, "hook"), "admin": (200, "admin")}),
    (
        DeviceOrAdmin,
        {
            "device": (200, "device"),
            "hook": (403, "AUTH_INSUFFICIENT_SCOPE"),
            "admin": (200, "admin"),
        },
    ),
    (
        AdminOnly,
        {
            "device": (403, "AUTH_INSUFFICIENT_SCOPE"),
            "hook": (403, "AUTH_INSUFFICIENT_SCOPE"),
            "admin": (200, "admin"),
        },
    ),
    (
        HookOnly,
        {
            "device": (401, "HOOK_AUTH_FAILED"),
            "hook": (200, "hook"),
            "admin": (401, "HOOK_AUTH_FAILED"),
        },
    ),
]


@pytest.mark.parametrize(
    ("permission", "kind", "expected"),
    [(permission, kind, expected) for permission, row in SCOPES for kind, expected in row.items()],
)
def test_scopes(
    permission: type[BasePermission],
    kind: str,
    expected: tuple[int, str],
    mint: Callable[..., Minted],
) -> None:
    text = {"hook": conf.secret("hook_token"), "admin": conf.secret("admin_token")}.get(
        kind
    ) or mint()[2]
    assert outcome(ask(permission, f"Bearer {text}")) == expected


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "Bearer a b",
        "Bearer \x00",
        "Bearer unknown",
        "Bearer " + "x" * 9000,
    ],
)
@pytest.mark.parametrize(
    ("permission", "code"),
    [
        (AnyToken, "AUTH_INVALID_TOKEN"),
        (AdminOnly, "AUTH_INVALID_TOKEN"),
        (HookOnly, "HOOK_AUTH_FAILED"),
    ],
)
def test_what_is_no_token_is_401_with_a_challenge(
    authorization: str | None, permission: type[BasePermission], code: str
) -> None:
    response = ask(permission, authorization)
    assert outcome(response) == (401, code)
    assert response["WWW-Authenticate"] == "Bearer"


class TestFailures:
    @pytest.mark.parametrize(
        ("permission", "code"), [(AnyToken, "AUTH_INVALID_TOKEN"), (HookOnly, "HOOK_AUTH_FAILED")]
    )
    def test_after_ten_in_a_minute_429_but_a_correct_token_works(
        self, permission: type[BasePermission], code: str, steady_minute: None
    ) -> None:
        assert [outcome(ask(permission, "Bearer wrong")) for _ in range(10)] == [(401, code)] * 10
        refused = ask(permission, "Bearer wrong")
        assert outcome(refused) == (429, "RATE_LIMIT_EXCEEDED")
        assert 1 <= int(refused["Retry-After"]) <= 60
        assert outcome(ask(permission, f"Bearer {conf.secret('hook_token')}")) == (200, "hook")

    def test_another_address_is_not_affected(self, steady_minute: None) -> None:
        for _ in range(11):
            ask(AnyToken, "Bearer wrong")
        assert outcome(ask(AnyToken, "Bearer wrong", address="192.168.1.8"))[0] == 401

    def test_a_wrong_kind_on_hooks_counts(
        self, mint: Callable[..., Minted], steady_minute: None
    ) -> None:
        _, _, plain = mint()
        assert [outcome(ask(HookOnly, f"Bearer {plain}"))[0] for _ in range(11)] == [401] * 10 + [
            429
        ]

    def test_a_wrong_kind_elsewhere_does_not(
        self, mint: Callable[..., Minted], steady_minute: None
    ) -> None:
        _, _, plain = mint()
        assert {outcome(ask(AdminOnly, f"Bearer {plain}"))[0] for _ in range(11)} == {403}


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

    def test_revoked_is_401_at_once(self, mint: Callable[..., Minted]) -> None:
        device, _, plain = mint()
        assert outcome(ask(AnyToken, f"Bearer {plain}"))[0] == 200
        pairing.revoke(device)
        assert outcome(ask(AnyToken, f"Bearer {plain}")) == (401, "AUTH_INVALID_TOKEN")

    def test_void_and_expired_are_401(self, mint: Callable[..., Minted]) -> None:
        _, token, plain = mint()
        Token.objects.filter(pk=token.pk).update(use_by=timezone.now())
        assert outcome(ask(AnyToken, f"Bearer {plain}")) == (401, "AUTH_INVALID_TOKEN")
        Token.objects.filter(pk=token.pk).update(used_at=timezone.now(), expires_at=timezone.now())
        assert outcome(ask(AnyToken, f"Bearer {plain}")) == (401, "AUTH_INVALID_TOKEN")
        assert Device.objects.get().paired_at is None
