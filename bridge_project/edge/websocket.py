# ruff: noqa: N802, N803 - the names are twisted's and autobahn's
"""WebSockets as daphne speaks them, with refusals that have a status, closes that have a code, and
buffers that have an end (D9, D25, D30).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from bridge_project.edge.connection import (  # isort: skip  installs the reactor: comes first
    Connection,
    TLSConnection,
    connection_of,
)

from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol

from bridge_project.edge.error_responses import Inbox, error_response, raw_response
from bridge_project.http import error_body
from bridge_project.kernel import limits

GOING_AWAY, NO_STATUS, ABNORMAL, POLICY_VIOLATION, TOO_BIG, INTERNAL_ERROR = (
    1001,
    1005,
    1006,
    1008,
    1009,
    1011,
)
PONG_BUFFER_BYTES = 65536  # a client that pings and does not read gets no more pongs


class Socket:
    """``scope["bridge.socket"]``: what the consumer may know and do about the wire below its
    WebSocket (D25, D30).
    """

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._transport: Connection | TLSConnection = protocol.transport
        self._connection = connection_of(self._transport)
        self._connection.on_progress = self._progressed
        self._waiters: list[asyncio.Future[None]] = []
        self._waking = False
        self._started = self._heard = time.monotonic()
        self.closed = False

    def buffered(self) -> int:
        """Bytes that were sent into this socket and have not left the process; 0 when it is
        gone.
        """
        return 0 if self.closed else self._transport.waiting()

    def send_frames(self, frames: Sequence[bytes], below: int = limits.SOCKET_BUFFER_BYTES) -> int:
        """Send whole frames in one write, until ``below`` bytes are buffered; how many were
        taken.
        """
        count, size = 0, self.buffered()
        while count < len(frames) and size < below:
            size += len(frames[count])
            count += 1
        if count:
            self._protocol.send_frames(frames[0] if count == 1 else b"".join(frames[:count]))
        return count

    async def drain(self, below: int = limits.SOCKET_BUFFER_BYTES) -> bool:
        """Wait until fewer than ``below`` bytes are buffered: True then, False once the connection
        is gone.
        """
        while not self.closed and self.buffered() >= below:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        return not self.closed

    @property
    def last_progress(self) -> float:
        """Monotonic time at which bytes last left, or began to wait: ``buffered() and monotonic() -
        last_progress`` is how long it is stuck.
        """
        return max(self._started, self._connection.last_progress)

    @property
    def last_frame(self) -> float:
        """Monotonic time at which something last came from the client: any frame, pongs too, or a
        part of one. Now, while we do not read it.
        """
        return time.monotonic() if self._protocol.reading_paused else self._heard

    def abort(self) -> None:
        """Reset the connection; what is buffered is lost. The consumer gets its
        ``websocket.disconnect``.
        """
        self._protocol.dropConnection(abort=True)

    def authenticated(self) -> None:
        """Take what a stranger may not send from now on."""
        self._protocol.authenticated = self._connection.authenticated = True

    # -- for the protocol --

    def heard(self) -> None:
        self._heard = time.monotonic()

    def sending(self) -> None:
        if not self.buffered():
            self._started = time.monotonic()

    def lost(self) -> None:
        self.closed = True
        self._wake()

    def _progressed(self) -> None:
        if self._waiters and not self._waking:
            self._waking = True
            # the transport counts what it wrote only after this
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Protocol(WebSocketProtocol):  # type: ignore[misc]
    """One WebSocket. ``scope["extensions"]["websocket.http.response"]`` is there: an application
    may refuse an upgrade with a whole response.
    """

    socket: Socket
    client_addr: list[Any] | None
    authenticated = False
    established, answering = True, False  # as far as `Strangers` asks
    reading_paused = False
    _inbox_full = False
    _resting: Any = None  # set while frames that came too fast wait
    _early_bytes = _early_frames = 0
    _frames_left = float(limits.FRAMES_BURST)
    _broken = _refused = False
    _disconnect_sent = False
    _refusal: tuple[int, list[tuple[bytes, bytes]], bytes] | None = None

    def connectionMade(self) -> None:
        self.transport.unregisterProducer()  # the HTTP channel's, which has handed over
        self.application_queue = Inbox(self._resume_reading)
        self.client_addr = None
        self._opened = self._pinged = time.monotonic()  # daphne's own go by a clock that can be set
        self._counted = self._opened
        self.socket = Socket(self)
        super().connectionMade()
        self.factory.open_sockets.add(self)

    # -- in --

    def dataReceived(self, data: bytes) -> None:
        self.socket.heard()
        if not self.authenticated:
            self._early_bytes += len(data)
            if self._early_bytes > limits.EARLY_BYTES:
                self._refuse_stranger(TOO_BIG, "Too many bytes before auth.")
        if self._broken:
            return
        if self._resting is not None or hasattr(self, "handshake_deferred"):
            self.data += data  # reading has stopped, or will when the handshake is answered
        else:
            super().dataReceived(data)

    def consumeData(self) -> None:
        """Parse what has come, but no more frames than others can wait for."""
        if self.state not in (self.STATE_OPEN, self.STATE_CLOSING):
            super().consumeData()
            return
        now = time.monotonic()
        earned = (now - self._counted) * limits.FRAMES_PER_SECOND
        self._frames_left = min(self._frames_left + earned, limits.FRAMES_BURST)
        self._counted = now
        enough = max(self._frames_left - limits.FRAMES_AT_ONCE, 0)
        while self.processData() and self.state != self.STATE_CLOSED:
            if self.current_frame is None and self._frames_left <= enough:
                self._rest(0 if enough else limits.FRAMES_AT_ONCE / limits.FRAMES_PER_SECOND)
                return

    def _rest(self, seconds: float) -> None:
        self._resting = asyncio.get_running_loop().call_later(seconds, self._go_on)
        self._steer_reading()

    def _go_on(self) -> None:
        self._resting = None
        self.consumeData()
        self._steer_reading()

    def onFrameBegin(self) -> None:
        self._frames_left -= 1
        super().onFrameBegin()
        if not self.authenticated:
            self._early_frames += 1
            if self._early_frames > limits.EARLY_FRAMES:
                self._refuse_stranger(POLICY_VIOLATION, "Too many frames before auth.")

    def _refuse_stranger(self, code: int, reason: str) -> None:
        """Close, and read nothing more; CLOSE_WAIT_SECONDS later the connection is reset."""
        if not self._refused:
            self._refused = self._broken = True
            self._steer_reading()
            self.data = b""
            if self.state == self.STATE_OPEN:
                self._fail_connection(code, reason)
            else:
                self.dropConnection(abort=True)

    def applicationCreateWorked(self, application_queue: Any) -> None:
        super().applicationCreateWorked(self.application_queue)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        if self.state != self.STATE_OPEN:
            return  # we have closed; what comes until the client has seen it is late
        self._pinged = time.monotonic()
        super().onMessage(payload, isBinary)
        if self.application_queue.waiting > limits.INBOUND_BUFFER_BYTES:
            self._inbox_full = True
            self._steer_reading()

    def _resume_reading(self) -> None:
        room = self.application_queue.waiting < limits.INBOUND_BUFFER_BYTES // 2
        if self._inbox_full and (room or self.state != self.STATE_OPEN):
            self._inbox_full = False
            self._steer_reading()

    def _steer_reading(self) -> None:
        """Read while the application keeps up and no frames wait."""
        paused = self._inbox_full or self._resting is not None or self._refused
        if paused == self.reading_paused:
            return
        self.reading_paused = paused
        self.socket.heard()
        if not self.socket.closed:
            (self.transport.pauseProducing if paused else self.transport.resumeProducing)()

    def onPing(self, payload: bytes) -> None:
        if self.socket.buffered() < PONG_BUFFER_BYTES:
            super().onPing(payload)

    def _protocol_violation(self, reason: str) -> bool:
        super()._protocol_violation(reason)
        self._broken = True  # where the next frame begins is not known any more
        self.data = b""
        return True

    def _invalid_payload(self, reason: str) -> bool:
        super()._invalid_payload(reason)
        self._broken = True
        self.data = b""
        return True

    # -- out --

    def sendMessage(self, *args: Any, **kwargs: Any) -> None:
        """Whatever was accepted goes out: an event that just fitted comes with an envelope round
        it. The limit is for what comes in.
        """
        self.maxMessagePayloadSize = 0
        try:
            super().sendMessage(*args, **kwargs)
        finally:
            self.maxMessagePayloadSize = self.factory.maxMessagePayloadSize

    def send_frames(self, data: bytes) -> None:
        """Send frames that are made already; after the close frame nothing goes out."""
        if self.state == self.STATE_OPEN:
            self.socket.sending()
            self.transport.write(data)

    def sendData(self, data: bytes, *args: Any, **kwargs: Any) -> None:
        self.socket.sending()
        super().sendData(data, *args, **kwargs)

    def handle_reply(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "websocket.accept":
            if self.state == self.STATE_CONNECTING:
                self._accept(message)
        elif kind == "websocket.http.response.start":
            self._refusal = (
                message["status"],
                [(bytes(name), bytes(value)) for name, value in message.get("headers", [])],
                b"",
            )
        elif kind == "websocket.http.response.body":
            self._refuse(message)
        elif kind == "websocket.close":
            if self.state == self.STATE_CONNECTING:
                self.deny(
                    "AUTH_INSUFFICIENT_SCOPE",
                    status=403,
                    message=message.get("reason") or "The upgrade was refused.",
                )
            else:
                self.close(message.get("code") or 1000, message.get("reason") or "")
        elif self.state in (self.STATE_CONNECTING, self.STATE_OPEN):
            super().handle_reply(message)

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
        """Refuse the upgrade with the error body of D9."""
        self._end_handshake(self._error(code, status, message), status)

    def _end_handshake(self, response: bytes, status: int) -> None:
        self.__dict__.pop("handshake_deferred", None)
        self.wasNotCleanReason = f"refused with {status}"
        self.sendData(response)
        self.dropConnection(abort=False)

    def _error(self, code: str, status: int, message: str) -> bytes:
        """Make the response of an error that the edge answers, and log it."""
        server, request_id = self.factory.server_class, self._request_id()
        base_url = server.transport_of(self.transport, []).base_url
        server.log_error(code, request_id, b"GET", self._path(), status, self._client())
        return error_response(code, request_id, base_url=base_url, status=status, message=message)

    def sendHttpErrorResponse(self, code: int, reason: str, responseHeaders: Any = None) -> None:
        """What autobahn says of a handshake that is none; it drops the connection itself."""
        error = (
            "INTERNAL_ERROR"
            if code == 500
            else "METHOD_NOT_ALLOWED"
            if code == 405
            else "VALIDATION_ERROR"
        )
        self.sendData(self._error(error, code, "" if code == 500 else reason))

    def serverReject(self) -> None:
        """daphne's word for an application that did not answer the handshake in time."""
        self.deny("INTERNAL_ERROR", status=503, message="The bridge did not answer in time.")

    def close(self, code: int, reason: str = "") -> None:
        """Send a close frame, any code and a reason of up to 123 bytes."""
        if self.state == self.STATE_OPEN:
            self.sendCloseFrame(
                code=code, reasonUtf8=reason.encode()[:123].decode(errors="ignore").encode() or None
            )
            self._resume_reading()  # or the client's answer would not be seen

    def serverClose(self, code: int | None = None) -> None:
        self.close(code or 1000)

    def handle_exception(self, exception: BaseException) -> None:
        request_id = self._request_id()
        self.factory.server_class.log_failure(exception, request_id)
        self.fail()

    def fail(self) -> None:
        """End what the application left in the middle."""
        if self.state == self.STATE_CONNECTING:
            self.deny("INTERNAL_ERROR", status=500)
        else:
            self.close(INTERNAL_ERROR)

    # -- the end --

    def dropConnection(self, abort: bool = False) -> None:
        if self.state == self.STATE_CLOSED and abort and not self.socket.closed:
            self.transport.abortConnection()
        super().dropConnection(abort=abort and not self.wasClean)
        self._ended(self.remoteCloseCode or NO_STATUS if self.wasClean else ABNORMAL)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self.factory.open_sockets.discard(self)
        self.socket.lost()
        if self._resting is not None:
            self._resting.cancel()
        self._ended((code or NO_STATUS) if wasClean else ABNORMAL)
        self.factory.server_class.log_action(
            "websocket",
            "disconnected",
            {"path": self._path().decode(), "client": f"{self._client()}:0"},
        )

    def _ended(self, code: int) -> None:
        """Tell the application once, as soon as the WebSocket is over; its last bytes may still be
        on their way.
        """
        if self._disconnect_sent:
            return
        self._disconnect_sent = True
        self.application_queue.put_nowait(
            {"type": "websocket.disconnect", "code": code, "reason": self.remoteCloseReason or ""}
        )
        self.factory.server_class.protocol_disconnected(self)

    def check_timeouts(self) -> None:
        """daphne calls it every two seconds."""
        if (
            self.state == self.STATE_CONNECTING
            and time.monotonic() - self._opened > limits.HANDSHAKE_SECONDS
        ):
            self.serverReject()
        elif (
            self.state == self.STATE_OPEN and time.monotonic() - self._pinged > limits.PING_SECONDS
        ):
            self._pinged = time.monotonic()
            if not self.socket.buffered():
                self.sendPing()  # whether an answer must come is the consumer's to say (D25)

    # -- for the log --

    def _request_id(self) -> str:
        return error_body.request_id(
            (getattr(self, "http_headers", None) or {}).get("x-request-id")
        )

    def _path(self) -> bytes:
        return str(getattr(self, "http_request_path", "-")).encode("ascii", "replace")

    def _client(self) -> str:
        return str(self.client_addr[0]) if self.client_addr else str(self.transport.getPeer().host)

    def __repr__(self) -> str:
        return f"<WebSocket {self.client_addr!r}>"


class Factory(WebSocketFactory):  # type: ignore[misc]
    """``open_sockets``: every WebSocket from its handshake until its connection is lost."""

    protocol = Protocol

    def __init__(self, server: Any, *, max_bytes: int) -> None:
        super().__init__(server, server=None)
        self.open_sockets: set[Protocol] = set()
        self.setProtocolOptions(
            allowNullOrigin=True,
            webStatus=False,
            versions=[13],  # RFC 6455; the drafts before it name the Origin otherwise
            failByDrop=False,  # a close code says why
            openHandshakeTimeout=limits.HANDSHAKE_SECONDS + 5,  # after daphne's own, which answers
            closeHandshakeTimeout=limits.CLOSE_WAIT_SECONDS,
            maxMessagePayloadSize=max_bytes,
            maxFramePayloadSize=max_bytes,
        )
