"""A WebSocket client that every test can use: each wait has a condition and a deadline.

On the sans-I/O core of the `websockets` library, in the caller's thread: the library's own client
without asyncio reads and writes one TLS connection from two threads, which OpenSSL does not allow.
Frames that are no WebSocket's are sent by ``tests.conformance.raw``.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from tests.servers import PATIENCE

_CHUNK = 256 * 1024
_NOT_NOW = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)


class WebSocket:
    """An upgraded connection over ``stream``, whose TLS is done.

    Raises the library's InvalidStatus when it is refused, ConnectionClosed when it has ended.
    """

    def __init__(
        self,
        stream: socket.socket,
        uri: str,
        *,
        headers: dict[str, str] | None = None,
        compress: bool = False,
    ) -> None:
        self._stream = stream
        self._stream.setblocking(False)
        extensions = [ClientPerMessageDeflateFactory()] if compress else None
        self._protocol = ClientProtocol(parse_uri(uri), extensions=extensions, max_size=None)
        self._unsent = bytearray()
        self._parts: list[bytes] = []
        self._text = True
        self._messages: deque[str | bytes] = deque()
        request = self._protocol.connect()
        request.headers.update(headers or {})
        self._protocol.send_request(request)
        protocol = self._protocol
        self._go_on(lambda: bool(protocol.state is not State.CONNECTING or protocol.handshake_exc))
        if self._protocol.handshake_exc is not None:
            self.abort()
            raise self._protocol.handshake_exc

    @property
    def ended(self) -> bool:
        return self._protocol.state is State.CLOSED

    def send(self, message: str | bytes) -> None:
        """Returns when the system has taken it, or the connection has ended."""
        if self._protocol.state is not State.OPEN:
            self._go_on(lambda: self.ended)
            raise self._protocol.close_exc
        if isinstance(message, str):
            self._protocol.send_text(message.encode())
        else:
            self._protocol.send_binary(message)
        self._go_on(lambda: not self._unsent or self.ended)

    def recv(self, timeout: float = PATIENCE) -> str | bytes:
        """Return the next message. Raises TimeoutError, and ConnectionClosed after the last one."""
        self._go_on(lambda: bool(self._messages) or self.ended, timeout)
        if not self._messages:
            raise self._protocol.close_exc
        return self._messages.popleft()

    def close(self, timeout: float = PATIENCE) -> None:
        """Close in order: a close frame, its answer, the end."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
        try:
            self._go_on(lambda: self.ended, timeout)
        finally:
            self._stream.close()

    def abort(self) -> None:
        """End the TCP connection without a word."""
        try:
            self._stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._stream.close()
        if not self.ended:
            self._protocol.receive_eof()

    def _go_on(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Write and read until the condition is true. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while True:
            self._unsent += b"".join(self._protocol.data_to_send())
            if condition():
                return
            if not (self._write() | self._read()):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"not within {seconds} s")
                ready = select.poll()  # select() takes no descriptor above 1,023
                ready.register(self._stream, select.POLLIN | select.POLLOUT * bool(self._unsent))
                ready.poll(min(left, 0.5) * 1000)

    def _write(self) -> bool:
        if not self._unsent:
            return False
        try:
            del self._unsent[: self._stream.send(self._unsent[:_CHUNK])]
        except _NOT_NOW:
            return False
        except OSError:
            # the other side is gone: what it has said before is read to its end
            self._unsent.clear()
            return False
        return True

    def _read(self) -> bool:
        if self.ended:
            return False
        try:
            data = self._stream.recv(_CHUNK)
        except _NOT_NOW:
            return False
        except OSError:
            data = b""
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
        return True

    def _take(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._parts, self._text = [], frame.opcode is Opcode.TEXT
        self._parts.append(bytes(frame.data))
        if frame.fin:
            whole = b"".join(self._parts)
            self._messages.append(whole.decode() if self._text else whole)
