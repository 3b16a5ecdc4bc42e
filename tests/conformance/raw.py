"""A WebSocket client without manners: it sends any frame, answers no ping, and reads only when told
to.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import struct
from collections.abc import Iterable
from typing import Any

from tests.conformance.https import LOOPBACK, Response, pinned_context, strict_json
from tests.conformance.samples import new_id, now

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def encoded(
    data: bytes, opcode: int = TEXT, *, final: bool = True, masked: bool = True, reserved: int = 0
) -> bytes:
    """One frame as it goes on the wire; a mask of zeros leaves the data as it is."""
    head = bytes([(0x80 if final else 0) | (reserved << 4) | opcode])
    bit = 0x80 if masked else 0
    if len(data) < 126:
        head += bytes([bit | len(data)])
    elif len(data) < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", len(data))
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", len(data))
    return head + (bytes(4) if masked else b"") + data


class RawSocket:
    """TLS, the upgrade by hand, frames by hand."""

    def __init__(
        self,
        port: int,
        *,
        timeout: float = 30,
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
        self,
        *,
        path: str = "/api/v1/ws",
        method: str = "GET",
        headers: dict[str, str | None] | None = None,
    ) -> Response:
        """Send an upgrade; headers replace the usual ones, None takes one away. The answer's body
        is read unless it is 101.
        """
        sent: dict[str, str | None] = {
            "Host": f"{LOOPBACK}:{self.port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
        }
        sent.update(headers or {})
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in sent.items() if value is not None),
            "",
            "",
        ]
        self.socket.sendall("\r\n".join(lines).encode("latin-1"))
        return self.response()

    def response(self) -> Response:
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)
        }
        status = int(first.split()[1])
        if status == 101:
            return Response(status, headers, b"")
        if "content-length" in headers:
            length = int(headers["content-length"])
            while len(self.buffer) < length:
                self._more()
            body, self.buffer = self.buffer[:length], self.buffer[length:]
        elif headers.get("transfer-encoding") == "chunked":
            body = self._chunks()
        else:
            body = self._rest()
        return Response(status, headers, body)

    def _rest(self) -> bytes:
        try:
            while True:
                self._more()
        except (EOFError, ssl.SSLError, ConnectionError):
            return self.buffer

    def _chunks(self) -> bytes:
        body = b""
        while True:
            while b"\r\n" not in self.buffer:
                self._more()
            size, self.buffer = self.buffer.split(b"\r\n", 1)
            length = int(size, 16)
            while len(self.buffer) < length + 2:
                self._more()
            body, self.buffer = body + self.buffer[:length], self.buffer[length + 2 :]
            if length == 0:
                return body

    def _more(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise EOFError("the server closed the connection")
        self.buffer += data

    def frame(
        self,
        data: bytes,
        opcode: int = TEXT,
        *,
        final: bool = True,
        masked: bool = True,
        reserved: int = 0,
    ) -> None:
        """Send one frame, right or wrong."""
        self.socket.sendall(encoded(data, opcode, final=final, masked=masked, reserved=reserved))

    def frames(self, texts: Iterable[bytes]) -> None:
        """Send text messages in one write."""
        self.socket.sendall(b"".join(encoded(text) for text in texts))

    def send(self, type_: str, payload: Any) -> str:
        sent = new_id()
        self.frame(
            json.dumps({"type": type_, "id": sent, "timestamp": now(), "payload": payload}).encode()
        )
        return sent

    def read_frame(self) -> tuple[int, bytes]:
        """The next frame's opcode and data. EOFError at the end, TimeoutError after the socket's
        timeout.
        """
        while len(self.buffer) < 2:
            self._more()
        opcode, length = self.buffer[0] & 15, self.buffer[1] & 127
        size = {126: 4, 127: 10}.get(length, 2)
        while len(self.buffer) < size:
            self._more()
        if size > 2:
            length = int.from_bytes(self.buffer[2:size], "big")
        while len(self.buffer) < size + length:
            self._more()
        data, self.buffer = self.buffer[size : size + length], self.buffer[size + length :]
        return opcode, data

    def read(self) -> dict[str, Any]:
        """The next message; pings are read over and not answered. EOFError carries the close code
        when there was one.
        """
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
        answer = self.read_until(
            self.send("auth", {"token": token, "client_version": "1.2.3", "platform": "android"})
        )
        assert answer["type"] == "connection_ack", answer
        answer = self.read_until(
            self.send(
                "health_check",
                {"timestamp": now(), "client_nonce": "n", "client_capabilities": ["health_v1"]},
            )
        )
        assert answer["type"] == "health_status", answer
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
