"""Connections of the crash test's clients: as little code for each message as will do, for one
process plays 64 posters and 5 phones.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from tests.conformance.https import LOOPBACK, pinned_context
from tests.conformance.samples import new_id, now
from tests.faults.ledger import Wrong

PATIENCE = 30.0  # seconds: an answer is there by then, or the connection's end
Message = dict[str, Any]
GONE = (OSError, EOFError)  # what a process that was killed does to its connections


async def connect(protocol: asyncio.Protocol, port: int) -> None:
    """TLS to a process on this machine. Raises OSError where nobody listens (any more)."""
    await asyncio.get_running_loop().create_connection(
        lambda: protocol, LOOPBACK, port, ssl=pinned_context(), ssl_handshake_timeout=PATIENCE
    )


class Link(asyncio.Protocol):
    """A TLS connection whose end raises in whoever waits for something."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self._news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._news.set()

    def write(self, data: bytes) -> None:
        if self.transport is None or self.lost:
            raise ConnectionResetError("the connection is gone")
        self.transport.write(data)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    async def news(self, seconds: float = PATIENCE) -> None:
        """Something has come. Raises EOFError at the end of the connection, Wrong when nothing
        comes for that long.
        """
        if not self._news.is_set():
            try:
                await asyncio.wait_for(self._news.wait(), seconds)
            except TimeoutError:
                raise Wrong(f"neither an answer nor an end within {seconds} s") from None
        self._news.clear()


class Http(Link):
    """One keep-alive connection; one request at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._news.set()

    async def post(self, head: bytes, body: bytes) -> tuple[int, bytes]:
        """`head` is the request's, but for Content-Length. Status and body of the answer; raises
        EOFError when the connection ends before it.
        """
        self._data = b""
        self.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        while (end := self._data.find(b"\r\n\r\n")) < 0:
            await self._more()
        fields = self._data[:end].lower()
        length = int(fields.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(self._data) < end + 4 + length:
            await self._more()
        return int(fields[9:12]), self._data[end + 4 :]

    async def _more(self) -> None:
        if self.lost:
            raise EOFError("the connection ended before the answer")
        await self.news()


class Socket(Link):
    """A WebSocket on the sans-I/O core of the `websockets` library; `arrived` holds what was not
    taken yet.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self.protocol = ClientProtocol(
            parse_uri(f"wss://{LOOPBACK}:{port}/api/v1/ws"), max_size=None
        )
        self.arrived: deque[Message] = deque()
        self.upgraded = False

    def data_received(self, data: bytes) -> None:
        self.protocol.receive_data(data)
        for event in self.protocol.events_received():
            if isinstance(event, Response):
                self.upgraded = True
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                assert event.fin, "the bridge sends messages in one frame"
                self.arrived.append(json.loads(bytes(event.data)))
        self._flush()
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.protocol.receive_eof()

    def _flush(self) -> None:
        for data in self.protocol.data_to_send():
            if data and not self.lost and self.transport is not None:
                self.transport.write(data)

    async def upgrade(self) -> None:
        """Raises EOFError when the connection ends, Wrong when it is refused."""
        self.protocol.send_request(self.protocol.connect())
        self._flush()
        while not self.upgraded:
            await self._more()
        if isinstance(self.protocol.handshake_exc, InvalidHandshake):
            raise Wrong(f"the upgrade was refused: {self.protocol.handshake_exc}")

    async def _more(self) -> None:
        if self.lost:
            raise EOFError(f"the connection ended, close code {self.code}")
        await self.news()

    @property
    def code(self) -> int | None:
        return self.protocol.close_rcvd.code if self.protocol.close_rcvd else None

    def say(self, type_: str, payload: Any = None) -> str:
        """Send a message and return its id; a payload of None makes it a heartbeat. Raises
        ConnectionResetError.
        """
        if self.lost or self.protocol.state is not State.OPEN:
            raise ConnectionResetError("the connection is gone")
        message = {"type": type_, "timestamp": now()} | (
            {} if payload is None else {"id": new_id(), "payload": payload}
        )
        self.protocol.send_text(json.dumps(message).encode())
        self._flush()
        return str(message.get("id", ""))

    async def take(self) -> Message:
        """The next message. Raises EOFError after the last one."""
        while not self.arrived:
            await self._more()
        return self.arrived.popleft()

    async def close(self) -> None:
        """An orderly close: a close frame, the server's answer and the end of the connection; what
        still comes before it is in `arrived`.
        """
        if self.protocol.state is State.OPEN:
            self.protocol.send_close(1000)
            self._flush()
        while not self.lost:
            await self.news()
