"""Requests that may take seconds, beside the conversation: in order among themselves, while
heartbeats and decisions go on being answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bridge_project.kernel import limits
from bridge_project.protocol.catalogue import CATALOGUE
from bridge_project.protocol.parse import ClientMessage

Lane = tuple[str, str | None]  # the catalogue's lane, the session


class Lanes:
    """One queue for each lane of each session: what a slow commit holds up is the next commit in
    that session, and nothing else.

    What waits is bounded in bytes; beyond that, ``put`` waits, and with it the socket's reading.
    """

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        handle: Callable[[ClientMessage], Awaitable[None]],
    ) -> None:
        self._spawn = spawn
        self._handle = handle
        self._queues: dict[Lane, deque[tuple[ClientMessage, int]]] = {}
        self._waiting = 0
        self._room = asyncio.Condition()

    @staticmethod
    def of(message: ClientMessage) -> Lane | None:
        """The lane of a message, or None for one that is handled at once."""
        lane = CATALOGUE[message.type].lane
        return None if lane is None else (lane, getattr(message.payload, "session_id", None))

    async def put(self, lane: Lane, message: ClientMessage, size: int) -> None:
        """Queue a message of ``size`` bytes; return when there was room for it."""
        async with self._room:
            await self._room.wait_for(
                lambda: self._waiting == 0 or self._waiting + size <= limits.LANES_BYTES
            )
            self._waiting += size
        queue = self._queues.get(lane)
        if queue is None:
            self._queues[lane] = deque([(message, size)])
            self._spawn(self._run(lane))
        else:
            queue.append((message, size))

    async def _run(self, lane: Lane) -> None:
        queue = self._queues[lane]
        while queue:
            message, size = queue.popleft()
            await self._handle(message)
            async with self._room:
                self._waiting -= size
                self._room.notify_all()
        del self._queues[lane]
