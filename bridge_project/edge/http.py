# ruff: noqa: N802, N815 - the names are twisted's
"""Speak HTTP by daphne: bounds and deadlines for what arrives, and every error in the form of
D9.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any
from urllib.parse import unquote

import daphne.server  # noqa: F401  # isort: skip  installs the reactor, so it comes first
from daphne.http_protocol import HTTPFactory, WebRequest
from twisted.python.failure import Failure
from twisted.web import http

from bridge_project.edge.connection import connection_of
from bridge_project.edge.error_responses import error_response
from bridge_project.http import error_body
from bridge_project.kernel import limits
from bridge_project.network.transport import FORWARDING_HEADERS, Transport

# RFC 9112 section 3.2.2: a target with scheme and authority. A fragment is never sent.
_ABSOLUTE_FORM = re.compile(rb"https?://([^/?#]*)([^#]*)", re.IGNORECASE)
HOOK_PATHS = ("/hooks/", "/api/v1/hooks/")  # only the hook token is admitted there
_LENGTH = re.compile(rb"[0-9]{1,18}")  # more digits than any body has; Python refuses to read 4,300


def asgi_headers(headers: http.Headers) -> list[tuple[bytes, bytes]]:
    return [
        (name.lower(), value) for name, values in headers.getAllRawHeaders() for value in values
    ]


class LargeBodies:
    """Bytes of large bodies that may be in memory at once; who finds no room waits, in order."""

    def __init__(self, most: int) -> None:
        self._free = self._most = most
        self._turn = asyncio.Lock()
        self._given = asyncio.Event()

    async def take(self, size: int) -> int:
        """Wait for room and return how much of it was taken: all of it for a body that is
        larger.
        """
        size = min(size, self._most)
        async with self._turn:
            while self._free < size:
                self._given.clear()
                await self._given.wait()
            self._free -= size
        return size

    def give(self, size: int) -> None:
        """Give back what ``take`` returned, or a part of it."""
        self._free += size
        self._given.set()


class Request(WebRequest):  # type: ignore[misc]
    """A request whose body is dropped once it was refused, and whose failures are answered as
    JSON.
    """

    refused = False
    admitted = False  # the application has said that it wants the large body
    room: LargeBodies | None = None  # where the bytes in ``taken`` came from
    taken = 0
    bridge: Transport

    def __init__(self, channel: Channel, queued: object = False) -> None:
        super().__init__(channel, queued, parsePOSTFormSubmission=False)
        self.received = 0

    def process(self) -> Any:
        self.requestHeaders.removeHeader(b"daphne-root-path")
        if self.is_upgrade():
            if not all(
                value.isascii()
                for value in self.requestHeaders.getRawHeaders(b"Sec-WebSocket-Protocol", [])
            ):
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

    def head_scope(self, method: bytes, target: bytes) -> dict[str, Any]:
        """The ASGI scope of a request whose body has not been read."""
        path, _, query = target.partition(b"?")
        host = self.channel.getHost()
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method.decode("ascii"),
            "scheme": "https",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "root_path": "",
            "query_string": query,
            "headers": [one for one in asgi_headers(self.requestHeaders) if b"_" not in one[0]],
            "client": [self.bridge.client, 0],
            "server": [host.host, host.port],
            "bridge": self.bridge,
            "bridge.body": "awaited",
            "bridge.connection": connection_of(self.channel.transport),
        }

    async def wait_for_room(self, room: LargeBodies, size: int) -> None:
        self.taken = await room.take(size)
        self.room = room

    def leave(self, but: int = 0) -> None:
        """Give the room of a large body back, ``but`` for so many bytes of it."""
        if self.room is not None and self.taken > but:
            self.room.give(self.taken - but)
            self.taken = but

    def handle_reply(self, message: dict[str, Any]) -> None:
        if (
            message.get("type") == "http.response.start"
            and not self.finished
            and self.channel is not None
            and self.server.stopping
        ):
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

    async def has_room(self) -> None:
        """Wait until the connection takes more of the answer, or is gone."""
        if self.channel is not None:
            await self.channel.room.wait()

    def handle_exception(self, exception: BaseException) -> None:
        """The application failed; half an answer is cut, so that nobody takes it for a whole
        one.
        """
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
        return any(
            value.lower() == b"websocket"
            for value in self.requestHeaders.getRawHeaders(b"Upgrade", [])[:1]
        )

    def request_id(self) -> str:
        given = self.requestHeaders.getRawHeaders(b"X-Request-ID", [None])[0]
        if not hasattr(self, "_request_id"):
            self._request_id = error_body.request_id(given.decode("latin-1") if given else None)
        return self._request_id


class Channel(http.HTTPChannel):
    """One HTTP connection. Its clock runs from the first byte of a request to its last, whatever
    drips in between.
    """

    requestFactory = Request
    server: Any
    timeOut: float | None
    _path: bytes  # twisted's: the target of the request that arrives
    _bridge: Transport
    _deadline: float | None = None
    _forwarded: list[tuple[bytes, bytes]] | None = None
    _receiving = False
    asking: asyncio.Task[bytes | None] | None = None  # whether a large body may come
    _held: list[bytes]  # of that body, what has come nevertheless
    _continue = False  # the client waits for 100 Continue
    _refused = False
    _discarding = False
    _drained = 0

    established = True  # as a plain connection is

    @property
    def answering(self) -> bool:
        """A request has arrived whole and is being answered."""
        return bool(self._handlingRequest)

    @property
    def busy(self) -> bool:
        """A request is arriving or being answered."""
        return any(not request.finished and not request.refused for request in self.requests)

    def connectionMade(self) -> None:
        self.room = asyncio.Event()  # set while what is sent is handed to the kernel at once
        self.room.set()
        self.server.channels.add(self)
        super().connectionMade()

    # -- deadlines --

    def resetTimeout(self) -> None:
        """Not at each byte: a client that drips would never be timed out."""

    def setTimeout(self, period: float | None) -> float | None:
        """Only a note of when, for the server looks each second: twisted's timers would be set and
        cancelled three times for each request.
        """
        before: float | None = self.timeOut
        self.timeOut = period
        self._deadline = None if period is None else time.monotonic() + period
        return before

    def check_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            self.timeoutConnection()
        elif not self.room.is_set() and connection_of(self.transport).stalls():
            self.transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        if not self._receiving and not self._handlingRequest:
            self._receiving = True
            self.setTimeout(self.timeOut)
        super().dataReceived(data)

    # -- large bodies --

    def _ask(self, request: Request) -> None:
        """Read no large body before its token was looked at and there is room; no clock runs."""
        self._held = []
        self.asking = self.server.loop.create_task(self._may_come(request))
        self.asking.add_done_callback(self._asked)
        self.setTimeout(None)
        self.transport.pauseProducing()

    async def _may_come(self, request: Request) -> bytes | None:
        """Return the answer that refuses the body, or None when there is room for it."""
        head = request.head_scope(self._command, self._path)
        refusal: bytes | None = await self.server.ask_for_body(head)
        if refusal is None:
            request.admitted = True
            # A device that sends slowly keeps other devices waiting, never a hook event.
            room = self.server.other_bodies
            if head["path"].startswith(HOOK_PATHS):
                room = self.server.hook_bodies
            size = self.server.conf.max_message_bytes if self.length is None else self.length
            await request.wait_for_room(room, size)
        return refusal

    def _asked(self, task: asyncio.Task[bytes | None]) -> None:
        if self.asking is not task or task.cancelled():
            return  # the connection is lost, or the server stops
        self.asking = None
        error = task.exception()
        self.setTimeout(self.factory.timeOut)
        if error is not None:
            self.server.log_failure(error, self.requests[-1].request_id())
            self.refuse("INTERNAL_ERROR")
        elif (refusal := task.result()) is not None:
            self._refuse(refusal)
        elif self._continue:
            super()._send100Continue()
        self.transport.resumeProducing()
        held, self._held = b"".join(self._held), []
        if held:
            self.rawDataReceived(held)

    def _send100Continue(self) -> None:
        if self._is_large():
            self._continue = True
        else:
            super()._send100Continue()

    def _is_large(self) -> bool:
        """Whether this body must ask before it is sent; one whose length is not said might be."""
        return self.length is None or self.length > limits.SMALL_BODY_BYTES

    def pauseProducing(self) -> None:
        """twisted's: the client takes less than is sent."""
        self.room.clear()
        super().pauseProducing()

    def resumeProducing(self) -> None:
        """twisted's: what was to be sent is sent. Reading may have another reason to pause."""
        self.room.set()
        super().resumeProducing()
        if self.asking is not None:
            self.transport.pauseProducing()

    # -- refusing --

    def allHeadersReceived(self) -> None:
        request = self.requests[-1]
        self._take_host_from_target(request)
        request.bridge = self._transport(request)
        if not request.bridge.secure and not request.is_upgrade():
            self.refuse("INSECURE_TRANSPORT")
        elif self.length is not None and self.length > self.server.conf.max_message_bytes:
            self.refuse("PAYLOAD_TOO_LARGE")
        else:
            self._continue = False
            super().allHeadersReceived()
            if not self._is_large():
                return
            if request.is_upgrade():
                self.refuse("PAYLOAD_TOO_LARGE")
            elif not self._path.isascii():
                self.refuse("VALIDATION_ERROR", message="The request's target is not ASCII.")
            else:
                self._ask(request)

    def headerReceived(self, line: bytes) -> bool:
        """Refuse lengths and transfer codings that a proxy before us might read otherwise."""
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if (name == b"content-length" and not _LENGTH.fullmatch(value)) or (
            name == b"transfer-encoding"
            and (value.lower() != b"chunked" or self._version != b"HTTP/1.1")
        ):
            self._respondToBadRequestAndDisconnect()
            return False
        return bool(super().headerReceived(line))

    def _take_host_from_target(self, request: Request) -> None:
        """Make the origin form of an absolute target, whose host stands over ``Host``."""
        found = _ABSOLUTE_FORM.fullmatch(self._path)
        if found is not None:
            request.requestHeaders.setRawHeaders(b"Host", [found[1]])
            self._path = found[2] if found[2].startswith(b"/") else b"/" + found[2]

    def _transport(self, request: Request) -> Transport:
        """The same for all requests of a connection, unless a proxy says something else of one."""
        forwarded = [
            pair for pair in asgi_headers(request.requestHeaders) if pair[0] in FORWARDING_HEADERS
        ]
        if forwarded != self._forwarded:
            self._bridge, self._forwarded = (
                self.server.transport_of(self.transport, forwarded),
                forwarded,
            )
        return self._bridge

    def refuse(self, code: str, *, status: int | None = None, message: str = "") -> None:
        """Answer now and read on for a while without keeping anything: a client that is still
        sending must be able to read why (D9).
        """
        if not self._refused:
            self._refuse(self._error(code, status, message))

    def _refuse(self, response: bytes) -> None:
        self._refused = True
        if self.requests:
            self.requests[-1].refused = True
            self.requests[-1].leave()
        self.transport.write(response)
        self.setTimeout(limits.DRAIN_SECONDS)

    def answer_error(self, code: str, *, status: int | None = None, message: str = "") -> None:
        """The answer to a request that has arrived whole; the connection ends with it."""
        self.transport.write(self._error(code, status, message))
        request = self.requests[-1]
        request.finished = 1
        self.server.protocol_disconnected(request)
        self.loseConnection()

    def _error(self, code: str, status: int | None, message: str) -> bytes:
        """Make the response of an error that the edge answers, and log it."""
        request = self.requests[-1] if self.requests else None
        bridge = self._bridge_of(request)
        request_id = request.request_id() if request else error_body.request_id(None)
        response = error_response(
            code, request_id, base_url=bridge.base_url, status=status, message=message
        )
        method = getattr(self, "_command", None) or getattr(request, "method", b"-")
        path = getattr(self, "_path", None) or getattr(request, "uri", b"-")
        answered = int(response[9:12])
        self.server.log_error(code, request_id, method, path, answered, bridge.client)
        return response

    def _bridge_of(self, request: Request | None) -> Transport:
        found: Transport | None = getattr(request, "bridge", None)
        return found or self.server.transport_of(self.transport, [])

    def rawDataReceived(self, data: bytes) -> None:
        if self.asking is not None:
            self._held.append(data)
            return
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
            request = self.requests[-1]
            request.leave(but=request.received)  # of a chunked body, the length is known now
            super().allContentReceived()

    def lineLengthExceeded(self, line: bytes) -> None:
        self._respondToBadRequestAndDisconnect()

    def _respondToBadRequestAndDisconnect(self) -> None:
        already = self._refused
        self._discard()
        if already:
            self.loseConnection()
        else:
            self.refuse(
                "VALIDATION_ERROR",
                status=400,
                message="The request is not valid HTTP, or its header is too large.",
            )
            # what is on its way is read before the connection ends, or the answer could be lost in
            # a reset
            self.setTimeout(1)

    def _discard(self) -> None:
        self._discarding = True
        self.setRawMode()

    def connectionLost(self, reason: Failure) -> None:
        self.server.channels.discard(self)
        if self.asking is not None:
            self.asking.cancel()
            self.asking = None
        self.room.set()
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
