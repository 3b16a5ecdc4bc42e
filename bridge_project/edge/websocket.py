# ruff: noqa: N802, N803 - the names are twisted's and autobahn's
"""Run WebSockets in daphne with close codes and bounded buffers (D9, D25, D30)."""

import asyncio
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from bridge_project.edge.connection import connection_of, drain  # isort: skip  sets the reactor
from daphne.ws_protocol import WebSocketFactory

from bridge_project.edge.handshake import Handshake, accept_compression
from bridge_project.edge.request import raw_response
from bridge_project.http.error_body import error_payload
from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.catalogue import compressed, encode, text_frame
from bridge_project.protocol.parse import id_at_beginning

GOING_AWAY, NO_STATUS, ABNORMAL = 1001, 1005, 1006
POLICY_VIOLATION, TOO_BIG, INTERNAL_ERROR = 1008, 1009, 1011
LAST_DATA_OPCODE = 7  # those after it are of control frames
PONG_BUFFER_BYTES = 65536  # a client that pings and does not read gets no more pongs
MESSAGE_BYTES = 256  # what a queued message costs besides its text, so that empty ones count too


class Inbox(asyncio.Queue[dict[str, Any]]):
    """Queue what one WebSocket received, and count its bytes until they are handled."""

    def __init__(self, taken: Callable[[], None]) -> None:
        super().__init__()
        self.waiting = 0  # bytes, with those of the message that is being handled
        self._handled = 0
        self._taken = taken

    def put_nowait(self, item: dict[str, Any]) -> None:
        self.waiting += self._size(item)
        super().put_nowait(item)

    async def get(self) -> dict[str, Any]:
        self.waiting -= self._handled
        self._handled = 0
        self._taken()
        item = await super().get()
        self._handled = self._size(item)
        return item

    def _size(self, item: dict[str, Any]) -> int:
        return MESSAGE_BYTES + len(item.get("text") or item.get("bytes") or b"")


class Protocol(Handshake):
    """Speak the WebSocket protocol with one client, from its upgrade to its end.

    The application may refuse an upgrade with a response:
    ``scope["extensions"]["websocket.http.response"]`` says so. It watches and drives the connection
    by ``scope["bridge.socket"]``, which is this object (D25, D30).
    """

    paused = False  # nothing is read: the application does not keep up, or others have their turn
    _inbox_full = False
    _resting: asyncio.Handle | None = None  # set while others have their turn
    _early_frames = 0
    _frames_left = 0  # before others have their turn
    _too_large = ""  # why it is closed, while the beginning of the message is awaited
    _deflated = b""  # the beginning of a compressed message, as it came
    _broken = False  # where the next frame begins is not known any more, or does not matter
    _authenticated = _disconnect_sent = False

    def connectionMade(self) -> None:
        self.transport.unregisterProducer()  # the HTTP channel's, which has handed over
        self.application_queue = Inbox(self._message_handled)
        self.last_received = time.monotonic()
        self.maxMessagePayloadSize = limits.EARLY_BYTES  # inflated, until `authenticated`
        super().connectionMade()
        self.factory.open_sockets.add(self)

    # -- for the application -----------------------------------------------------------------------

    def buffered(self) -> int:
        """Return the bytes sent that have not left the process; 0 when it is gone."""
        connected = connection_of(self.transport).connected
        return int(self.transport.waiting()) if connected else 0

    def send_frames(self, frames: Sequence[bytes]) -> int:
        """Send whole frames in one write until the buffer is full; return how many."""
        count, size = 0, self.buffered()
        while count < len(frames) and size < limits.SOCKET_BUFFER_BYTES:
            size += len(frames[count])
            count += 1
        self._write_frames(frames[:count])
        return count

    async def drain(self) -> None:
        await drain(self.transport)

    @property
    def last_progress(self) -> float:
        """Return the monotonic time at which bytes last left, or began to wait.

        ``buffered() and monotonic() - last_progress`` is how long it is stuck.
        """
        return connection_of(self.transport).last_progress

    @property
    def last_frame(self) -> float:
        """Return when bytes last came (monotonic); now, while reading is paused."""
        return time.monotonic() if self.paused else self.last_received

    def abort(self) -> None:
        """Reset the connection and lose its buffer; ``websocket.disconnect`` follows."""
        self.dropConnection(abort=True)

    def authenticated(self) -> None:
        """Lift the bounds on what an unauthenticated client may send."""
        connection_of(self.transport).authenticated = self._authenticated = True
        self.maxMessagePayloadSize = self.factory.maxMessagePayloadSize

    # -- what comes --------------------------------------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        self.last_received = time.monotonic()
        if self._broken:
            return
        self.data += data
        if self.state == self.STATE_CONNECTING and len(self.data) > limits.EARLY_BYTES:
            self.dropConnection(abort=True)
        # frames before the handshake is answered wait, like those while others have their turn
        elif not self.paused and not hasattr(self, "handshake_deferred"):
            self.consumeData()

    def consumeData(self) -> None:
        """Parse received bytes, a few frames at a time, while the application keeps up."""
        if self.state not in (self.STATE_OPEN, self.STATE_CLOSING):
            super().consumeData()
            return
        if self._resting is not None:
            return
        self._frames_left = limits.FRAMES_AT_ONCE
        while not self._inbox_full and not self._broken and self.state != self.STATE_CLOSED:
            if self.current_frame is None and self._frames_left <= 0:
                self._resting = asyncio.get_running_loop().call_soon(self._go_on)
                break
            if not self.processData():
                break
        self._steer_reading()

    def _go_on(self) -> None:
        self._resting = None
        self.consumeData()

    def _steer_reading(self) -> None:
        """Read while the application keeps up and no frames wait."""
        paused = self._inbox_full or self._resting is not None
        if paused != self.paused:
            self.paused = paused
            self.last_received = time.monotonic()
            if self.transport.connected:
                (self.transport.pauseProducing if paused else self.transport.resumeProducing)()

    def onFrameBegin(self) -> None:
        self._frames_left -= 1
        super().onFrameBegin()
        if not self._authenticated:
            self._early_frames += 1
            if self._early_frames > limits.EARLY_FRAMES:
                self._broken = True
                self._fail_connection(POLICY_VIOLATION, "Too many frames before auth.")

    def onMessageBegin(self, isBinary: bool) -> None:
        super().onMessageBegin(isBinary)
        self._deflated = b""

    def onFrameData(self, payload: bytes) -> Any:
        if self.current_frame.opcode <= LAST_DATA_OPCODE and self._isMessageCompressed:
            self._deflated += payload[: limits.MESSAGE_BEGINNING_BYTES - len(self._deflated)]
        return super().onFrameData(payload)

    def _max_message_size_exceeded(self, size: int, most: int, reason: str) -> None:
        """Wait for the message's beginning, which has its id, unless it is here already."""
        self._too_large = reason
        # an earlier frame of the message had its beginning
        if self._deflated or self.message_data or not self._authenticated:
            self._refuse_too_large()

    def onMessageFrameData(self, payload: bytes) -> None:
        super().onMessageFrameData(payload)
        if self._too_large and len(self._beginning()) == limits.MESSAGE_BEGINNING_BYTES:
            self._refuse_too_large()

    def _refuse_too_large(self) -> None:
        """Answer with the message's id, so that no client sends it again; close with 1009."""
        reason, self._too_large = self._too_large, ""
        id = id_at_beginning(self._beginning().decode(errors="ignore"))
        if id is not None and self._authenticated:
            most = self.maxMessagePayloadSize // limits.MB
            error = BridgeError("PAYLOAD_TOO_LARGE", f"A message has at most {most} MB.")
            self.serverSend(encode(error_payload(error), id=id).text)
        self._broken = not self._authenticated
        self._fail_connection(TOO_BIG, reason)

    def _beginning(self) -> bytes:
        if self._isMessageCompressed:  # autobahn drops what it inflates beyond the limit
            inflate = zlib.decompressobj(-zlib.MAX_WBITS).decompress
            try:
                return inflate(self._deflated, limits.MESSAGE_BEGINNING_BYTES)
            except zlib.error:  # further on than autobahn, which stops at the limit
                return b""
        found = b""
        for piece in (*self.message_data, *(self.frame_data or ())):
            found += piece[: limits.MESSAGE_BEGINNING_BYTES - len(found)]
            if len(found) == limits.MESSAGE_BEGINNING_BYTES:
                break
        return found

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

    def applicationCreateWorked(self, application_queue: Any) -> None:
        super().applicationCreateWorked(self.application_queue)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        if self.state != self.STATE_OPEN:
            return  # we have closed; what comes until the client has seen it is late
        if self._isMessageCompressed:
            self._frames_left -= len(payload) // limits.DEFLATE_FRAME_BYTES
            self._perMessageCompress._decompressor = None  # 40 KB; the next message begins anew
        super().onMessage(payload, isBinary)
        self._inbox_full = self.application_queue.waiting > limits.INBOUND_BUFFER_BYTES

    def _message_handled(self) -> None:
        """Resume reading when the application has taken half of what waited."""
        room = self.application_queue.waiting < limits.INBOUND_BUFFER_BYTES // 2
        if self._inbox_full and (room or self.state != self.STATE_OPEN):
            self._inbox_full = False
            asyncio.get_running_loop().call_soon(self.consumeData)

    def onPing(self, payload: bytes) -> None:
        if self.buffered() < PONG_BUFFER_BYTES:
            super().onPing(payload)

    # -- what goes ---------------------------------------------------------------------------------

    def serverSend(self, content: Any, binary: bool = False) -> None:
        """Send a message, past autobahn's size limit, which is for incoming ones."""
        self._write_frames([text_frame(content)])

    def _write_frames(self, frames: Sequence[bytes]) -> None:
        """Write frames that are made already; nothing follows the close frame."""
        if self.state == self.STATE_OPEN and frames:
            if self._perMessageCompress is not None:
                frames = [compressed(self._perMessageCompress, frame) for frame in frames]
            self.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

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
            self._message_handled()  # or the client's answer would not be seen

    def fail(self) -> None:
        """Close with an error: the application raised, or ended without closing."""
        if self.state == self.STATE_CONNECTING:
            self.deny("INTERNAL_ERROR", status=500)
        else:
            self.close(INTERNAL_ERROR)

    # -- the end -----------------------------------------------------------------------------------

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
        client = self.bridge.client if self.bridge else self.transport.getPeer().host
        details = {"path": self._path().decode(), "client": f"{client}:0"}
        server.log_action("websocket", "disconnected", details)

    def _ended(self, code: int) -> None:
        """Tell the application once; the last bytes may still be on their way."""
        if not self._disconnect_sent:
            self._disconnect_sent = True
            reason = self.remoteCloseReason or ""
            self.application_queue.put_nowait(
                {"type": "websocket.disconnect", "code": code, "reason": reason}
            )
            self.factory.server_class.protocol_disconnected(self)


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
            openHandshakeTimeout=limits.HANDSHAKE_SECONDS,
            closeHandshakeTimeout=limits.CLOSE_WAIT_SECONDS,
            autoPingInterval=limits.PING_SECONDS,  # its time-out is the consumer's affair (D25)
            maxMessagePayloadSize=max_bytes,
            maxFramePayloadSize=max_bytes,
            perMessageCompressionAccept=accept_compression,
        )
