"""The doorbell: tells the sockets of this process, and through the channel layer those of others, that the log has grown.

It may drop, repeat or reorder; nothing is lost, because nothing is in it (D26). It keeps the newest rows at hand, those that this process
wrote and, read once for all its sockets, those of others (D46), so that a socket that keeps up sends them without reading the database;
one that does not reads the log.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, Protocol

import structlog
from django.db import Error as DatabaseError

from bridge_project.kernel import limits
from bridge_project.kernel.database import readers, writers
from sessions_app.log import retention
from sessions_app.log.notify import Bell
from sessions_app.log.row import Row
from sessions_app.socket import presence

log = structlog.get_logger("bridge.hub")

TAIL_ROWS = 4096
TAIL_BYTES = 4 * 2**20
AT_ONCE_ROWS = 256  # a socket that is behind is given so many at a time


class Listener(Protocol):
    """A live socket, as the hub sees it. All its methods are called on the event loop."""

    connection_id: int | None
    token_digest: str

    @property
    def device_id(self) -> int | None: ...

    @property
    def joined(self) -> dict[str, int]: ...

    def wake(self) -> None: ...

    async def retire(self, code: str) -> None: ...


class Hub:
    """One for each process. ``head`` is the newest row that its sockets are told of."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self.process_id = uuid.UUID(int=0)
        self.head = 0
        self._grown = 0  # the newest row that anybody told of
        self._catching_up: asyncio.Task[None] | None = None
        self._tail: deque[Row] = deque()
        self._tail_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.bell = Bell(self.heard)
        self.closing: set[int] = set()
        self.opening = 0  # sockets that are taking a place at this moment
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, process_id: uuid.UUID, head: int) -> None:
        """Start serving on the running loop; ``head`` is the log's newest row."""
        self.process_id = process_id
        self._loop = asyncio.get_running_loop()
        self._jump(head)
        self._grown = head
        self._catching_up = None

    def close(self) -> None:
        self._loop = None
        if self._catching_up is not None:
            self._catching_up.cancel()

    # -- ringing ---------------------------------------------------------------------------------------------------------

    def committed(self, rows: Sequence[Row]) -> None:
        """Rows have been committed by this process; callable from any thread."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return  # a command: the serving processes find the rows by themselves (limits.POLL_SECONDS)
        loop.call_soon_threadsafe(self._committed, rows)

    def _committed(self, rows: Sequence[Row]) -> None:
        if rows[0].seq <= self.head + 1:
            self._append(rows)
        else:
            self.heard(rows[-1].seq)  # before them there are some of another process
        self.bell.ring({row.feed_id for row in rows}, rows[-1].seq)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def heard(self, upto: int) -> None:
        """The log has grown to ``upto``, whoever says so."""
        self._grown = max(self._grown, upto)
        if self._grown > self.head and (self._catching_up is None or self._catching_up.done()):
            self._catching_up = asyncio.ensure_future(self._catch_up())

    async def _catch_up(self) -> None:
        """Read what others have written, once for all sockets; where that is too much at once each socket reads for itself. Only the log is believed."""
        while (told := self._grown) > self.head:
            try:
                head, rows = await readers.run(retention.newest, self.head, TAIL_ROWS if self.listeners else 0, TAIL_BYTES)
            except DatabaseError as error:
                log.warning("newest_rows_not_read", error=error.__class__.__name__)
                await asyncio.sleep(limits.POLL_SECONDS)
                continue
            if not self._append(rows) and head > self.head:
                self._jump(head)
            if self._grown == told > head:
                self._grown = head

    def _wake_all(self) -> None:
        for listener in tuple(self.listeners):
            listener.wake()

    # -- ending connections ------------------------------------------------------------------------------------------------

    def revoked(self, device_id: int) -> None:
        """A device was revoked by this process; callable from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._revoked, device_id)

    def _revoked(self, device_id: int) -> None:
        self.retire(set(), {listener.connection_id for listener in self.listeners if listener.device_id == device_id})

    def retire(self, replaced: Collection[int | None], ended: Collection[int | None]) -> None:
        """End the connections that were replaced, and those whose device or token is no longer good."""
        for listener in tuple(self.listeners):
            if listener.connection_id in ended:
                self._spawn(listener.retire("AUTH_FAILED"))
            elif listener.connection_id in replaced:
                self._spawn(listener.retire("CONN_REPLACED"))

    def part(self, listener: Listener) -> None:
        """A socket is over, however that came; its place is given back, now or as soon as the database is there."""
        self.listeners.discard(listener)
        for feed_id in listener.joined.values():
            self._spawn(self.bell.leave(feed_id))
        listener.joined.clear()
        if listener.connection_id is not None:
            self.closing.add(listener.connection_id)
            listener.connection_id = None
            self._spawn(self.close_places())

    async def close_places(self) -> None:
        """Remove what is on record of sockets that are over; what fails is tried again by the housekeeping."""
        closing = set(self.closing)
        try:
            await writers.run(presence.close_connections, closing)
        except DatabaseError as error:
            log.warning("places_not_given_back", count=len(closing), error=error.__class__.__name__)
        else:
            self.closing -= closing

    # -- the newest rows ---------------------------------------------------------------------------------------------------

    def _append(self, rows: Sequence[Row]) -> bool:
        """Keep those that follow the head without a gap, and tell the sockets; whether there were any."""
        new = [row for row in rows if row.seq > self.head]
        if not new or new[-1].seq != self.head + len(new):
            return False
        for row in new:
            self._tail.append(row)
            self._tail_bytes += row.size
        while len(self._tail) > TAIL_ROWS or (self._tail_bytes > TAIL_BYTES and len(self._tail) > 1):
            self._tail_bytes -= self._tail.popleft().size
        self.head = new[-1].seq
        self._wake_all()
        return True

    def _jump(self, head: int) -> None:
        """Go on at ``head`` with nothing at hand."""
        self._tail.clear()
        self._tail_bytes = 0
        self.head = head
        self._wake_all()

    def after(self, seq: int) -> list[Row] | None:
        """The next rows after ``seq``, if they are at hand; None when the log must be read because one of them is not."""
        if not self._tail or self._tail[0].seq > seq + 1:
            return None
        first = seq + 1 - self._tail[0].seq
        return [self._tail[i] for i in range(first, min(first + AT_ONCE_ROWS, len(self._tail)))]


hub = Hub()
