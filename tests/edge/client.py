"""A WebSocket client on the sans-I/O core of the `websockets` library, in one thread.

The library's own client without asyncio reads in a thread of its own while others write, which an
SSL object does not bear: now and then it hung.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

PATIENCE = 30.0  # seconds
CHUNK = 64 * 1024


class WebSocket:
    """An upgraded connection over ``stream``. Raises what the library raises: InvalidStatus when it
    is refused, ConnectionClosed when it has ended.
    """

    def __init__(
        self,
        stream: socket.socket,
        uri: str,
        *,
        additional_headers: dict[str, str] | None = None,
        origin: Any = None,
        compress: bool = True,
    ):
        self._stream = stream
        self._stream.setblocking(False)
        extensions = [ClientPerMessageDeflateFactory()] if compress else None
        self._protocol = ClientProtocol(
            parse_uri(uri), origin=origin, extensions=extensions, max_size=None
        )
        self._unsent = bytearray()
        self._parts: list[bytes] = []
        self._text = True
        self._messages: deque[str | bytes] = deque()
        self._pongs: set[bytes] = set()
        self.response: Response | None = None
        request = self._protocol.connect()
        request.headers.update(additional_headers or {})
        self._protocol.send_request(request)
        self._go_on(
            lambda: self.response is not None or self._protocol.handshake_exc is not None, PATIENCE
        )
        if self._protocol.handshake_exc is not None:
            self._stream.close()
            raise self._protocol.handshake_exc

    # -- what a caller does ------------------------------------------------------------------------

    def send(self, message: str | bytes | Iterable[bytes]) -> None:
        """A message; what is neither text nor bytes are its fragments. Returns when the system has
        taken it, or the connection has ended.
        """
        self._check()
        if isinstance(message, str):
            self._protocol.send_text(message.encode())
        elif isinstance(message, bytes):
            self._protocol.send_binary(message)
        else:
            for number, part in enumerate(message):
                (self._protocol.send_continuation if number else self._protocol.send_binary)(
                    part, fin=False
                )
                self._sent()
                if self._protocol.state is not State.OPEN:
                    return
            self._protocol.send_continuation(b"", fin=True)
        self._sent()

    def recv(self, timeout: float = PATIENCE) -> str | bytes:
        """The next message. Raises TimeoutError, and ConnectionClosed after the last one."""
        self._go_on(lambda: bool(self._messages) or self._protocol.state is State.CLOSED, timeout)
        if not self._messages:
            raise self._protocol.close_exc
        return self._messages.popleft()

    def ping(self, timeout: float = PATIENCE) -> None:
        """A ping and its pong. Raises TimeoutError."""
        self._check()
        payload = os.urandom(4)
        self._protocol.send_ping(payload)
        self._go_on(lambda: payload in self._pongs or self._protocol.state is State.CLOSED, timeout)
        self._check()

    def pong(self) -> None:
        """One that nobody asked for."""
        self._check()
        self._protocol.send_pong(b"")
        self._sent()

    def close(self, code: int = 1000) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code)
        self._go_on(lambda: self._protocol.state is State.CLOSED, PATIENCE)
        self._stream.close()

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self) -> None:
        """Raise ConnectionClosed when nothing more can be said."""
        if self._protocol.state is not State.OPEN:
            self._go_on(lambda: self._protocol.state is State.CLOSED, PATIENCE)
            raise self._protocol.close_exc

    # -- what goes over the wire -------------------------------------------------------------------

    def _sent(self) -> None:
        self._go_on(lambda: not self._unsent or self._protocol.state is State.CLOSED, PATIENCE)

    def _go_on(self, condition: Callable[[], bool], seconds: float) -> None:
        """Write and read until the condition is true. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        self._collect()
        while not condition():
            if not (self._write() | self._read()):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"not within {seconds} s")
                select.select(
                    [self._stream], [self._stream] if self._unsent else [], [], min(left, 0.5)
                )
            self._collect()

    def _collect(self) -> None:
        for data in self._protocol.data_to_send():
            self._unsent += data

    def _write(self) -> bool:
        if not self._unsent:
            return False
        try:
            count = self._stream.send(self._unsent[:CHUNK])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return False
        except OSError:
            # the other side is gone: what it has said before is read to its end
            self._unsent.clear()
            return False
        del self._unsent[:count]
        return True

    def _read(self) -> bool:
        if self._protocol.state is State.CLOSED:
            return False
        try:
            data = self._stream.recv(CHUNK)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return False
        except OSError:
            data = b""
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        for event in self._protocol.events_received():
            self._take(event)
        return True

    def _take(self, event: Frame | Response | Any) -> None:
        if isinstance(event, Response):
            self.response = event
        elif event.opcode is Opcode.PONG:
            self._pongs.add(bytes(event.data))
        elif event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            if event.opcode is not Opcode.CONT:
                self._parts, self._text = [], event.opcode is Opcode.TEXT
            self._parts.append(bytes(event.data))
            if event.fin:
                whole = b"".join(self._parts)
                self._messages.append(whole.decode() if self._text else whole)
