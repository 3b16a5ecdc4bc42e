"""What one socket is sent from the log, and when: the backlog, joined sessions, live rows; each row
once and in order (D26 to D28).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

import structlog
from django.db import Error as DatabaseError

from bridge_project.kernel import limits, metrics
from bridge_project.kernel.threads import readers
from bridge_project.protocol.catalogue import Encoded, encode, encode_replay
from devices_app.models import Device
from sessions_app import notifications
from sessions_app.approvals import service as approvals
from sessions_app.log import cursors, replay
from sessions_app.log import reader as log_reader
from sessions_app.log.row import Row
from sessions_app.log.tail import Tail
from sessions_app.models import Feed
from sessions_app.socket.acknowledgements import Receipts

ROWS_AT_ONCE = 64  # of a backlog, in one turn of the event loop

logger = structlog.get_logger("bridge.delivery")


def positions_of(
    device: Device, feed_ids: Iterable[int] | None, known: dict[int, int]
) -> dict[int, int]:
    """Where a device's backlog begins in each named feed, or (``feed_ids`` None) in each observed
    feed and the one for all that has news.

    ``known`` are positions of this connection, which stand over the device's cursors.
    """
    positions = cursors.positions(device) | known
    if feed_ids is None:
        return log_reader.news(positions, device.start_seq)
    return {feed_id: positions.get(feed_id, device.start_seq) for feed_id in feed_ids}


class Outlet(Protocol):
    """Where rows leave: the socket, as delivery sees it."""

    def send_at_once(self, rows: Sequence[Row]) -> int:
        """Send the first rows, as many as fit into what may wait in memory (D30); how many those
        are.
        """
        ...

    async def send_in_turn(self, text: str) -> None:
        """Send a message as soon as the socket has room for it."""
        ...


class Delivery:
    """The one sender of log rows on a connection.

    ``sent`` is the newest row sent of each feed. ``live`` is the row up to which every live feed
    (``feeds``) has been sent: from there on one number stands for all of them, and rows go out in
    the order of the log.
    """

    def __init__(self, device: Device, outlet: Outlet, receipts: Receipts, tail: Tail) -> None:
        self._device = device
        self._outlet = outlet
        self._receipts = receipts
        self._tail = tail
        self._wake = asyncio.Event()
        self._idle = False
        # feed → up to which row what was missed of it comes in one piece, if it does
        self._joins: dict[int, int | None] = {}
        # the approvals that this connection was asked for, whether by greeting or by their row
        self._asked: set[str] = set()
        self.sent: dict[int, int] = {}
        self.feeds: set[int] = set()
        self.live = 0

    def wake(self) -> None:
        """There are new rows. A socket that keeps up has them in this very turn of the loop,
        without a switch to its task and back.
        """
        if not (self._idle and self._keep_up()):
            self._wake.set()

    def join(self, feed_id: int, *, buffer_upto: int | None = None) -> None:
        """Send the feed's backlog, then its live rows. With ``buffer_upto`` what was missed up to
        that row is one ``replay_buffer``, as of a session that the bridge runs: the head of the log
        before the client was told that it has joined, so that whatever is later comes as it was
        said."""
        self._joins.setdefault(feed_id, buffer_upto)
        self.wake()

    def leave(self, feed_id: int) -> None:
        self.feeds.discard(feed_id)
        self._joins.pop(feed_id, None)

    async def run(self, upto: int) -> None:
        """Deliver until cancelled; while the database is away, wait for it and go on where this
        connection stands.

        ``upto``, the head of the log before the client was told that it is connected: whatever is
        later is live.
        """
        while True:
            try:
                await self._run(upto)
            except DatabaseError as error:
                logger.warning(
                    "delivery_waits_for_database",
                    device=self._device.pk,
                    error=error.__class__.__name__,
                )
                await asyncio.sleep(limits.POLL_SECONDS)

    async def _run(self, upto: int) -> None:
        if not self.feeds:
            await self._send_backlog(
                await readers.run(positions_of, self._device, None, self.sent), upto
            )
            await self._greet(upto)
            self.live = upto
            self.feeds.add(Feed.ALL)
        self.wake()
        while True:
            self._idle = True
            try:
                await self._wake.wait()
            finally:
                self._idle = False
            self._wake.clear()
            while self._joins:
                await self._join(*next(iter(self._joins.items())))
            await self._send_live()

    async def _greet(self, upto: int) -> None:
        """Everything that still waits for a decision, whatever the device has seen before (D28)."""
        for message_id, frame in await readers.run(approvals.pending_frames, upto):
            if message_id not in self._asked:
                self._asked.add(message_id)
                await self._outlet.send_in_turn(frame)

    async def _join(self, feed_id: int, buffer_upto: int | None) -> None:
        """Bring a feed up to where the live ones stand; what commits meanwhile is beyond that."""
        if feed_id not in self.feeds:
            if buffer_upto is not None:
                await self._send_buffer(feed_id, buffer_upto)
            if buffer_upto is None or buffer_upto < self.live:
                await self._send_backlog(
                    await readers.run(positions_of, self._device, [feed_id], self.sent), self.live
                )
        if feed_id in self._joins:  # it has not been left meanwhile
            del self._joins[feed_id]
            self.feeds.add(feed_id)

    async def _send_buffer(self, feed_id: int, upto: int) -> None:
        """What the device missed of a session in one message, which stands for the rows it holds
        (D28); nothing if there is nothing.
        """
        missed = await readers.run(
            replay.replay_of, self._device.pk, feed_id, self.sent.get(feed_id), upto
        )
        rows = self._not_asked(missed.rows)
        if rows:
            session_id = await readers.run(notifications.session_of, feed_id)
            message = encode_replay(
                session_id or "", [row.frame for row in rows], complete=not missed.cut
            )
            self._receipts.buffer_sent(message.id, feed_id, missed.through, missed.cut)
            await self._outlet.send_in_turn(message.text)
            for row in rows:
                self._has_sent(row)
        elif missed.cut:
            await self._say([log_reader.Gap(feed_id, missed.cut)])
        if missed.through:
            self.sent[feed_id] = missed.through

    async def _send_backlog(self, positions: dict[int, int], upto: int) -> None:
        reader = log_reader.Reader(positions, upto)
        while page := await readers.run(reader.page):
            await self._say(page.gaps)
            await self._send_page(page.rows)

    async def _send_page(self, rows: Sequence[Row]) -> None:
        """At the pace of the socket, some rows at a time: in between, the live rows of other
        sockets have their turn.
        """
        start, rows = 0, self._not_asked(rows)
        while start < len(rows):
            some = rows[start : start + ROWS_AT_ONCE]
            count = self._outlet.send_at_once(some)
            for row in some[:count]:
                self._has_sent(row)
            if not count:
                await self._send_row(some[0])
            await asyncio.sleep(0)
            start += count or 1

    async def _say(self, gaps: Iterable[log_reader.Gap]) -> None:
        """Tell the device what it will never get, before anything that came later (D29)."""
        for found in gaps:
            if found.through <= self.sent.get(found.feed_id, 0):
                continue  # said before
            notice: Encoded = encode(
                notifications.gap(await readers.run(notifications.session_of, found.feed_id))
            )
            self._receipts.gap_said(notice.id, found.feed_id, found.through)
            await self._outlet.send_in_turn(notice.text)
            self.sent[found.feed_id] = found.through

    def _keep_up(self) -> bool:
        """Send the live rows that are at hand and fit; False where the task must go on, which can
        wait for the socket and read the log.
        """
        if self._joins:
            return False
        if self.live >= self._tail.head:
            return True
        rows = self._tail.after(self.live)
        if rows is None:
            return False
        wanted = self._not_asked([row for row in rows if self._is_due(row)])
        count = self._outlet.send_at_once(wanted) if wanted else 0
        for row in wanted[:count]:
            self._has_sent(row)
        if count < len(wanted):
            self.live = wanted[count].seq - 1
        elif rows:
            self.live = rows[-1].seq
        return self.live >= self._tail.head

    async def _send_live(self) -> None:
        """Up to the head of the log, unless a session is joined meanwhile: it shall not wait for a
        socket that never catches up.
        """
        while not self._keep_up():
            if self._joins:
                return self.wake()
            rows = self._tail.after(self.live)
            if rows is None:
                await self._read_live()
            else:
                await self._send_live_rows(rows[:1])
        return None

    async def _read_live(self) -> None:
        """What is not at hand, from the log; a join ends it."""
        upto = await readers.run(log_reader.head_seq)
        reader = log_reader.Reader(dict.fromkeys(self.feeds, self.live), upto)
        while page := await readers.run(reader.page):
            await self._say(gap for gap in page.gaps if gap.feed_id in self.feeds)
            await self._send_live_rows(page.rows)
            if self._joins:
                return
        self.live = max(self.live, upto)

    async def _send_live_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            # asked for each row: the session may be left in between
            if self._is_due(row) and self._not_asked([row]):
                await self._send_row(row)
            self.live = row.seq

    def _is_due(self, row: Row) -> bool:
        """Whether a live row is of a feed that this connection follows, and was not in a buffer
        that reached beyond ``live``.
        """
        return row.feed_id in self.feeds and row.seq > self.sent.get(row.feed_id, 0)

    def _not_asked(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Without the approvals that greeted the device."""
        return [row for row in rows if row.id not in self._asked] if self._asked else rows

    async def _send_row(self, row: Row) -> None:
        await self._outlet.send_in_turn(row.frame)
        self._has_sent(row)

    def _has_sent(self, row: Row) -> None:
        self.sent[row.feed_id] = row.seq
        if row.type == "approval_required":
            self._asked.add(row.id)
        metrics.deliveries.labels(row.type).inc()
