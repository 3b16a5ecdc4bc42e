"""Send a connection its device's log rows, once and in order (D26 to D28)."""

import asyncio
from collections import Counter
from collections.abc import Collection, Container, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from bridge_project.http.asgi_types import ClientSocket
from bridge_project.kernel import metrics
from bridge_project.kernel.threads import readers
from bridge_project.protocol import jsontext
from bridge_project.protocol.catalogue import encode, encode_replay
from devices_app.models import Device
from sessions_app import notifications
from sessions_app.agents import history
from sessions_app.approvals import decisions
from sessions_app.log import cursors, reader
from sessions_app.log.reader import Page, Row
from sessions_app.log.tail import tail
from sessions_app.models import Feed
from sessions_app.socket.acknowledgements import Acknowledgements

# rows sent in one turn of the event loop; between turns other sockets get their live rows
ROWS_AT_ONCE = 64
# more missed rows than these on connecting go in pages, after what waits for a person
FEW_ROWS = 1000
# pages of missed rows on their way to a client that acknowledges, and for how long they are waited
# for: since the last acknowledgement, or until the first one
PAGES_AT_ONCE = 2
ACK_SECONDS, FIRST_ACK_SECONDS = 1.0, 2.0

_delivered = cache(metrics.deliveries.labels)


class Receiver(Protocol):
    """Describe what a Delivery needs of the ClientConnection to which it sends."""

    over: bool
    socket: ClientSocket

    async def send_in_turn(self, text: str) -> None: ...

    async def leave_ended(self, frame: str) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, object]) -> None: ...


@dataclass(slots=True, eq=False)
class Missed:
    """Hold rows that are to be sent; ``feed``: the one that is joined with them."""

    log: reader.Reader
    feeds: Container[int]
    feed: int | None = None


class Delivery:
    """Send log rows on a ClientConnection; only `replay_request` sends others.

    ``sent`` is the newest row sent of each feed. ``live`` is the row up to which every feed in
    ``feeds`` has been sent: from there on one number stands for all of them. Missed rows go in
    pages, live ones between them: a client that acknowledges has taken a page before the next one
    goes, so that little lies between it and what happens now.
    """

    def __init__(
        self, device: Device, connection: Receiver, acknowledgements: Acknowledgements
    ) -> None:
        self._device = device
        self._connection = connection
        self._acknowledgements = acknowledgements
        self._wake = asyncio.Event()
        self._idle = False
        # feed id → last row to include in the replay_buffer, or None to send rows one by one; and
        # whether this client has just resumed the session
        self._joins: dict[int, tuple[int | None, bool]] = {}
        self._missed: list[Missed] = []
        self._newest = ""  # id of the row that was sent last
        self._awaited: list[str] = []  # the last row of each page that is not acknowledged yet
        self._acknowledges: bool | None = None  # such rows; None: not known yet
        # message ids of pending approvals sent on connecting, whose rows are not sent again
        self._asked: set[str] = set()
        self._connecting = True
        # row's message id → id of this client's request that it answers
        self.answers: dict[str, str] = {}
        # ids of rows not to send: an answer told the client the same
        self.withheld: set[str] = set()
        self.sent: dict[int, int] = {}
        self.feeds: set[int] = set()
        self.live = 0

    def wake(self) -> None:
        """Send new rows at once if the socket keeps up, else wake the task."""
        if not (self._idle and self._send_from_memory()):
            self._wake.set()

    def join(self, feed_id: int, *, buffer_upto: int | None = None, resumed: bool = False) -> None:
        """Send the feed's backlog, then its live rows.

        ``buffer_upto``: missed rows up to this one are sent in one ``replay_buffer``. It is the
        log's head from before the client was told that it has joined. ``resumed``: the client has
        just resumed the session, so discarded rows are reported even if it had got them (D60).
        """
        self._joins.setdefault(feed_id, (buffer_upto, resumed))
        self.wake()

    def leave(self, feed_id: int) -> None:
        self.feeds.discard(feed_id)
        self._joins.pop(feed_id, None)
        self._missed = [one for one in self._missed if one.feed != feed_id]

    def acknowledged(self, message_ids: Collection[str]) -> None:
        """Go on with missed rows once the client has taken those before."""
        if self._awaited:
            left = [one for one in self._awaited if one not in message_ids]
            self._acknowledges = self._acknowledges or left != self._awaited
            self._awaited = left
            self._wake.set()

    async def run(self, upto: int) -> None:
        """Deliver until cancelled; wait while the database is away.

        ``upto``: the head of the log before the client was told that it is connected. Whatever is
        later is live.
        """
        positions = await readers.retry(self._positions)
        log = reader.Reader(positions, upto)
        if await readers.retry(log.exceeds, FEW_ROWS):
            self._missed = [Missed(log, positions)]
            self.join(Feed.ALL)
        while not self._missed and (page := await readers.retry(log.page)):
            await self._send_page(page, positions)
        await self._send_pending(upto)
        self._connecting = False
        self.live = upto
        if not self._missed:
            self.feeds.add(Feed.ALL)
        while True:
            self._wake.clear()
            if self._joins:
                feed_id, (buffer_upto, resumed) = next(iter(self._joins.items()))
                await self._join(feed_id, buffer_upto, resumed)
            elif self._send_from_memory():
                if self._missed and len(self._awaited) < PAGES_AT_ONCE:
                    last_joined = reversed(self._missed)
                    await self._go_on(max(last_joined, key=lambda one: one.feed == Feed.ALL))
                else:
                    await self._rest()
            elif (rows := tail.after(self.live)) is not None:  # at the pace of the socket
                await self._send_page(Page(rows, {}), self.feeds)
                self.live = rows[-1].seq
            else:
                await self._send_from_log()

    async def _rest(self) -> None:
        """Wait until there is something to send."""
        seconds = ACK_SECONDS if self._acknowledges else FIRST_ACK_SECONDS
        self._idle = True
        try:
            async with asyncio.timeout(seconds if self._missed else None):
                await self._wake.wait()
        except TimeoutError:
            self._awaited.clear()
            self._acknowledges = bool(self._acknowledges)
        finally:
            self._idle = False

    async def _send_pending(self, upto: int) -> None:
        """Send every approval that waits, also those that were sent before (D28)."""
        for key in await readers.retry(decisions.pending_calls):
            found = await readers.retry(decisions.pending_frame, key, upto)
            if found is not None and found[0] not in self._asked:
                self._asked.add(found[0])
                await self._connection.send_in_turn(found[1])

    # -- live rows ---------------------------------------------------------------------------------

    def _send_from_memory(self) -> bool:
        """Send the next live rows that the tail has and the socket has room for.

        False when that is not all: somebody joins, the log must be read, or the socket is full.
        """
        if self._joins:
            return False
        if self.live < tail.head and (rows := tail.after(self.live)) is not None:
            due = [row for row in rows if self._is_due(row, self.feeds)]
            count = self._send(due)
            self.live = due[count].seq - 1 if count < len(due) else rows[-1].seq
        return self.live >= tail.head

    async def _send_from_log(self) -> None:
        """Send live rows that the tail does not have any more, unless somebody joins."""
        upto = await readers.retry(reader.head_seq)
        log = reader.Reader(dict.fromkeys(self.feeds, self.live), upto)
        while not self._joins and (page := await readers.retry(log.page)):
            await self._send_page(page, self.feeds)
            self.live = log.position

    # -- missed rows -------------------------------------------------------------------------------

    def _positions(self, feed_id: int | None = None) -> dict[int, int]:
        """Return feed id → row after which its backlog begins: of one feed, or of all."""
        start = cursors.start_of(self._device)
        if feed_id is None:
            return reader.feeds_with_news(cursors.positions(self._device) | self.sent, start)
        position = self.sent.get(feed_id)
        if position is None:
            position = cursors.positions(self._device, feed_id).get(feed_id, start)
        return {feed_id: position}

    async def _go_on(self, missed: Missed) -> None:
        """Send the next page of missed rows; after the last one its feed is live.

        What came meanwhile is then sent as live rows are, in their order: of other feeds none is
        due again.
        """
        page = await readers.retry(missed.log.page)
        if missed not in self._missed:  # it has been left meanwhile
            return
        if page is not None:
            before = self._newest
            await self._send_page(page, missed.feeds)
            if self._newest != before and self._acknowledges is not False:
                self._awaited.append(self._newest)
            if not missed.log.ended or missed not in self._missed:
                return
        if missed.feed is not None and self.live - missed.log.upto > FEW_ROWS:
            positions = await readers.retry(self._positions, missed.feed)
            missed.log = reader.Reader(positions, self.live)
            return
        self._missed.remove(missed)
        if missed.feed is not None:
            self.feeds.add(missed.feed)
            self.live = min(self.live, missed.log.upto)

    async def _join(self, feed_id: int, buffer_upto: int | None, resumed: bool) -> None:
        """Send what a client that joins has missed, an observed session in pages."""
        if feed_id not in self.feeds or resumed:
            if buffer_upto is not None:
                await self._send_buffer(feed_id, buffer_upto, resumed)
            if buffer_upto is None or buffer_upto < self.live:
                log = reader.Reader(await readers.retry(self._positions, feed_id), self.live)
                if feed_id in self._joins:  # it has not been left meanwhile
                    del self._joins[feed_id]
                    self._missed = [one for one in self._missed if one.feed != feed_id]
                    self._missed.append(Missed(log, (feed_id,), feed_id))
                return
        if feed_id in self._joins:
            del self._joins[feed_id]
            self.feeds.add(feed_id)

    async def _send_buffer(self, feed_id: int, upto: int, resumed: bool) -> None:
        """Send a session's missed rows, if there are any, in one ``replay_buffer`` (D28).

        Before it comes the agent's own record of rows that the log has lost (D60).
        """
        about = (self._device.pk, feed_id, self.sent.get(feed_id), upto)
        missed = await readers.retry(reader.missed, *about, whole=resumed)
        rows = [row for row in missed.rows if row.id not in self._asked]
        session_id = await readers.retry(notifications.session_of, feed_id) or ""
        frames: list[str] = []
        if missed.lost:
            frames = await readers.retry(history.frames_of, feed_id, missed.rows)
        elif resumed or feed_id not in self.sent:
            frames = await readers.retry(history.frames_before, feed_id)
        if frames:
            message = encode_replay(session_id, frames, complete=False, source="agent")
            await self._connection.send_in_turn(message.text)
        if rows or missed.cut or missed.lost:
            complete = not (missed.cut or missed.lost)
            frames = [row.frame for row in rows]
            message = encode_replay(session_id, frames, complete=complete, older=missed.older)
            self._acknowledgements.sent_summary(message.id, feed_id, missed.through, missed.cut)
            await self._connection.send_in_turn(message.text)
            self._have_sent(rows)
        if missed.through:
            self.sent[feed_id] = missed.through

    # -- sending -----------------------------------------------------------------------------------

    async def _send_page(self, page: Page, feeds: Container[int]) -> None:
        """Send a page's gaps and rows, of these feeds, at the pace of the socket."""
        for feed_id, through in page.gaps.items():
            if feed_id in feeds and through > self.sent.get(feed_id, 0):
                await self._announce_gap(feed_id, through)
        for some in cursors.batched(page.rows, ROWS_AT_ONCE):
            due = [row for row in some if self._is_due(row, feeds)]
            while due:
                if count := self._send(due):
                    due = due[count:]
                else:
                    await self._connection.send_in_turn(self._answering(due[0]).frame)
                    self._have_sent(due[:1])
                    # a session may have been left meanwhile
                    due = [row for row in due if self._is_due(row, feeds)]
            await asyncio.sleep(0)

    async def _announce_gap(self, feed_id: int, through: int) -> None:
        """Tell the device which rows it will never get, before sending later ones (D29)."""
        session_id = await readers.retry(notifications.session_of, feed_id)
        notice = encode(notifications.gap(session_id))
        self._acknowledgements.sent_summary(notice.id, feed_id, through, gap=through)
        await self._connection.send_in_turn(notice.text)
        self.sent[feed_id] = through

    def _is_due(self, row: Row, feeds: Container[int]) -> bool:
        """Return whether a row of these feeds has not been sent in any form."""
        return (
            row.feed_id in feeds
            and row.seq > self.sent.get(row.feed_id, 0)
            and row.id not in self._asked
            and row.id not in self.withheld
        )

    def _send(self, rows: Sequence[Row]) -> int:
        """Send as many rows as there is room for, all to a closed one; return how many."""
        rows = [self._answering(row) for row in rows] if self.answers else rows
        to, frames = self._connection, [row.wire for row in rows]
        count = len(rows) if to.over else to.socket.send_frames(frames)
        self._have_sent(rows[:count])
        return count

    def _answering(self, row: Row) -> Row:
        """Return a row under its request's id if it answers one: it is sent only once."""
        request = self.answers.get(row.id)
        if request is None:
            return row
        own = jsontext.dumps_unicode(request)  # a frame begins with type and id
        return replace(row, frame=row.frame.replace(f'"{row.id}"', own, 1))

    def _have_sent(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.sent[row.feed_id], self._newest = row.seq, row.id
            if request := self.answers.pop(row.id, None):
                self._acknowledgements.sent_answer(request, row.id)
            if row.type == "session_end":
                self._connection.spawn(self._connection.leave_ended(row.frame))
            if row.type == "approval_required" and self._connecting:
                self._asked.add(row.id)  # from now on, ``sent`` tells
        for type_, count in Counter(row.type for row in rows).items():
            _delivered(type_).inc(count)
