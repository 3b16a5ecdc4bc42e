"""Know the sockets of this process, end those that must go, and give back their places."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, Protocol

import structlog
from django.db import Error as DatabaseError

from bridge_project.kernel.threads import writers
from sessions_app.log.tail import Follower, tail
from sessions_app.socket import presence

log = structlog.get_logger("bridge.socket")


class Socket(Follower, Protocol):
    """A live socket, as the registry sees it. All its methods are called on the event loop."""

    connection_id: int | None
    token_digest: str

    @property
    def device_id(self) -> int | None: ...

    @property
    def joined(self) -> dict[str, int]: ...

    async def retire(self, code: str) -> None: ...


class Registry:
    """The authenticated sockets of this process.

    ``opening``: how many are taking a place at this moment; ``closing``: places in the database
    that were not given back yet.
    """

    def __init__(self) -> None:
        self.sockets: set[Socket] = set()
        self.closing: set[int] = set()
        self.opening = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Start on the running loop."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        self._loop = None

    def add(self, socket: Socket) -> None:
        self.sockets.add(socket)
        tail.followers.add(socket)

    def discard(self, socket: Socket) -> None:
        self.sockets.discard(socket)
        tail.followers.discard(socket)

    def revoked(self, device_id: int) -> None:
        """End a device's sockets when this process revoked it; callable from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._revoked, device_id)

    def _revoked(self, device_id: int) -> None:
        ended = {one.connection_id for one in self.sockets if one.device_id == device_id}
        self.retire(set(), ended)

    def retire(self, replaced: Collection[int | None], ended: Collection[int | None]) -> None:
        """End the connections that were replaced, and those whose device or token ended."""
        for socket in tuple(self.sockets):
            if socket.connection_id in ended:
                self._spawn(socket.retire("AUTH_FAILED"))
            elif socket.connection_id in replaced:
                self._spawn(socket.retire("CONN_REPLACED"))

    def part(self, socket: Socket) -> None:
        """Forget a socket that is over; its place is given back as soon as the database answers."""
        self.discard(socket)
        for feed_id in socket.joined.values():
            self._spawn(tail.notifier.leave(feed_id))
        socket.joined.clear()
        if socket.connection_id is not None:
            self.closing.add(socket.connection_id)
            socket.connection_id = None
            self._spawn(self.close_places())

    async def close_places(self) -> None:
        """Remove the records of sockets that are over; the lease's renewal tries again."""
        closing = set(self.closing)
        try:
            await writers.run(presence.close_connections, closing)
        except DatabaseError as error:
            log.warning("places_not_given_back", count=len(closing), error=error.__class__.__name__)
        else:
            self.closing -= closing

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


registry = Registry()
