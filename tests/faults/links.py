"""Connections of the crash test's clients: as little code for each message as will do, for one
process plays 64 posters and 5 phones.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from websockets.asyncio import client
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus

from tests.conformance.https import LOOPBACK, pinned_context
from tests.conformance.samples import new_id, now
from tests.faults.ledger import Wrong
from tests.servers import PATIENCE

Message = dict[str, Any]
GONE = (
    OSError,
    EOFError,
    ConnectionClosed,
    InvalidMessage,
)  # what a process that was killed does to its connections


class Http(asyncio.Protocol):
    """One keep-alive TLS connection, whose end raises in whoever waits; one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._lost = False
        self._news = asyncio.Event()
        self._data = b""

    @staticmethod
    async def open(port: int) -> Http:
        """Connect to a process on this machine. Raises OSError where nobody listens (any more)."""
        _, made = await asyncio.get_running_loop().create_connection(
            Http, LOOPBACK, port, ssl=pinned_context(), ssl_handshake_timeout=PATIENCE
        )
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._news.set()

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._news.set()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def post(self, head: bytes, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer; `head` is the request's, but for Content-Length.

        Raises one of GONE when the connection ends before it.
        """
        if self._transport is None or self._lost:
            raise ConnectionResetError("the connection is gone")
        self._data = b""
        self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        while (end := self._data.find(b"\r\n\r\n")) < 0:
            await self._more()
        fields = self._data[:end].lower()
        length = int(fields.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(self._data) < end + 4 + length:
            await self._more()
        return int(fields[9:12]), self._data[end + 4 :]

    async def _more(self) -> None:
        if self._lost:
            raise EOFError("the connection ended before the answer")
        self._news.clear()
        try:
            await asyncio.wait_for(self._news.wait(), PATIENCE)
        except TimeoutError:
            raise Wrong(f"neither an answer nor an end within {PATIENCE} s") from None


class Socket:
    """A WebSocket; ``code`` is that of its close frame, 1006 without one."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    @staticmethod
    async def open(port: int) -> Socket:
        """Raises one of GONE when there is nobody (any more), Wrong when it is refused."""
        try:
            return Socket(
                await client.connect(
                    f"wss://{LOOPBACK}:{port}/api/v1/ws",
                    ssl=pinned_context(),
                    proxy=None,
                    compression=None,
                    open_timeout=PATIENCE,
                    close_timeout=PATIENCE,
                    ping_interval=None,
                    max_size=None,
                    max_queue=None,
                )
            )
        except InvalidStatus as error:
            raise Wrong(f"the upgrade was refused: {error}") from None
        except TimeoutError:
            raise Wrong(f"neither an answer nor an end within {PATIENCE} s") from None

    @property
    def code(self) -> int | None:
        return self._connection.close_code

    async def say(self, type_: str, payload: Any = None) -> str:
        """Send a message and return its id; a payload of None makes it a heartbeat."""
        message = {"type": type_, "timestamp": now()} | (
            {} if payload is None else {"id": new_id(), "payload": payload}
        )
        await self._connection.send(json.dumps(message))
        return str(message.get("id", ""))

    async def take(self) -> Message:
        """Return the next message. Raises one of GONE after the last one."""
        try:
            async with asyncio.timeout(PATIENCE):
                return dict(json.loads(await self._connection.recv()))
        except TimeoutError:
            raise Wrong(f"neither a message nor an end within {PATIENCE} s") from None

    async def close(self) -> None:
        """Close in order: a close frame, the server's answer and the end of the connection."""
        await self._connection.close()

    def abort(self) -> None:
        self._connection.transport.abort()
