"""The composition: HTTP to Django, the WebSocket to its consumer, and a gate before the upgrade.

`application` is a whole bridge under any ASGI server (D61). `serve` takes `routes` instead: it
starts by itself what runs beside the requests.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from django.core.management.base import CommandError

from bridge_project.kernel import daphne_command

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bridge_project.settings")

if daphne_command.is_running():
    daphne_command.use_its_address()
    try:
        from bridge_project.kernel.config import conf
        from bridge_project.operations import startup

        startup.check_made(conf)  # before Django's settings make a part of it
    except (ValueError, CommandError) as error:  # a wrong setting is a ValueError
        sys.exit(str(error))

import django

django.setup()

from channels.routing import ProtocolTypeRouter, URLRouter
from django.db import Error as DatabaseError
from django.urls import path

from bridge_project.composition import handlers  # noqa: F401 - importing them registers them
from bridge_project.http import ratelimit
from bridge_project.http.request_threads import Handler
from bridge_project.http.transport_middleware import TransportMiddleware, send_error
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import readers
from bridge_project.network import transport
from bridge_project.network.own_names import own_names
from bridge_project.operations.standalone import Standalone
from devices_app import tokens
from files_app.threads import FileRequests
from hooks_app.intake.fast_path import HotPath
from sessions_app.socket.consumer import BridgeConsumer

WEBSOCKET_PATH = "api/v1/ws"

Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Gate:
    """Answers an upgrade that is refused with a real HTTP status, before there is a WebSocket."""

    def __init__(self, application: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        try:
            await self._check(scope, headers)
        except BridgeError as error:
            await receive()  # websocket.connect
            await send_error(scope, send, error)
        else:
            await self.application(scope, receive, send)

    async def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        """Raise the BridgeError that refuses the upgrade: address, host, rate, origin, token, in
        this order.
        """
        names, client = own_names(scope), scope["bridge"].client
        if scope["path"] != f"/{WEBSOCKET_PATH}":
            raise BridgeError("NOT_FOUND")
        if not transport.host_allowed(names, headers.get("host", "")):
            raise BridgeError("HOST_NOT_ALLOWED")
        await readers.run(ratelimit.check, "ws", None, client)
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
        raise BridgeError(
            "STORAGE_UNAVAILABLE", headers={"Retry-After": str(limits.STORAGE_RETRY_SECONDS)}
        ) from None
    if principal is None or principal.device is None:
        await readers.run(ratelimit.failed_authentication, client)
        raise BridgeError("AUTH_INVALID_TOKEN", headers={"WWW-Authenticate": "Bearer"})


routes = ProtocolTypeRouter(
    {
        "http": HotPath(FileRequests(Handler())),
        "websocket": Gate(URLRouter([path(WEBSOCKET_PATH, BridgeConsumer.as_asgi())])),
    }
)
_standalone = Standalone(routes)
application = TransportMiddleware(_standalone)

if daphne_command.is_running():
    _standalone.start_with_daphne()
