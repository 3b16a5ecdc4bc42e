# ruff: noqa: N802, N815 - the names are twisted's
"""HTTP as daphne speaks it, with a body cap before reading, deadlines for what arrives, and every error in the form of D9."""

from __future__ import annotations

from typing import Any

import daphne.server  # noqa: F401  # isort: skip  installs the reactor, so it comes first
from daphne.http_protocol import HTTPFactory, WebRequest
from twisted.python.failure import Failure
from twisted.web import http

from bridge_project import limits, rest_body
from bridge_project.edge.answers import error_response
from bridge_project.transport import Transport


def asgi_headers(headers: http.Headers) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, values in headers.getAllRawHeaders() for value in values]


class Request(WebRequest):  # type: ignore[misc]
    """A request whose body is dropped once it was refused, and whose failures are answered as JSON."""

    refused = False
    bridge: Transport

    def __init__(self, channel: Channel, queued: object = False) -> None:
        super().__init__(channel, queued, parsePOSTFormSubmission=False)
        self.received = 0

    def process(self) -> Any:
        self.requestHeaders.removeHeader(b"daphne-root-path")
        if self.is_upgrade():
            if not all(value.isascii() for value in self.requestHeaders.getRawHeaders(b"Sec-WebSocket-Protocol", [])):
                return self.basic_error(400, b"", "Sec-WebSocket-Protocol is not ASCII.")
            if self.server.stopping:
                return self.basic_error(503, b"", "")
            self.server.channels.discard(self.channel)
        return super().process()

    def handleContentChunk(self, data: bytes) -> None:
        self.received += len(data)
        if not self.refused and self.received > self.server.conf.max_message_bytes:
            self.channel.refuse("PAYLOAD_TOO_LARGE")
        if not self.refused:
            super().handleContentChunk(data)

    def handle_reply(self, message: dict[str, Any]) -> None:
        if message.get("type") == "http.response.start" and not self.finished and self.channel is not None and self.server.stopping:
            self.channel.persistent = False
            self.setHeader(b"connection", b"close")
        super().handle_reply(message)

    def handle_exception(self, exception: BaseException) -> None:
        """The application failed; half an answer is cut, so that nobody takes it for a whole one."""
        self.server.log_failure(exception, self.request_id())
        self.basic_error(500, b"", "")

    def fail(self) -> None:
        """The application ended without a whole answer."""
        if not self.finished and self.channel is not None:
            self.basic_error(500, b"", "")

    def basic_error(self, status: int, status_text: bytes, body: str) -> None:
        if self.finished or self.channel is None:
            return
        if self._response_started:
            self.channel.transport.abortConnection()
        elif status >= 500:
            self.channel.answer_error("INTERNAL_ERROR", status=status)
        else:
            self.channel.answer_error("VALIDATION_ERROR", status=status, message=body)

    def is_upgrade(self) -> bool:
        return any(value.lower() == b"websocket" for value in self.requestHeaders.getRawHeaders(b"Upgrade", [])[:1])

    def request_id(self) -> str:
        given = self.requestHeaders.getRawHeaders(b"X-Request-ID", [None])[0]
        if not hasattr(self, "_request_id"):
            self._request_id = rest_body.request_id(given.decode("latin-1") if given else None)
        return self._request_id


class Channel(http.HTTPChannel):
    """One HTTP connection. Its clock runs from the first byte of a request to its last, whatever drips in between."""

    requestFactory = Request
    server: Any
    _receiving = False
    _refused = False
    _discarding = False
    _drained = 0

    @property
    def busy(self) -> bool:
        """A request is arriving or being answered."""
        return any(not request.finished and not request.refused for request in self.requests)

    def connectionMade(self) -> None:
        self.server.channels.add(self)
        super().connectionMade()

    # -- deadlines --

    def resetTimeout(self) -> None:
        """Not at each byte: a client that drips would never be timed out."""

    def dataReceived(self, data: bytes) -> None:
        if not self._receiving and not self._handlingRequest:
            self._receiving = True
            self.setTimeout(self.timeOut)
        super().dataReceived(data)

    # -- refusing --

    def allHeadersReceived(self) -> None:
        request = self.requests[-1]
        request.bridge = self.server.transport_of(self.transport, asgi_headers(request.requestHeaders))
        if not request.bridge.secure and not request.is_upgrade():
            self.refuse("INSECURE_TRANSPORT")
        elif self.length is not None and self.length > self.server.conf.max_message_bytes:
            self.refuse("PAYLOAD_TOO_LARGE")
        else:
            super().allHeadersReceived()

    def refuse(self, code: str, *, status: int | None = None, message: str = "") -> None:
        """Answer now and read on for a while without keeping anything: a client that is still sending must be able to read why (D9)."""
        if self._refused:
            return
        self._refused = True
        if self.requests:
            self.requests[-1].refused = True
        self._write_error(code, status, message)
        self.setTimeout(limits.DRAIN_SECONDS)

    def answer_error(self, code: str, *, status: int | None = None, message: str = "") -> None:
        """The answer to a request that has arrived whole; the connection ends with it."""
        self._write_error(code, status, message)
        request = self.requests[-1]
        request.finished = 1
        self.server.protocol_disconnected(request)
        self.loseConnection()

    def _write_error(self, code: str, status: int | None, message: str) -> None:
        request = self.requests[-1] if self.requests else None
        bridge = getattr(request, "bridge", None) or self.server.transport_of(self.transport, [])
        request_id = request.request_id() if request else rest_body.request_id(None)
        response = error_response(code, request_id, base_url=bridge.base_url, status=status, message=message)
        self.transport.write(response)
        method, path = getattr(self, "_command", None) or getattr(request, "method", b"-"), getattr(self, "_path", None) or getattr(request, "uri", b"-")
        self.server.log_access(method, path, int(response[9:12]), bridge.client)

    def rawDataReceived(self, data: bytes) -> None:
        if self._refused:
            self._drained += len(data)
            if self._drained > limits.DRAIN_BYTES:
                self.transport.abortConnection()
            if self._discarding or self._drained > limits.DRAIN_BYTES:
                return
        super().rawDataReceived(data)

    def allContentReceived(self) -> None:
        self._receiving = False
        if self._refused:
            self._discard()
            self.loseConnection()
        else:
            super().allContentReceived()

    def lineLengthExceeded(self, line: bytes) -> None:
        self._respondToBadRequestAndDisconnect()

    def _respondToBadRequestAndDisconnect(self) -> None:
        already = self._refused
        self._discard()
        if already:
            self.loseConnection()
        else:
            self.refuse("VALIDATION_ERROR", status=400, message="The request is not valid HTTP, or its header is too large.")
            self.setTimeout(1)  # what is on its way is read before the connection ends, or the answer could be lost in a reset

    def _discard(self) -> None:
        self._discarding = True
        self.setRawMode()

    def connectionLost(self, reason: Failure) -> None:
        self.server.channels.discard(self)
        super().connectionLost(reason)


class Factory(HTTPFactory):  # type: ignore[misc]
    """Builds channels that know their server."""

    timeOut = limits.REQUEST_SECONDS

    def buildProtocol(self, addr: Any) -> Channel:
        channel = Channel()
        channel.factory = self
        channel.server = self.server
        channel.timeOut = type(self).timeOut
        channel.callLater = self.reactor.callLater
        return channel

    def log(self, request: Any) -> None:
        """The server writes its own access log."""
