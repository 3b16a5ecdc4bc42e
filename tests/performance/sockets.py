"""The generator's WebSocket: as little as can be between the wire and a frame's time."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Callable
from typing import Any

from tests.conformance.https import LOOPBACK, pinned_context
from tests.conformance.raw import CLOSE, PING, PONG, TEXT, encoded
from tests.conformance.samples import new_id, now

clock = time.perf_counter


class Socket(asyncio.Protocol):
    """Give every text frame to ``on_text`` with the time at which it was read."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.on_text: Callable[[bytes, float], None] = self._keep
        self.messages: list[dict[str, Any]] = []
        self.upgraded = asyncio.get_running_loop().create_future()
        self.came = asyncio.Event()
        self._buffer = b""

    @staticmethod
    async def open(port: int) -> Socket:
        transport, made = await asyncio.get_running_loop().create_connection(
            Socket, LOOPBACK, port, ssl=pinned_context()
        )
        made.transport = transport
        head = [
            f"GET /api/v1/ws HTTP/1.1\r\nHost: {LOOPBACK}:{port}",
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        ]
        transport.write("\r\n".join([*head, "", ""]).encode())
        await asyncio.wait_for(made.upgraded, 30)
        return made

    def _keep(self, text: bytes, at: float) -> None:
        self.messages.append(json.loads(text))
        self.came.set()

    def send(self, type_: str, **payload: Any) -> None:
        sent = {"type": type_, "id": new_id(), "timestamp": now(), "payload": payload}
        self.transport.write(encoded(json.dumps(sent).encode()))

    async def ask(self, type_: str, answer: str, **payload: Any) -> dict[str, Any]:
        self.send(type_, **payload)
        return await self.expect(answer)

    async def expect(self, type_: str) -> dict[str, Any]:
        async with asyncio.timeout(30):
            while True:
                for message in self.messages:
                    if message["type"] == type_:
                        self.messages.remove(message)
                        return message
                    assert message["type"] not in ("connection_error", "error"), message
                self.came.clear()
                await self.came.wait()

    async def ready(self, token: str) -> Socket:
        who = {"token": token, "client_version": "1.0.0", "platform": "ios"}
        await self.ask("auth", "connection_ack", **who)
        about = {"client_nonce": new_id(), "client_capabilities": ["health_v1"]}
        await self.ask("health_check", "health_status", timestamp=now(), **about)
        return self

    async def join(self, session: str) -> None:
        where = {"session_id": session, "working_directory": "/", "resume": True}
        await self.ask("session_start", "session_ready", agent="", **where)

    def close(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(encoded((1000).to_bytes(2, "big"), CLOSE))
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        at, buffer, start = clock(), self._buffer + data if self._buffer else data, 0
        if not self.upgraded.done():
            start = buffer.find(b"\r\n\r\n") + 4
            if start < 4:
                self._buffer = buffer
                return
            if b" 101 " not in buffer[:20]:
                self.upgraded.set_exception(AssertionError(buffer[:300].decode("latin-1")))
                return
            self.upgraded.set_result(None)
        end = len(buffer)
        while end - start >= 2:
            body, size = start + 2, buffer[start + 1] & 127
            if size > 125:
                wide = 2 if size == 126 else 8
                body, size = body + wide, int.from_bytes(buffer[body : body + wide], "big")
            if body + size > end:
                break
            data = buffer[body : body + size]
            if (opcode := buffer[start] & 15) == TEXT:
                self.on_text(data, at)
            elif opcode == PING:
                self.transport.write(encoded(data, PONG))
            start = body + size
        self._buffer = buffer[start:]
