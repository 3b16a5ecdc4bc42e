"""Queue slow requests, so that heartbeats and decisions are answered meanwhile."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bridge_project.kernel import limits
from bridge_project.protocol.catalogue import CATALOGUE
from bridge_project.protocol.parse import ClientMessage

Queue = tuple[str, str | None]  # the catalogue's name of it, the session


class RequestQueues:
    """Queue slow requests in order, by kind and session.

    The queue is bounded in bytes; when it is full, ``put`` waits, and so no more is read.
    """

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        handle: Callable[[ClientMessage], Awaitable[None]],
    ) -> None:
        self._spawn = spawn
        self._handle = handle
        self._queues: dict[Queue, deque[tuple[ClientMessage, int]]] = {}
        self._waiting = 0
        self._room: asyncio.Future[None] | None = None  # what ``put`` waits for

    async def put(self, message: ClientMessage, size: int) -> bool:
        """Queue a message of ``size`` bytes; False if it can be handled at once.

        Returns when there was room for it; call it again only then.
        """
        kind = CATALOGUE[message.type].lane
        if kind is None:
            return False
        while self._waiting and self._waiting + size > limits.LANES_BYTES:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        self._waiting += size
        key = (kind, getattr(message.payload, "session_id", None))
        if key in self._queues:
            self._queues[key].append((message, size))
        else:
            self._queues[key] = deque([(message, size)])
            self._spawn(self._run(key))
        return True

    async def _run(self, key: Queue) -> None:
        queue = self._queues[key]
        while queue:
            message, size = queue.popleft()
            await self._handle(message)
            self._waiting -= size
            if self._room is not None and not self._room.done():
                self._room.set_result(None)
        del self._queues[key]
