# ruff: noqa: N802, N803 - the names are twisted's and autobahn's
"""Accept WebSocket upgrades and their compression, or refuse with D9's error body."""

from collections.abc import Sequence
from typing import Any

import bridge_project.edge.connection  # noqa: F401 - isort: skip  installs the reactor: comes first
from autobahn.websocket.compress import PerMessageDeflateOffer, PerMessageDeflateOfferAccept
from daphne.ws_protocol import WebSocketProtocol

from bridge_project.http import error_body
from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.network.transport import Transport


class Handshake(WebSocketProtocol):  # type: ignore[misc]
    """Answer a WebSocket's opening request: accept it or refuse it."""

    bridge: Transport | None = None  # known when the application is started
    _refusal: tuple[int, list[tuple[bytes, bytes]]]

    def _parseExtensionsHeader(self, header: str, removeQuotes: bool = True) -> list[Any]:
        """Leave out offers that autobahn cannot take; it would refuse the upgrade (D58)."""
        taken = []
        for name, parameters in super()._parseExtensionsHeader(header, removeQuotes):
            if name == PerMessageDeflateOffer.EXTENSION_NAME:
                try:
                    PerMessageDeflateOffer.parse(parameters)  # type: ignore[no-untyped-call]
                except Exception:  # noqa: BLE001, S112 - autobahn raises nothing else
                    continue
            taken.append((name, parameters))
        return taken

    def deny(self, code: str, *, status: int, message: str = "") -> None:
        """Refuse the upgrade with the error body of D9."""
        self._end_handshake(self._error(code, status, message), status)

    def _end_handshake(self, response: bytes, status: int) -> None:
        self.__dict__.pop("handshake_deferred", None)
        self.wasNotCleanReason = f"refused with {status}"
        self.transport.write(response)
        self.dropConnection(abort=False)

    def _error(self, code: str, status: int, message: str) -> bytes:
        server = self.factory.server_class
        bridge = self.bridge or server.transport_of(self.transport, [])
        where = bridge, b"GET", self._path()
        error = BridgeError(code, message)
        return bytes(server.error_response(error, self.request_id(), status, *where))

    def sendHttpErrorResponse(self, code: int, reason: str, responseHeaders: Any = None) -> None:
        """Answer a request that autobahn refuses; it then drops the connection."""
        errors = {500: "INTERNAL_ERROR", 405: "METHOD_NOT_ALLOWED", 403: "ORIGIN_NOT_ALLOWED"}
        if reason.startswith("HTTP Origin header invalid"):
            code = 403
        message = "" if code in errors else reason
        self.transport.write(self._error(errors.get(code, "VALIDATION_ERROR"), code, message))

    def onOpenHandshakeTimeout(self) -> None:
        self.openHandshakeTimeoutCall = None
        if self.state == self.STATE_CONNECTING:
            text = "The bridge did not answer in time."
            self.deny("INTERNAL_ERROR", status=503, message=text)

    def request_id(self) -> str:
        headers = getattr(self, "http_headers", None) or {}
        return error_body.request_id(headers.get("x-request-id"))

    def _path(self) -> bytes:
        return str(getattr(self, "http_request_path", "-")).encode("ascii", "replace")


def accept_compression(offers: Sequence[Any]) -> PerMessageDeflateOfferAccept | None:
    """Accept an offer of permessage-deflate with a small window (D58)."""
    for offer in offers:
        if isinstance(offer, PerMessageDeflateOffer):
            offer.accept_no_context_takeover = True  # whatever the client says (RFC 7692, 7.1.1.2)
            most = offer.request_max_window_bits or limits.DEFLATE_WINDOW_BITS
            return PerMessageDeflateOfferAccept(  # type: ignore[no-untyped-call]
                offer,
                request_no_context_takeover=True,
                window_bits=min(most, limits.DEFLATE_WINDOW_BITS),
                mem_level=limits.DEFLATE_MEMORY_LEVEL,
            )
    return None
