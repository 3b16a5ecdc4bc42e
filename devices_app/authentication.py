"""Authenticate bearer tokens; define which kinds of token a view admits (D14)."""

from typing import Any, NoReturn, cast

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from bridge_project.http import ratelimit
from bridge_project.kernel.errors import BridgeError
from devices_app import pairing, tokens
from devices_app.tokens import Principal


class BearerAuthentication(BaseAuthentication):
    """Require ``Authorization: Bearer <token>``.

    Raises BridgeError AUTH_INVALID_TOKEN (401; HOOK_AUTH_FAILED where HookOnly guards the view) for
    a token that is missing, malformed, unknown, revoked, expired or void, and RATE_LIMIT_EXCEEDED
    (429) when the address has failed too often (D16). A valid token is never held up by others'
    failures.
    """

    def authenticate(self, request: Request) -> tuple[Principal, None]:
        address = request.META["REMOTE_ADDR"]
        bearer = tokens.bearer_of(request.META.get("HTTP_AUTHORIZATION"))
        principal = tokens.identify(bearer) if bearer is not None else None
        if principal is None:
            _fail("HOOK_AUTH_FAILED" if _is_for_hooks(request) else "AUTH_INVALID_TOKEN", address)
        if not _is_for_hooks(request):
            pairing.record_token_use(principal, address=address)
        return principal, None


class _Scope(BasePermission):
    """Admit the named kinds of token; refuse others (HookOnly says how it does)."""

    kinds: frozenset[tokens.Kind]

    def has_permission(self, request: Request, view: Any) -> bool:
        if cast(Principal, request.user).kind in self.kinds:
            return True
        if _is_for_hooks(request):
            _fail("HOOK_AUTH_FAILED", request.META["REMOTE_ADDR"])
        raise BridgeError("AUTH_INSUFFICIENT_SCOPE")


class AnyToken(_Scope):
    """Admit every valid token: ``/health`` and ``/info``."""

    kinds = frozenset({"device", "hook", "admin"})


class DeviceOrAdmin(_Scope):
    """Admit devices and the administrator: ``/sessions*`` and ``/files*``."""

    kinds = frozenset({"device", "admin"})


class DeviceOnly(_Scope):
    """Admit devices: ``/push/*``."""

    kinds = frozenset({"device"})


class AdminOnly(_Scope):
    """Admit the administrator: ``/admin/*`` of the API, and ``/metrics``."""

    kinds = frozenset({"admin"})


class HookOnly(_Scope):
    """Admit the hook token: ``/hooks/*``.

    Any other token is 401 HOOK_AUTH_FAILED, and counts as a failed attempt.
    """

    kinds = frozenset({"hook"})


def _fail(code: str, address: str) -> NoReturn:
    ratelimit.check("failed-auth", None, address)  # a valid token still works from there (D16)
    raise BridgeError(code)


def _is_for_hooks(request: Request) -> bool:
    view = (request.parser_context or {}).get("view")
    return HookOnly in getattr(view, "permission_classes", ())
