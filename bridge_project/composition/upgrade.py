"""Check a WebSocket upgrade's path, host, rate, origin and token (D17, D18)."""

from typing import Final

from bridge_project.http import ratelimit
from bridge_project.http.asgi_types import Application, Receive, Scope, Send
from bridge_project.http.transport_middleware import send_error
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import readers
from bridge_project.network.own_names import host_allowed, origin_allowed, own_names
from devices_app import tokens

WEBSOCKET_PATH: Final = "/api/v1/ws"


class UpgradeCheck:
    """Refuse an upgrade with an HTTP status, or pass it to the application."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _check(scope)
        except BridgeError as error:
            await receive()  # websocket.connect
            await send_error(scope, send, error)
        else:
            await self.application(scope, receive, send)


async def _check(scope: Scope) -> None:
    """Raise BridgeError when address, host, rate, origin or token is wrong."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    names, client = own_names(scope), scope["bridge"].client
    if scope["path"] != WEBSOCKET_PATH:
        raise BridgeError("NOT_FOUND")
    if not host_allowed(names, headers.get("host", "")):
        raise BridgeError("HOST_NOT_ALLOWED")
    await readers.run(ratelimit.check, "ws", None, client)
    if not origin_allowed(conf, names, headers.get("origin")):
        raise BridgeError("ORIGIN_NOT_ALLOWED")
    if "authorization" not in headers:
        return
    # optional here, but one that is given must be a device's
    bearer = tokens.bearer_of(headers["authorization"])
    try:
        principal = await readers.run(tokens.identify, bearer) if bearer else None
    except STORAGE_ERRORS:
        raise BridgeError("STORAGE_UNAVAILABLE") from None
    if principal is None or principal.device is None:
        await readers.run(ratelimit.check, "failed-auth", None, client)
        raise BridgeError("AUTH_INVALID_TOKEN")
