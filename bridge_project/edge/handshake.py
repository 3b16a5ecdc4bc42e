# ruff: noqa: N802, N803 - the names are twisted's and autobahn's
"""Accept or refuse upgrades with an HTTP status, and messages by their size (D9)."""

from typing import Any

import bridge_project.edge.connection  # noqa: F401 - isort: skip  installs the reactor: comes first
from autobahn.websocket.compress import PerMessageDeflateOffer
from daphne.ws_protocol import WebSocketProtocol

from bridge_project.http import error_body
from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.parse import id_at_beginning

TOO_BIG = 1009


class Handshake(WebSocketProtocol):  # type: ignore[misc]
    """Run a WebSocket until it is open."""

    client_addr: list[Any] | None = None
    _refusal: tuple[int, list[tuple[bytes, bytes]]]

    def _parseExtensionsHeader(self, header: str, removeQuotes: bool = True) -> list[Any]:
        """Leave out offers that autobahn cannot take; it would refuse the upgrade (D58)."""
        return [
            (name, parameters)
            for name, parameters in super()._parseExtensionsHeader(header, removeQuotes)
            if name != PerMessageDeflateOffer.EXTENSION_NAME or _can_take(parameters)
        ]

    def deny(self, code: str, *, status: int, message: str = "") -> None:
        """Refuse the upgrade with the error body of D9."""
        self._end_handshake(self._error(code, status, message), status)

    def _end_handshake(self, response: bytes, status: int) -> None:
        self.__dict__.pop("handshake_deferred", None)
        self.wasNotCleanReason = f"refused with {status}"
        self.transport.write(response)
        self.dropConnection(abort=False)

    def _error(self, code: str, status: int, message: str) -> bytes:
        server, error = self.factory.server_class, BridgeError(code, message)
        base_url = server.transport_of(self.transport, []).base_url
        where = b"GET", self._path(), self._client(), base_url
        return bytes(server.error_response(error, self.request_id(), status, *where))

    def sendHttpErrorResponse(self, code: int, reason: str, responseHeaders: Any = None) -> None:
        """Answer a request that autobahn refuses; it then drops the connection."""
        errors = {500: "INTERNAL_ERROR", 405: "METHOD_NOT_ALLOWED"}
        message = "" if code == 500 else reason
        self.transport.write(self._error(errors.get(code, "VALIDATION_ERROR"), code, message))

    def serverReject(self) -> None:
        """Refuse: the application did not answer the handshake in time."""
        self.deny("INTERNAL_ERROR", status=503, message="The bridge did not answer in time.")

    def request_id(self) -> str:
        headers = getattr(self, "http_headers", None) or {}
        return error_body.request_id(headers.get("x-request-id"))

    def _path(self) -> bytes:
        return str(getattr(self, "http_request_path", "-")).encode("ascii", "replace")

    def _client(self) -> str:
        return str(self.client_addr[0]) if self.client_addr else str(self.transport.getPeer().host)

    def __repr__(self) -> str:
        return f"<WebSocket {self.client_addr!r}>"


def _can_take(parameters: dict[str, list[Any]]) -> bool:
    try:
        PerMessageDeflateOffer.parse(parameters)  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001 - autobahn raises nothing else
        return False
    return True


class MessageLimit(Handshake):
    """Close with 1009 when a frame header announces a message over the limit.

    Of a message that is not compressed the first bytes are read, so that the error has its id.
    """

    authenticated = False
    _too_large = ""  # the reason for the close, while the beginning is awaited

    def _max_message_size_exceeded(self, size: int, most: int, reason: str) -> None:
        self._too_large = reason
        # no more will be inflated, and an earlier frame of the message had its beginning
        if self._isMessageCompressed or self.message_data or not self.authenticated:
            self._refuse_too_large()

    def onMessageFrameData(self, payload: bytes) -> None:
        super().onMessageFrameData(payload)
        if self._too_large and len(self._beginning()) == limits.MESSAGE_BEGINNING_BYTES:
            self._refuse_too_large()

    def _refuse_too_large(self) -> None:
        reason, self._too_large = self._too_large, ""
        id = id_at_beginning(self._beginning().decode(errors="ignore"))
        if id is not None and self.authenticated:
            most = self.maxMessagePayloadSize // 2**20
            error = BridgeError("PAYLOAD_TOO_LARGE", f"A message has at most {most} MB.")
            self.serverSend(encode(error_body.error_payload(error), id=id).text)
        self._fail_connection(TOO_BIG, reason)

    def _beginning(self) -> bytes:
        """Return the beginning of the message that is being received."""
        found = b""
        for piece in (*self.message_data, *(self.frame_data or ())):
            found += piece[: limits.MESSAGE_BEGINNING_BYTES - len(found)]
            if len(found) == limits.MESSAGE_BEGINNING_BYTES:
                break
        return found
