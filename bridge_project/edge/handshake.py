# ruff: noqa: N802, N803 - the names are twisted's and autobahn's
"""Accept an upgrade to a WebSocket, or refuse it with an HTTP status (D9)."""

from typing import Any

import bridge_project.edge.connection  # noqa: F401 - isort: skip  installs the reactor: comes first
from daphne.ws_protocol import WebSocketProtocol

from bridge_project.edge.request import raw_error_response, raw_response
from bridge_project.http import error_body


class Handshake(WebSocketProtocol):  # type: ignore[misc]
    """Run a WebSocket until it is open."""

    client_addr: list[Any] | None = None
    _refusal: tuple[int, list[tuple[bytes, bytes]], bytes] | None = None

    def _accept(self, message: dict[str, Any]) -> None:
        headers: dict[str, list[str]] = {}
        for name, value in message.get("headers", []):
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        self.serverAccept((message.get("subprotocol"), headers))

    def _refuse(self, message: dict[str, Any]) -> None:
        if self._refusal is None:
            raise ValueError("websocket.http.response.body came before its start")
        status, headers, body = self._refusal
        self._refusal = (status, headers, body + message.get("body", b""))
        if not message.get("more_body", False) and self.state == self.STATE_CONNECTING:
            self._end_handshake(raw_response(*self._refusal), status)

    def deny(self, code: str, *, status: int, message: str = "") -> None:
        self._end_handshake(self._error(code, status, message), status)

    def _end_handshake(self, response: bytes, status: int) -> None:
        self.__dict__.pop("handshake_deferred", None)
        self.wasNotCleanReason = f"refused with {status}"
        self.transport.write(response)
        self.dropConnection(abort=False)

    def _error(self, code: str, status: int, message: str) -> bytes:
        """Make the response of an error that the edge answers, and log it."""
        server, request_id = self.factory.server_class, self._request_id()
        base_url = server.transport_of(self.transport, []).base_url
        server.log_error(code, request_id, b"GET", self._path(), status, self._client())
        return raw_error_response(
            code, request_id, base_url=base_url, status=status, message=message
        )

    def sendHttpErrorResponse(self, code: int, reason: str, responseHeaders: Any = None) -> None:
        """Answer a request that autobahn refuses; it then drops the connection."""
        errors = {500: "INTERNAL_ERROR", 405: "METHOD_NOT_ALLOWED"}
        message = "" if code == 500 else reason
        self.transport.write(self._error(errors.get(code, "VALIDATION_ERROR"), code, message))

    def serverReject(self) -> None:
        """Refuse: the application did not answer the handshake in time."""
        self.deny("INTERNAL_ERROR", status=503, message="The bridge did not answer in time.")

    def _request_id(self) -> str:
        headers = getattr(self, "http_headers", None) or {}
        return error_body.request_id(headers.get("x-request-id"))

    def _path(self) -> bytes:
        return str(getattr(self, "http_request_path", "-")).encode("ascii", "replace")

    def _client(self) -> str:
        return str(self.client_addr[0]) if self.client_addr else str(self.transport.getPeer().host)

    def __repr__(self) -> str:
        return f"<WebSocket {self.client_addr!r}>"
