"""A WebSocket client that sends any frame, answers no ping, and reads only when told to."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import struct
from contextlib import closing
from typing import Any

from tests.conformance.https import LOOPBACK, Response, pinned_context, strict_json
from tests.conformance.samples import new_id, now
from tests.servers import PATIENCE

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def upgraded(
    port: int, path: str = "/api/v1/ws", *, source: str | None = None, **headers: str | None
) -> Response:
    """The answer to an upgrade by hand, over a connection that is closed then."""
    with closing(RawSocket(port, source=source)) as client:
        return client.upgrade(path=path, headers=headers)


def encoded(data: bytes, opcode: int = TEXT, *, final: bool = True, reserved: int = 0) -> bytes:
    """One frame as it goes on the wire; a mask of zeros leaves the data as it is."""
    head = bytes([(0x80 if final else 0) | (reserved << 4) | opcode])
    if len(data) < 126:
        head += bytes([0x80 | len(data)])
    elif len(data) < 65536:
        head += bytes([0x80 | 126]) + struct.pack("!H", len(data))
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", len(data))
    return head + bytes(4) + data


def head(
    bridge: Any, *more: str, line: str = "POST /api/v1/hooks/event", token: str | None = None
) -> bytes:
    """The head of a request with these lines in it, of JSON if it has a body."""
    lines = [f"{line} HTTP/1.1", f"Host: {LOOPBACK}:{bridge.port}", *more]
    lines.append(f"Authorization: Bearer {token or bridge.hook_token}")
    return "\r\n".join([*lines, "Content-Type: application/json", "", ""]).encode()


def ended(connection: socket.socket) -> bool:
    """Whether the bridge has ended it. Nothing is expected to be read from it."""
    connection.settimeout(0)
    try:
        return connection.recv(1000) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


class RawSocket:
    """TLS, the upgrade by hand, frames by hand."""

    def __init__(
        self,
        port: int,
        *,
        timeout: float = PATIENCE,
        plain: bool = False,
        receive_buffer: int | None = None,
        source: str | None = None,
    ) -> None:
        raw = socket.socket()
        if receive_buffer is not None:  # before connecting: it decides the window
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        raw.settimeout(timeout)
        if source is not None:
            raw.bind((source, 0))
        raw.connect((LOOPBACK, port))
        self.port = port
        self.socket: socket.socket = (
            raw if plain else pinned_context().wrap_socket(raw, server_hostname=LOOPBACK)
        )
        self.buffer = b""

    def upgrade(
        self, *, path: str = "/api/v1/ws", headers: dict[str, str | None] | None = None
    ) -> Response:
        """Send an upgrade; headers replace the usual ones, None takes one away."""
        sent: dict[str, str | None] = {
            "Host": f"{LOOPBACK}:{self.port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
        }
        sent.update(headers or {})
        lines = [f"{name}: {value}\r\n" for name, value in sent.items() if value is not None]
        head = f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n"
        self.socket.sendall(head.encode("latin-1"))
        return self.response()

    def response(self) -> Response:
        """Read an answer, and its body unless it is 101."""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.split(":", 1) for line in lines)
        headers = {name.lower(): value.strip() for name, value in pairs}
        status = int(first.split()[1])
        if status == 101:
            return Response(status, headers, b"")
        return Response(status, headers, self._take(int(headers["content-length"])))

    def _take(self, length: int) -> bytes:
        while len(self.buffer) < length:
            self._more()
        data, self.buffer = self.buffer[:length], self.buffer[length:]
        return data

    def _more(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise EOFError("the server closed the connection")
        self.buffer += data

    def frame(self, data: bytes, opcode: int = TEXT, **bits: Any) -> None:
        """Send one frame, right or wrong (see `encoded`)."""
        self.socket.sendall(encoded(data, opcode, **bits))

    def send(self, type_: str, payload: Any) -> str:
        message = {"type": type_, "id": new_id(), "timestamp": now(), "payload": payload}
        self.frame(json.dumps(message).encode())
        return str(message["id"])

    def read_frame(self) -> tuple[int, bytes]:
        """The next frame's opcode and data. Raises EOFError at the end, TimeoutError."""
        first, size = self._take(2)
        if size >= 126:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return first & 15, self._take(size)

    def read(self) -> dict[str, Any]:
        """The next message, past pings. Raises EOFError with the close code if there was one."""
        while True:
            opcode, data = self.read_frame()
            if opcode == TEXT:
                return dict(strict_json(data))
            if opcode == CLOSE:
                raise EOFError(int.from_bytes(data[:2], "big"))

    def read_until(self, id_: str) -> dict[str, Any]:
        while True:
            message = self.read()
            if message.get("id") == id_:
                return message

    def ready(self, token: str) -> RawSocket:
        assert self.upgrade().status == 101
        auth = {"token": token, "client_version": "1.2.3", "platform": "android"}
        health = {"timestamp": now(), "client_nonce": "n", "client_capabilities": ["health_v1"]}
        for type_, payload in {"auth": auth, "health_check": health}.items():
            answer = self.read_until(self.send(type_, payload))
            assert answer["type"] in ("connection_ack", "health_status"), answer
        return self

    def until_closed(self) -> tuple[list[dict[str, Any]], int | None]:
        """Everything that still comes, and the close code (None: none was sent)."""
        messages: list[dict[str, Any]] = []
        try:
            while True:
                messages.append(self.read())
        except EOFError as end:
            return messages, end.args[0] if isinstance(end.args[0], int) else None
        except (ConnectionError, ssl.SSLError):
            return messages, None

    def close(self) -> None:
        self.socket.close()
