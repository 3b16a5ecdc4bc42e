"""A WebSocket on the sans-I/O core of the `websockets` library, in the caller's thread.

The library's own threaded client reads and writes one TLS connection from two threads, which
OpenSSL does not allow: about one handshake in 400 hangs on Python 3.11.
"""

from __future__ import annotations

import select
import socket
import ssl
import time

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri


class Closed(Exception):
    """The server closed the connection; 1006: without a close frame."""

    def __init__(self, code: int) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


class Wire:
    """`sock` is connected, TLS done. `upgrade` raises websockets' InvalidHandshake (InvalidStatus,
    …).
    """

    def __init__(self, sock: socket.socket, uri: str) -> None:
        self.sock = sock
        self.protocol = ClientProtocol(parse_uri(uri), max_size=None)
        self.arrived: list[str | bytes] = []
        self.parts: list[bytes] = []
        self.text = True
        self.response: Response | None = None
        self.ended = False
        sock.setblocking(False)

    def upgrade(self, headers: dict[str, str], timeout: float) -> None:
        request = self.protocol.connect()
        request.headers.update(headers)
        self.protocol.send_request(request)
        deadline = time.monotonic() + timeout
        self.flush(deadline)
        while self.response is None and not self.ended:
            if not self.wait(deadline):
                raise TimeoutError("no answer to the upgrade")
        if self.protocol.handshake_exc is not None:
            self.abort()
            raise self.protocol.handshake_exc

    def send(self, data: str | bytes, timeout: float) -> None:
        """Send a message. Raises Closed when that is no longer possible."""
        if self.protocol.state is not State.OPEN:
            raise Closed(self.code)
        if isinstance(data, str):
            self.protocol.send_text(data.encode())
        else:
            self.protocol.send_binary(data)
        self.flush(time.monotonic() + timeout)

    def receive(self, timeout: float) -> str | bytes:
        """The next message. Raises TimeoutError, or Closed after the last one."""
        deadline = time.monotonic() + timeout
        while not self.arrived:
            if self.ended:
                raise Closed(self.code)
            if not self.wait(deadline):
                raise TimeoutError
        return self.arrived.pop(0)

    @property
    def code(self) -> int:
        return int(self.protocol.close_rcvd.code) if self.protocol.close_rcvd else 1006

    def flush(self, deadline: float) -> None:
        """Write what the protocol has to say, and read meanwhile, so that two full buffers never
        wait for each other.
        """
        data = memoryview(b"".join(self.protocol.data_to_send()))
        while data and not self.ended:
            try:
                data = data[self.sock.send(data[: 256 * 1024]) :]
                continue
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                pass
            except OSError:
                self._end()
                return
            if time.monotonic() > deadline:
                raise TimeoutError("the server takes no more")
            select.select([self.sock], [self.sock], [], 0.5)
            self._read()

    def wait(self, deadline: float) -> bool:
        """Read what is there or comes until the deadline; False when nothing came."""
        if self._read():
            return True
        readable, _, _ = select.select([self.sock], [], [], max(0.0, deadline - time.monotonic()))
        return bool(readable) and (self._read() or time.monotonic() < deadline)

    def _read(self) -> bool:
        if self.ended:
            return True
        try:
            data = self.sock.recv(256 * 1024)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return False
        except OSError:
            self._end()
            return True
        if not data:
            self._end()
            return True
        self.protocol.receive_data(data)
        self._events()
        out = b"".join(self.protocol.data_to_send())
        if out:  # pongs and the answer to a close
            try:
                self.sock.setblocking(True)
                self.sock.sendall(out)
            except OSError:
                pass
            finally:
                self.sock.setblocking(False)
        return True

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self.protocol.receive_eof()
            self._events()

    def _events(self) -> None:
        for event in self.protocol.events_received():
            if isinstance(event, Response):
                self.response = event
            elif isinstance(event, Frame) and event.opcode in (
                Opcode.TEXT,
                Opcode.BINARY,
                Opcode.CONT,
            ):
                if event.opcode is not Opcode.CONT:
                    self.text = event.opcode is Opcode.TEXT
                self.parts.append(bytes(event.data))
                if event.fin:
                    message, self.parts = b"".join(self.parts), []
                    self.arrived.append(message.decode() if self.text else message)

    def close(self, timeout: float = 2) -> None:
        """An orderly close: a close frame, its answer, the end."""
        if self.protocol.state is State.OPEN:
            self.protocol.send_close(1000)
            deadline = time.monotonic() + timeout
            try:
                self.flush(deadline)
                while not self.ended and self.wait(deadline):
                    pass
            except TimeoutError:
                pass
        self.abort()

    def abort(self) -> None:
        """The end of the TCP connection without a word."""
        self.ended = True
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()
