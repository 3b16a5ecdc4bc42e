"""Find out how each connection reached the bridge; refuse unencrypted ones (D19)."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bridge_project.http.asgi_types import Application, Message, Receive, Scope, Send
from bridge_project.http.error_body import (
    connection_error_payload,
    error_answer,
    log_error,
    request_id,
)
from bridge_project.kernel import daphne_command
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.network import transport
from bridge_project.network.transport import FORWARDING_HEADERS, Transport
from bridge_project.protocol.catalogue import encode


class TransportMiddleware:
    """Put a `Transport` into the scope as `bridge`; refuse what is not encrypted.

    `serve` has put it there: its edge asks the TCP connection itself, and caps the body while it is
    read. Any other server's scope is completed here.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
            return
        is_socket = scope["type"] == "websocket"
        scope = dict(scope)  # the server writes its log by its own
        if "bridge" not in scope:
            scope["bridge"] = transport_from_scope(scope)
            if is_socket:
                scope["bridge.socket"] = ServerSocket()
            else:
                receive = _capped(receive)
        bridge: Transport = scope["bridge"]
        port = 0 if bridge.via_proxy else (scope.get("client") or ("", 0))[1]
        scope["client"] = [bridge.client, port]
        scope["scheme"] = ("ws" if is_socket else "http") + ("s" if bridge.secure else "")
        scope["root_path"] = ""  # daphne takes it from a header that anybody may send
        try:
            _check(scope)
            await self.application(scope, receive, send)
        except BridgeError as error:  # raised before the application has answered anything
            await refuse(scope, receive, send, error)


def _check(scope: Scope) -> None:
    bridge: Transport = scope["bridge"]
    if not bridge.secure:
        raise BridgeError("INSECURE_TRANSPORT")
    if not bridge.via_proxy and not transport.accepts_on(conf.bridge_host, _local(scope)):
        raise BridgeError("HOST_NOT_ALLOWED")  # `serve` ends such a connection before TLS (D45)
    if scope["type"] == "websocket" and bridge.mode == "misconfigured":
        raise BridgeError("MISCONFIGURED")


def _local(scope: Mapping[str, Any]) -> str:
    """Return the address that accepted the connection; empty when unknown."""
    return str((scope.get("server") or ("",))[0])


def transport_from_scope(scope: Mapping[str, Any]) -> Transport:
    """Return the `Transport` of a scope from a server other than `serve`.

    daphne says where a connection was accepted, and its command line whether TLS ends there. Other
    servers say the scheme; but some take scheme and client from a proxy's headers, whoever sent
    them. A connection for which this is possible counts as unencrypted.
    """
    peer = str((scope.get("client") or ("",))[0])
    if daphne_command.is_running():
        tls = daphne_command.is_tls(scope.get("server"))
    elif any(name in FORWARDING_HEADERS for name, _ in scope["headers"]):
        tls, peer = False, ""
    else:
        tls = scope.get("scheme") in ("https", "wss")
    return transport.resolve(
        conf, tls=tls, local_address=_local(scope), peer_address=peer, headers=scope["headers"]
    )


class ServerSocket:
    """Stand for our edge's socket (`scope["bridge.socket"]`) under another server.

    It sends through ASGI, and leaves it to the server's own ping to notice a lost peer.
    """

    def buffered(self) -> int:
        return 0

    def authenticated(self) -> None:
        """Do nothing: the server has its own bounds before `auth`."""

    def send_frames(self, frames: Sequence[bytes]) -> int:
        """Send nothing: the caller then sends each text by itself."""
        return 0

    async def drain(self) -> None:
        """Do nothing: another server waits in `send`."""

    @property
    def last_progress(self) -> float:
        return time.monotonic()

    last_frame = last_progress

    def abort(self) -> None:
        """Do nothing: another server offers only a close, which came before."""


def _capped(receive: Receive) -> Receive:
    """Raise PAYLOAD_TOO_LARGE at a body over BRIDGE_MAX_MESSAGE_MB."""
    size = 0

    async def capped() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > conf.max_message_bytes:
            raise BridgeError("PAYLOAD_TOO_LARGE")
        return message

    return capped


async def refuse(scope: Scope, receive: Receive, send: Send, error: BridgeError) -> None:
    """Answer a request with an error, a socket with `connection_error` (D19, D20)."""
    if scope["type"] == "http" or error.row.close is None:
        await send_error(scope, send, error)
    elif (await receive())["type"] == "websocket.connect":
        log_error(error.code, method="GET", path=scope["path"][:200], client=scope["bridge"].client)
        await send({"type": "websocket.accept"})
        payload = connection_error_payload(error, scope["bridge"].base_url)
        await send({"type": "websocket.send", "text": encode(payload).text})
        await send({"type": "websocket.close", "code": error.row.close})


async def send_error(scope: Scope, send: Send, error: BridgeError) -> None:
    """Answer a request, or an upgrade if the server can, with an error of D9."""
    given = request_id(dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1"))
    bridge: Transport = scope["bridge"]
    status = error.row.status or 403
    log_error(
        error.code,
        request_id=given,
        status=status,
        method=scope.get("method", "GET"),
        path=scope["path"][:200],
        client=bridge.client,
    )
    prefix = "http.response"
    if scope["type"] == "websocket":
        prefix = "websocket.http.response"
        if prefix not in scope.get("extensions", {}):
            await send({"type": "websocket.close"})  # daphne answers 403
            return
    answer = error_answer(error, given, bridge.base_url, status=status)
    named = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    await send({"type": f"{prefix}.start", "status": status, "headers": named})
    await send({"type": f"{prefix}.body", "body": answer.body})


def refuse_wsgi(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """Refuse everything: under WSGI the bridge cannot know its connections.

    `manage.py runserver` would serve tokens and files in the clear (D45, D61).
    """
    start_response("403 Forbidden", [("Content-Type", "text/plain")])
    return [b"The bridge is no WSGI application. Run its command `serve`.\n"]
