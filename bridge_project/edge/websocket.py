# ruff: noqa: N802, N803 - the names are twisted's and autobahn's
"""Run WebSockets in daphne with close codes and bounded buffers (D9, D25, D30)."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from daphne.ws_protocol import WebSocketFactory

from bridge_project.edge.handshake import TOO_BIG, MessageLimit
from bridge_project.edge.request import raw_response
from bridge_project.edge.socket import Inbox, Socket, accept_compression
from bridge_project.kernel import limits
from bridge_project.protocol.catalogue import compressed_frame, text_frame

GOING_AWAY, NO_STATUS, ABNORMAL = 1001, 1005, 1006
POLICY_VIOLATION, INTERNAL_ERROR = 1008, 1011
PONG_BUFFER_BYTES = 65536  # a client that pings and does not read gets no more pongs


class Protocol(MessageLimit):
    """Run one WebSocket; let the application refuse an upgrade with a response.

    ``scope["extensions"]["websocket.http.response"]`` says so.
    """

    socket: Socket
    paused = False  # nothing is read: the application does not keep up, or frames came too fast
    _inbox_full = False
    _resting: asyncio.TimerHandle | None = None  # set while frames that came too fast wait
    _early_bytes = _early_frames = 0
    _deflated = 0.0  # when something was compressed last
    _frames_left = float(limits.FRAMES_BURST)
    _broken = False  # where the next frame begins is not known any more, or does not matter
    _unauthenticated_refused = _disconnect_sent = False

    def connectionMade(self) -> None:
        self.transport.unregisterProducer()  # the HTTP channel's, which has handed over
        self.application_queue = Inbox(self)
        # daphne's own go by a clock that can be set
        self.heard = self._opened = self._pinged = self._counted = time.monotonic()
        self.socket = Socket(self)
        self.maxMessagePayloadSize = limits.EARLY_BYTES  # inflated, until `authenticated`
        super().connectionMade()
        self.factory.open_sockets.add(self)

    def dataReceived(self, data: bytes) -> None:
        self.heard = time.monotonic()
        if not self.authenticated:
            self._early_bytes += len(data)
            if self._early_bytes > limits.EARLY_BYTES:
                self._refuse_unauthenticated(TOO_BIG, "Too many bytes before auth.")
        if self._broken:
            return
        self.data += data
        # frames before the handshake is answered wait, like frames that come too fast
        if not self.paused and not hasattr(self, "handshake_deferred"):
            self.consumeData()

    def consumeData(self) -> None:
        """Parse received bytes, a few frames at a time, while the application keeps up."""
        if self.state not in (self.STATE_OPEN, self.STATE_CLOSING):
            super().consumeData()
            return
        if self._resting is not None:
            return
        now = time.monotonic()
        earned = (now - self._counted) * limits.FRAMES_PER_SECOND
        self._frames_left = min(self._frames_left + earned, limits.FRAMES_BURST)
        self._counted = now
        enough = max(self._frames_left - limits.FRAMES_AT_ONCE, 0)
        while not self._inbox_full and self.state != self.STATE_CLOSED:
            if self.current_frame is None and self._frames_left <= enough:
                short = limits.FRAMES_AT_ONCE - self._frames_left
                seconds = 0 if enough else short / limits.FRAMES_PER_SECOND
                self._resting = asyncio.get_running_loop().call_later(seconds, self._go_on)
                break
            if not self.processData():
                break
        self._steer_reading()

    def _go_on(self) -> None:
        self._resting = None
        self.consumeData()

    def _steer_reading(self) -> None:
        """Read while the application keeps up and no frames wait."""
        paused = self._inbox_full or self._resting is not None or self._unauthenticated_refused
        if paused != self.paused:
            self.paused = paused
            self.heard = time.monotonic()
            if self.transport.connected:
                (self.transport.pauseProducing if paused else self.transport.resumeProducing)()

    def onFrameBegin(self) -> None:
        self._frames_left -= 1
        super().onFrameBegin()
        if not self.authenticated:
            self._early_frames += 1
            if self._early_frames > limits.EARLY_FRAMES:
                self._refuse_unauthenticated(POLICY_VIOLATION, "Too many frames before auth.")

    def _refuse_unauthenticated(self, code: int, reason: str) -> None:
        """Close, and read nothing more; reset it CLOSE_WAIT_SECONDS later."""
        if not self._unauthenticated_refused:
            self._unauthenticated_refused = self._broken = True
            self._steer_reading()
            self.data = b""
            if self.state == self.STATE_OPEN:
                self._fail_connection(code, reason)
            elif self.state == self.STATE_CONNECTING:
                self.dropConnection(abort=True)

    def applicationCreateWorked(self, application_queue: Any) -> None:
        super().applicationCreateWorked(self.application_queue)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        if self.state != self.STATE_OPEN:
            return  # we have closed; what comes until the client has seen it is late
        self._pinged = time.monotonic()
        if self._isMessageCompressed:
            self._frames_left -= len(payload) // limits.DEFLATE_FRAME_BYTES
            self._perMessageCompress._decompressor = None  # the next message begins anew
        super().onMessage(payload, isBinary)
        self._inbox_full = self.application_queue.waiting > limits.INBOUND_BUFFER_BYTES

    def taken(self) -> None:
        """Resume reading when the application has taken half of what waited."""
        room = self.application_queue.waiting < limits.INBOUND_BUFFER_BYTES // 2
        if self._inbox_full and (room or self.state != self.STATE_OPEN):
            self._inbox_full = False
            asyncio.get_running_loop().call_soon(self.consumeData)

    def onPing(self, payload: bytes) -> None:
        if self.socket.buffered() < PONG_BUFFER_BYTES:
            super().onPing(payload)

    def _protocol_violation(self, reason: str) -> bool:
        super()._protocol_violation(reason)
        return self._stop_parsing()

    def _invalid_payload(self, reason: str) -> bool:
        super()._invalid_payload(reason)
        return self._stop_parsing()

    def _stop_parsing(self) -> bool:
        self._broken = True
        self.data = b""
        return True

    def serverSend(self, content: Any, binary: bool = False) -> None:
        """Send a message, past autobahn's size limit, which is for incoming ones."""
        self.send_frames([text_frame(content)])

    def send_frames(self, frames: Sequence[bytes]) -> None:
        """Send frames that are made already; nothing follows the close frame."""
        if self.state == self.STATE_OPEN and frames:
            if self._perMessageCompress is not None:
                frames = [self._compressed(frame) for frame in frames]
            self.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def _compressed(self, frame: bytes) -> bytes:
        if len(frame) < limits.DEFLATE_FROM_BYTES:
            return frame
        self._deflated = time.monotonic()
        deflate = self._perMessageCompress
        deflate.start_compress_message()
        return compressed_frame(
            frame,
            lambda payload: deflate.compress_message_data(payload) + deflate.end_compress_message(),
        )

    def handle_reply(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "websocket.http.response.start":
            self._refusal = message["status"], message["headers"]
        elif kind == "websocket.http.response.body":
            if self.state == self.STATE_CONNECTING:
                status, headers = self._refusal
                self._end_handshake(raw_response(status, headers, message["body"]), status)
        elif kind == "websocket.close":
            reason = message.get("reason") or ""
            if self.state == self.STATE_CONNECTING:
                reason = reason or "The upgrade was refused."
                self.deny("AUTH_INSUFFICIENT_SCOPE", status=403, message=reason)
            else:
                self.close(message.get("code") or 1000, reason)
        elif self.state in (self.STATE_CONNECTING, self.STATE_OPEN):
            super().handle_reply(message)

    def close(self, code: int, reason: str = "") -> None:
        """Send a close frame, any code and a reason of up to 123 bytes."""
        if self.state == self.STATE_OPEN:
            text = reason.encode()[:123].decode(errors="ignore").encode()
            self.sendCloseFrame(code=code, reasonUtf8=text or None)
            self.taken()  # or the client's answer would not be seen

    def fail(self) -> None:
        """Close with an error: the application raised, or ended without closing."""
        if self.state == self.STATE_CONNECTING:
            self.deny("INTERNAL_ERROR", status=500)
        else:
            self.close(INTERNAL_ERROR)

    def dropConnection(self, abort: bool = False) -> None:
        if self.state == self.STATE_CLOSED and abort:
            self.transport.abortConnection()
        super().dropConnection(abort=abort and not self.wasClean)
        self._ended(self.remoteCloseCode or NO_STATUS if self.wasClean else ABNORMAL)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        server = self.factory.server_class
        self.factory.open_sockets.discard(self)
        if self._resting is not None:
            self._resting.cancel()
        self._ended((code or NO_STATUS) if wasClean else ABNORMAL)
        details = {"path": self._path().decode(), "client": f"{self._client()}:0"}
        server.log_action("websocket", "disconnected", details)

    def _ended(self, code: int) -> None:
        """Tell the application once, as soon as the WebSocket is over.

        Its last bytes may still be on their way.
        """
        if not self._disconnect_sent:
            self._disconnect_sent = True
            reason = self.remoteCloseReason or ""
            self.application_queue.put_nowait(
                {"type": "websocket.disconnect", "code": code, "reason": reason}
            )
            self.factory.server_class.protocol_disconnected(self)

    def check_timeouts(self) -> None:
        """Time out handshakes, ping quiet clients, and reset compression.

        After the reset the next message is compressed anew, which the client need not know.
        """
        now = time.monotonic()
        if self._perMessageCompress and now - self._deflated > limits.DEFLATE_KEEP_SECONDS:
            self._perMessageCompress._compressor = None
        if self.state == self.STATE_CONNECTING and now - self._opened > limits.HANDSHAKE_SECONDS:
            self.serverReject()
        elif self.state == self.STATE_OPEN and now - self._pinged > limits.PING_SECONDS:
            self._pinged = now
            if not self.socket.buffered():
                self.sendPing()  # whether an answer must come is the consumer's to say (D25)


class Factory(WebSocketFactory):  # type: ignore[misc]
    """Build protocols; ``open_sockets`` has each WebSocket from handshake to end."""

    protocol = Protocol

    def __init__(self, server: Any, *, max_bytes: int) -> None:
        super().__init__(server, server=None)
        self.open_sockets: set[Protocol] = set()
        self.setProtocolOptions(
            allowNullOrigin=True,
            webStatus=False,
            versions=[13],  # RFC 6455; the drafts before it name the Origin otherwise
            failByDrop=False,  # a close code says why
            openHandshakeTimeout=limits.HANDSHAKE_SECONDS + 5,  # after our own, which answers
            closeHandshakeTimeout=limits.CLOSE_WAIT_SECONDS,
            maxMessagePayloadSize=max_bytes,
            maxFramePayloadSize=max_bytes,
            perMessageCompressionAccept=accept_compression,
        )
