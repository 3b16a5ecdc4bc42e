"""Read a Django request's id, connection, client, and the bridge's address."""

from typing import cast

from django.http import HttpRequest

from bridge_project.http.asgi_types import Scope
from bridge_project.http.error_body import request_id as sane_request_id
from bridge_project.kernel.config import conf
from bridge_project.network.transport import Transport


def scope_of(request: HttpRequest) -> Scope:
    """Return a request's ASGI scope, which `TransportMiddleware` has completed."""
    return cast(Scope, request.scope)  # type: ignore[attr-defined]


def transport_of(request: HttpRequest) -> Transport:
    return cast(Transport, scope_of(request)["bridge"])


def client_address(request: HttpRequest) -> str:
    """Return the client's address, as `RequestMiddleware` set it for rate limits."""
    return str(request.META.get("REMOTE_ADDR", ""))


def request_id_of(request: HttpRequest) -> str:
    """Return the request's id (D9), made on first use."""
    found = getattr(request, "request_id", None)
    if found is None:
        found = sane_request_id(request.META.get("HTTP_X_REQUEST_ID"))
        request.request_id = found  # type: ignore[attr-defined]
    return cast(str, found)


def base_url(request: HttpRequest) -> str:
    """Return the address, without a path, under which this client reaches the bridge."""
    host = "" if conf.bridge_public_url else getattr(request, "checked_host", "")
    return f"https://{host}" if host else transport_of(request).base_url
