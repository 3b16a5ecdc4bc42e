"""Keep the log's newest rows in memory, and wake this process's sockets.

It holds rows that this process wrote, and rows of other processes, read once for all sockets (D46).
A socket that keeps up sends them without reading the database; a slower one reads the log.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from bridge_project.kernel.threads import readers
from sessions_app.log import reader
from sessions_app.log.notify import Notifier
from sessions_app.log.reader import Row

TAIL_ROWS = 4096
TAIL_BYTES = 4 * 2**20
AT_ONCE_ROWS = 256  # rows given at once to a socket that is behind


class Tail:
    """Hold the newest rows; ``head`` is the last that sockets were woken for."""

    def __init__(self) -> None:
        self.followers: set[Callable[[], None]] = set()  # called on the loop when it grows
        self.head = 0
        self.changes = 0  # of sessions by this process that no row tells
        self.notifier = Notifier(self.notify_head)
        self._grown = 0  # the newest row that a notification named
        self._catching_up: asyncio.Task[None] | None = None
        self._rows: deque[Row] = deque()
        self._bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, head: int) -> None:
        """Start the tail on the running event loop; ``head``: the log's newest row."""
        self._loop = asyncio.get_running_loop()
        self._jump(head)
        self._grown = head
        self._catching_up = None

    def close(self) -> None:
        self._loop = None
        if self._catching_up is not None:
            self._catching_up.cancel()

    def committed(self, rows: Sequence[Row]) -> None:
        """Take rows that this process has committed; callable from any thread."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return  # a command: serving processes find its rows by looking (limits.POLL_SECONDS)
        loop.call_soon_threadsafe(self._committed, rows)

    def _committed(self, rows: Sequence[Row]) -> None:
        if rows[0].seq <= self.head + 1:
            self._append(rows)
        else:
            self.notify_head(rows[-1].seq)  # rows of another process lie before them
        self.notifier.publish({row.feed_id for row in rows}, rows[-1].seq)

    def notify_head(self, upto: int) -> None:
        """Schedule reading other processes' rows up to ``upto``; the notifier calls it."""
        self._grown = max(self._grown, upto)
        if self._grown > self.head and (self._catching_up is None or self._catching_up.done()):
            self._catching_up = asyncio.ensure_future(self._catch_up())

    async def _catch_up(self) -> None:
        """Read new rows once for all sockets; if they are too many, each reads the log.

        Only the log counts: a notification of rows that are not there changes nothing.
        """
        while (announced := self._grown) > self.head:
            wanted = TAIL_ROWS if self.followers else 0
            head, rows = await readers.retry(reader.newest, self.head, wanted, TAIL_BYTES)
            if not self._append(rows) and head > self.head:
                self._jump(head)
            if self._grown == announced > head:
                self._grown = head

    def _append(self, rows: Sequence[Row]) -> bool:
        """Keep rows that follow the head without a gap, wake sockets; False if none do."""
        new = [row for row in rows if row.seq > self.head]
        if not new or new[-1].seq != self.head + len(new):
            return False
        for row in new:
            self._rows.append(row)
            self._bytes += row.size
        while len(self._rows) > TAIL_ROWS or (self._bytes > TAIL_BYTES and len(self._rows) > 1):
            self._bytes -= self._rows.popleft().size
        self.head = new[-1].seq
        self._wake_all()
        return True

    def _jump(self, head: int) -> None:
        """Go on at ``head`` with no rows in memory."""
        self._rows.clear()
        self._bytes = 0
        self.head = head
        self._wake_all()

    def _wake_all(self) -> None:
        for wake in tuple(self.followers):
            wake()

    def after(self, seq: int) -> list[Row] | None:
        """Return the next rows after ``seq``; None when one of them is not in memory."""
        if not self._rows or self._rows[0].seq > seq + 1:
            return None
        first = seq + 1 - self._rows[0].seq
        return [self._rows[i] for i in range(first, min(first + AT_ONCE_ROWS, len(self._rows)))]


tail = Tail()
