# ruff: noqa: N802, N815 - the names are twisted's
"""Run HTTP connections with size limits, deadlines and the errors of D9."""

import asyncio
import re
import time
from typing import Any

from bridge_project.edge.connection import connection_of  # isort: skip  sets the reactor
from twisted.python.failure import Failure
from twisted.web import http

from bridge_project.edge.request import Request, ask_for_body
from bridge_project.http import cors, error_body
from bridge_project.kernel import limits
from bridge_project.kernel.errors import ERRORS, BridgeError
from bridge_project.network.transport import FORWARDING_HEADERS

# RFC 9112 section 3.2.2: a target with scheme and authority. A fragment is never sent.
ABSOLUTE_FORM = re.compile(rb"https?://([^/?#]*)([^#]*)", re.IGNORECASE)
HOOK_PATHS = ("/hooks/", "/api/v1/hooks/")  # only the hook token is admitted there
LENGTH = re.compile(rb"[0-9]{1,18}")  # more digits than any body has; Python refuses to read 4,300
SILENT_SECONDS = 1  # a client that was refused and sends nothing more has read the answer


class Channel(http.HTTPChannel):
    """Run one HTTP connection.

    A request's clock runs from its first byte to its last, however slowly bytes come in between.
    """

    requestFactory = Request
    server: Any
    timeOut: float | None
    _deadline: float | None = None  # by the monotonic clock
    _path: bytes  # twisted's: the target of the request that arrives
    _receiving = False
    admission: asyncio.Task[None] | None = None  # whether a large body may come
    _refused: float | None = None  # when; what comes after that is dropped
    _drained = 0

    @property
    def busy(self) -> bool:
        """Return whether a request is arriving or being answered."""
        return any(not request.finished and not request.refused for request in self.requests)

    def connectionMade(self) -> None:
        self.server = self.factory.server
        self.server.channels.add(self)
        super().connectionMade()

    def resetTimeout(self) -> None:
        """Ignore twisted's reset for each byte: a slow sender must still time out."""

    def setTimeout(self, period: float | None) -> float | None:
        """Set a deadline, which the server checks every second; return the former one."""
        before, self.timeOut = self.timeOut, period
        self._deadline = None if period is None else time.monotonic() + period
        return before

    def check_progress(self) -> None:
        """Reset a client that does not read its answer, or sends its request too slowly."""
        now, connection = time.monotonic(), connection_of(self.transport)
        if connection.waiting() and now - connection.last_progress > limits.SLOW_SOCKET_SECONDS:
            self.transport.abortConnection()
        elif self._deadline is not None and now >= self._deadline:
            self._deadline = None
            self.timeoutConnection()

    def dataReceived(self, data: bytes) -> None:
        if self._refused is not None:
            self._drain(len(data))
            return
        if not self._receiving and not self._handlingRequest:
            self._receiving = True
            self.setTimeout(self.timeOut)
        super().dataReceived(data)

    async def _admit_body(self, request: Request) -> None:
        """Ask the application before reading a large body; no clock runs meanwhile."""
        head = request.head_scope(self._command, self._path) | {"bridge.body": "awaited"}
        try:
            refusal: bytes | None = await ask_for_body(self.server.application, head)
            if refusal is None:
                request.admitted = True
                # A device that sends slowly keeps other devices waiting, never a hook event.
                of_hook = head["path"].startswith(HOOK_PATHS)
                place = self.server.hook_bodies if of_hook else self.server.other_bodies
                await place.acquire()
                request.place = place
        except Exception as error:  # noqa: BLE001 - the application's, whatever it is
            self.server.log_failure(error, request.request_id())
            refusal = self._error("INTERNAL_ERROR", 500, "")
        self.admission = None
        self.setTimeout(self.factory.timeOut)
        if refusal is not None:
            self._end_with(refusal)
        self.transport.resumeProducing()
        self.paused = False
        self.dataReceived(b"")  # what has come of the body nevertheless

    def resumeProducing(self) -> None:
        super().resumeProducing()
        if self.admission is not None:
            self.transport.pauseProducing()

    def rawDataReceived(self, data: bytes) -> None:
        if self._refused is not None:
            self._drain(len(data))
        else:
            super().rawDataReceived(data)

    def headerReceived(self, line: bytes) -> bool:
        """Refuse lengths and codings that a proxy might understand differently."""
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if (name == b"content-length" and not LENGTH.fullmatch(value)) or (
            name == b"transfer-encoding"
            and (value.lower() != b"chunked" or self._version != b"HTTP/1.1")
        ):
            self._respondToBadRequestAndDisconnect()
            return False
        return bool(super().headerReceived(line))

    def allHeadersReceived(self) -> None:
        if self._refused is not None:
            return
        request = self.requests[-1]
        hosts = len(request.requestHeaders.getRawHeaders(b"Host", []))
        if absolute := ABSOLUTE_FORM.fullmatch(self._path):  # its host counts more than `Host`
            request.requestHeaders.setRawHeaders(b"Host", [absolute[1]])
            self._path = b"/" + absolute[2].removeprefix(b"/")
        raw = request.requestHeaders.getAllRawHeaders()
        request.head = [(name.lower(), value) for name, values in raw for value in values]
        request.bridge = self.server.transport_of(
            self.transport, [one for one in request.head if one[0] in FORWARDING_HEADERS]
        )
        if not request.bridge.secure and not request.is_upgrade():
            self.refuse("INSECURE_TRANSPORT")
            return
        if hosts > 1 or (hosts == 0 and self._version == b"HTTP/1.1"):  # RFC 9112 section 3.2
            self._respondToBadRequestAndDisconnect()
            return
        if self.length is not None and self.length > self.server.conf.max_message_bytes:
            self.refuse("PAYLOAD_TOO_LARGE")
            return
        super().allHeadersReceived()
        if self.length is not None and self.length <= limits.SMALL_BODY_BYTES:
            return
        if request.is_upgrade():
            self.refuse("PAYLOAD_TOO_LARGE")
        elif not self._path.isascii():
            self.refuse("VALIDATION_ERROR", message="The request's target is not ASCII.")
        else:
            self.admission = self.server.loop.create_task(self._admit_body(request))
            self.setTimeout(None)
            self.paused = True  # keeps what comes in the buffer
            self.transport.pauseProducing()

    def allContentReceived(self) -> None:
        self._receiving = False
        if self._refused is None:
            super().allContentReceived()

    def refuse(self, code: str, *, status: int | None = None, message: str = "") -> None:
        """Send an error as the last answer of this connection."""
        if self._refused is None:
            self._end_with(self._error(code, status or ERRORS[code].status or 500, message))

    def _end_with(self, response: bytes) -> None:
        """Send an answer, then read and drop what still comes for a while.

        A client that is still sending must be able to read why (D9), and not lose it in a reset.
        """
        self._refused = time.monotonic()
        self.transport.write(response)
        self.setRawMode()
        self.setTimeout(SILENT_SECONDS)
        if self.requests:
            request = self.requests[-1]
            request.refused = True
            request.leave()
            if self._handlingRequest:  # it has arrived whole
                request.finished = 1
                self.server.protocol_disconnected(request)
                self.loseConnection()

    def _drain(self, size: int) -> None:
        self._drained += size
        late = time.monotonic() - (self._refused or 0) > limits.DRAIN_SECONDS
        if late or self._drained > limits.DRAIN_BYTES:
            self.transport.abortConnection()
        self.setTimeout(SILENT_SECONDS)

    def _error(self, code: str, status: int, message: str) -> bytes:
        request = self.requests[-1] if self.requests else None
        bridge = getattr(request, "bridge", None) or self.server.transport_of(self.transport, [])
        request_id = request.request_id() if request else error_body.request_id(None)
        method = getattr(self, "_command", None) or getattr(request, "method", b"-")
        path = getattr(self, "_path", b"") or getattr(request, "uri", b"-")
        origin = request.requestHeaders.getRawHeaders(b"Origin", [b""])[0] if request else b""
        names = (one.decode("latin-1") for one in (path.partition(b"?")[0], origin))
        error = BridgeError(code, message, headers=cors.headers_for(*names))
        return bytes(self.server.error_response(error, request_id, status, bridge, method, path))

    def lineLengthExceeded(self, line: bytes) -> None:
        self._respondToBadRequestAndDisconnect()

    def _respondToBadRequestAndDisconnect(self) -> None:
        message = "The request is not valid HTTP, or its header is too large."
        self.refuse("VALIDATION_ERROR", status=400, message=message)

    def connectionLost(self, reason: Failure) -> None:
        self.server.channels.discard(self)
        if self.admission is not None:
            self.admission.cancel()
            self.admission = None
        for request in self.requests:
            if request not in self.server.tasks:  # else its body is in memory until that ends
                request.leave()
        super().connectionLost(reason)


class Factory(http.HTTPFactory):
    """Make the protocol of each HTTP connection, and give it its server."""

    protocol = Channel

    def __init__(self, server: Any) -> None:
        super().__init__(timeout=limits.REQUEST_SECONDS)
        self.server = server

    def log(self, request: Any) -> None:
        """Do nothing: the server writes its own access log."""
