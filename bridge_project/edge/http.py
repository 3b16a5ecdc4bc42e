# ruff: noqa: N802, N815 - the names are twisted's
"""HTTP as daphne speaks it, with a body cap before reading, deadlines for what arrives, and every error in the form of D9."""

from __future__ import annotations

import time
from typing import Any

import daphne.server  # noqa: F401  # isort: skip  installs the reactor, so it comes first
from daphne.http_protocol import HTTPFactory, WebRequest
from twisted.python.failure import Failure
from twisted.web import http

from bridge_project import limits, rest_body
from bridge_project.edge.answers import error_response
from bridge_project.edge.bodies import Place
from bridge_project.transport import FORWARDING_HEADERS, Transport, network_of


def asgi_headers(headers: http.Headers) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, values in headers.getAllRawHeaders() for value in values]


class Request(WebRequest):  # type: ignore[misc]
    """A request whose body is dropped once it was refused, and whose failures are answered as JSON."""

    refused = False
    place: Place | None = None
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
            self.leave()
            self.server.channels.discard(self.channel)
        return super().process()

    def handleContentChunk(self, data: bytes) -> None:
        self.received += len(data)
        if not self.refused and self.received > self.server.conf.max_message_bytes:
            self.channel.refuse("PAYLOAD_TOO_LARGE")
        if self.refused:
            return
        super().handleContentChunk(data)
        if self.place is not None:
            self.place.received = self.received
        elif self.received > limits.SMALL_BODY_BYTES:  # no length was given
            self.channel.take_place(self.server.conf.max_message_bytes)

    def leave(self) -> None:
        """Give the place back, if the body had one: the request is over, or is to have no body."""
        place, self.place = self.place, None
        if place is not None:
            self.server.bodies.leave(place)

    def handle_reply(self, message: dict[str, Any]) -> None:
        if message.get("type") == "http.response.start" and not self.finished and self.channel is not None and self.server.stopping:
            self.channel.persistent = False
            self.setHeader(b"connection", b"close")
        if self.channel is None:
            return
        transport = self.channel.transport
        transport.cork()
        try:
            super().handle_reply(message)
        finally:
            transport.uncork()

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
    timeOut: float | None
    _bridge: Transport
    _deadline: float | None = None
    _forwarded: list[tuple[bytes, bytes]] | None = None
    _receiving = False
    _waiting = False
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

    def setTimeout(self, period: float | None) -> float | None:
        """Only a note of when, for the server looks each second: twisted's timers would be set and cancelled three times for each request."""
        before: float | None = self.timeOut
        self.timeOut = period
        self._deadline = None if period is None else time.monotonic() + period
        return before

    def check_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            self.timeoutConnection()

    def dataReceived(self, data: bytes) -> None:
        if not self._receiving and not self._handlingRequest:
            self._receiving = True
            self.setTimeout(self.timeOut)
        super().dataReceived(data)

    # -- turns --

    def take_place(self, size: int) -> None:
        """Read on only when there is room for so large a body; while it waits, its clock stands."""
        request = self.requests[-1]
        request.place = Place(network_of(request.bridge.client), size, self._enter, self.transport.abortConnection, received=request.received)
        if not self.server.bodies.ask(request.place):
            self._waiting = True
            self.setTimeout(None)
            self.transport.pauseProducing()

    def _enter(self) -> None:
        self._waiting = False
        self.setTimeout(self.factory.timeOut)
        self.transport.resumeProducing()

    def resumeProducing(self) -> None:
        """twisted's: what was to be sent is sent. Reading may have another reason to pause."""
        super().resumeProducing()
        if self._waiting:
            self.transport.pauseProducing()

    # -- refusing --

    def allHeadersReceived(self) -> None:
        request = self.requests[-1]
        request.bridge = self._transport(request)
        if not request.bridge.secure and not request.is_upgrade():
            self.refuse("INSECURE_TRANSPORT")
        elif self.length is not None and self.length > self.server.conf.max_message_bytes:
            self.refuse("PAYLOAD_TOO_LARGE")
        else:
            super().allHeadersReceived()
            if self.length is not None and self.length > limits.SMALL_BODY_BYTES:
                self.take_place(self.length)

    def _transport(self, request: Request) -> Transport:
        """The same for all requests of a connection, unless a proxy says something else of one."""
        forwarded = [pair for pair in asgi_headers(request.requestHeaders) if pair[0] in FORWARDING_HEADERS]
        if forwarded != self._forwarded:
            self._bridge, self._forwarded = self.server.transport_of(self.transport, forwarded), forwarded
        return self._bridge

    def refuse(self, code: str, *, status: int | None = None, message: str = "") -> None:
        """Answer now and read on for a while without keeping anything: a client that is still sending must be able to read why (D9)."""
        if self._refused:
            return
        self._refused = True
        if self.requests:
            self.requests[-1].refused = True
            self.requests[-1].leave()
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
        self.server.log_error(code, request_id, method, path, int(response[9:12]), bridge.client)

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
            place = self.requests[-1].place
            if place is not None:
                self.server.bodies.arrived(place)
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
        for request in self.requests:
            if not self.server.is_being_answered(request):  # or it is in memory until then
                request.leave()
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
