"""The composition: HTTP to Django, the WebSocket to its consumer, and a gate before the upgrade (D16, D17, D18)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bridge_project.settings")

import django

django.setup()

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.db import Error as DatabaseError  # noqa: E402
from django.urls import path  # noqa: E402

from bridge_project import limits, ratelimit, rest, transport  # noqa: E402
from bridge_project.conf import conf  # noqa: E402
from bridge_project.database import readers  # noqa: E402
from bridge_project.errors import BridgeError  # noqa: E402
from bridge_project.handler import Handler  # noqa: E402
from bridge_project.protocol import jsontext  # noqa: E402
from bridge_project.rest_body import error_body, log_error, request_id  # noqa: E402
from devices_app import tokens  # noqa: E402
from hooks_app.hot import HotPath  # noqa: E402
from sessions_app.consumers import BridgeConsumer  # noqa: E402

WEBSOCKET_PATH = "api/v1/ws"

Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Gate:
    """Answers an upgrade that is refused with a real HTTP status, before there is a WebSocket."""

    def __init__(self, application: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            await self._check(scope, headers)
        except BridgeError as error:
            await receive()  # websocket.connect
            await _deny(scope, headers, error, send)
        else:
            await self.application(scope, receive, send)

    async def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        """Raise the BridgeError that refuses the upgrade: address, host, rate, origin, token, in this order."""
        names, client = rest.own_names() | {transport.normalise(scope["server"][0])}, scope["bridge"].client
        if scope["path"] != f"/{WEBSOCKET_PATH}":
            raise BridgeError("NOT_FOUND")
        if not transport.host_allowed(names, headers.get("host", "")):
            raise BridgeError("HOST_NOT_ALLOWED")
        await readers.run(ratelimit.upgrade_allowed, client)
        if not transport.origin_allowed(conf, names, headers.get("origin")):
            raise BridgeError("ORIGIN_NOT_ALLOWED")
        if "authorization" in headers:
            await _check_token(headers["authorization"], client)


async def _check_token(header: str, client: str) -> None:
    """A token is optional here, but one that is given must be a device's (D18)."""
    bearer = tokens.bearer_of(header)
    try:
        principal = await readers.run(tokens.identify, bearer) if bearer else None
    except DatabaseError:
        raise BridgeError("STORAGE_UNAVAILABLE", headers={"Retry-After": str(limits.STORAGE_RETRY_SECONDS)}) from None
    if principal is None or principal.device is None:
        await readers.run(ratelimit.failed_authentication, client)
        raise BridgeError("AUTH_INVALID_TOKEN", headers={"WWW-Authenticate": "Bearer"})


async def _deny(scope: Scope, headers: dict[str, str], error: BridgeError, send: Send) -> None:
    given = request_id(headers.get("x-request-id"))
    status = error.row.status or 403
    body = error_body(error.code, given, base_url=scope["bridge"].base_url, message=error.message, status=status, **error.fields)
    path, client = scope["path"][:200], scope["bridge"].client
    log_error(error.code, request_id=given, status=status, method="GET", path=path, client=client)
    extra = {"Content-Type": "application/json", "X-Request-ID": given, **error.headers}
    start_headers = [(name.lower().encode(), value.encode()) for name, value in extra.items()]
    await send({"type": "websocket.http.response.start", "status": status, "headers": start_headers})
    await send({"type": "websocket.http.response.body", "body": jsontext.dumps(body).encode()})


application = ProtocolTypeRouter(
    {
        "http": HotPath(Handler()),
        "websocket": Gate(URLRouter([path(WEBSOCKET_PATH, BridgeConsumer.as_asgi())])),
    }
)
