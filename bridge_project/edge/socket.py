"""Give the application a WebSocket's messages and connection (D25, D30)."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from bridge_project.edge.connection import connection_of, drain  # isort: skip  sets the reactor
from autobahn.websocket.compress import PerMessageDeflateOffer, PerMessageDeflateOfferAccept

from bridge_project.kernel import limits

MESSAGE_BYTES = 256  # what a queued message costs besides its text, so that empty ones count too


class Inbox:
    """Queue one socket's messages until the application takes them; count their size.

    An ``asyncio.Queue`` takes 4 KB when it is empty; this one has a single reader.
    """

    def __init__(self, protocol: Any) -> None:
        self.waiting = 0
        self._protocol = protocol
        self._items: list[dict[str, Any]] = []
        self._came: asyncio.Future[None] | None = None  # what the reader waits for

    def put_nowait(self, item: dict[str, Any]) -> None:
        self.waiting += self._size(item)
        self._items.append(item)
        if self._came is not None and not self._came.done():
            self._came.set_result(None)

    async def get(self) -> dict[str, Any]:
        while not self._items:
            self._came = asyncio.get_running_loop().create_future()
            await self._came
        item = self._items.pop(0)
        self.waiting -= self._size(item)
        self._protocol.taken()
        return item

    def _size(self, item: dict[str, Any]) -> int:
        return MESSAGE_BYTES + len(item.get("text") or item.get("bytes") or b"")


def accept_compression(offers: Sequence[Any]) -> PerMessageDeflateOfferAccept | None:
    """Accept an offer of permessage-deflate with a small window (D58)."""
    for offer in offers:
        if isinstance(offer, PerMessageDeflateOffer):
            offer.accept_no_context_takeover = True  # whatever the client says (RFC 7692, 7.1.1.2)
            most = offer.request_max_window_bits or limits.DEFLATE_WINDOW_BITS
            return PerMessageDeflateOfferAccept(  # type: ignore[no-untyped-call]
                offer,
                request_no_context_takeover=True,
                window_bits=min(most, limits.DEFLATE_WINDOW_BITS),
                mem_level=limits.DEFLATE_MEMORY_LEVEL,
            )
    return None


class Socket:
    """Let the consumer watch and drive the connection below its WebSocket.

    It is ``scope["bridge.socket"]`` (D25, D30).
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._transport = protocol.transport
        self._connection = connection_of(protocol.transport)

    def buffered(self) -> int:
        """Return the bytes sent that have not left the process; 0 when it is gone."""
        return self._transport.waiting() if self._connection.connected else 0

    def send_frames(self, frames: Sequence[bytes]) -> int:
        """Send whole frames in one write until the buffer is full; return how many.

        SOCKET_BUFFER_BYTES is the bound.
        """
        count, size = 0, self.buffered()
        while count < len(frames) and size < limits.SOCKET_BUFFER_BYTES:
            size += len(frames[count])
            count += 1
        self._protocol.send_frames(frames[:count])
        return count

    async def drain(self) -> bool:
        """Wait for room under SOCKET_BUFFER_BYTES; return False once it is lost."""
        return await drain(self._transport)

    @property
    def last_progress(self) -> float:
        """Return the monotonic time at which bytes last left, or began to wait.

        ``buffered() and monotonic() - last_progress`` is how long it is stuck.
        """
        return self._connection.last_progress

    @property
    def last_frame(self) -> float:
        """Return the monotonic time of the client's last frame, or of a part of one.

        Pongs count. While nothing is read, it is the present moment.
        """
        return time.monotonic() if self._protocol.paused else self._protocol.heard

    def abort(self) -> None:
        """Reset the connection and lose its buffer; ``websocket.disconnect`` follows."""
        self._protocol.dropConnection(abort=True)

    def authenticated(self) -> None:
        """Lift the bounds on what an unauthenticated client may send."""
        self._connection.authenticated = self._protocol.authenticated = True
        self._protocol.maxMessagePayloadSize = self._protocol.factory.maxMessagePayloadSize
