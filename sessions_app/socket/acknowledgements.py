"""What one connection learns about what its device has received, written behind the conversation
(D27).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

import structlog
from django.db import InterfaceError, OperationalError

from bridge_project.kernel import limits
from bridge_project.kernel.threads import writers
from sessions_app.log import cursors

log = structlog.get_logger("bridge.receipts")

SNAPSHOT_EVERY_SECONDS = 1.0
FLUSH_SECONDS = 3.0


class Receipts:
    """Collects acknowledgements and heartbeats; one writer at a time turns all that came meanwhile
    into one transaction.
    """

    def __init__(self, device_id: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._device_id = device_id
        self._clock = clock
        self._acked: set[str] = set()
        self._proven: dict[int, int] = {}
        self._known_gaps: dict[int, int] = {}
        self._gap_notices: dict[str, tuple[int, int]] = {}
        # feed → the newest row that a notice on this connection said to be gone
        self._said: dict[int, int] = {}
        # when, and what had been sent since the one before
        self._pongs: deque[tuple[float, dict[int, int]]] = deque()
        self._noted: dict[int, int] = {}
        self._writer: asyncio.Task[None] | None = None

    def gap_said(self, message_id: str, feed_id: int, through: int) -> None:
        """A notice about rows that are gone was sent; its acknowledgement moves the feed's cursor
        past them.
        """
        self._gap_notices[message_id] = (feed_id, through)
        self._said[feed_id] = through

    def buffer_sent(self, message_id: str, feed_id: int, through: int, cut: int) -> None:
        """A ``replay_buffer`` was sent: its acknowledgement is one of all rows up to ``through``;
        those up to ``cut`` it said to be gone (0: none).
        """
        self._gap_notices[message_id] = (feed_id, through)
        if cut:
            self._said[feed_id] = cut

    def acknowledged(self, message_ids: Iterable[str]) -> None:
        for message_id in message_ids:
            if notice := self._gap_notices.pop(message_id, None):
                self._known_gaps[notice[0]] = max(notice[1], self._known_gaps.get(notice[0], 0))
            else:
                self._acked.add(message_id)
        self._write()

    def ping(self, sent: dict[int, int]) -> None:
        """A heartbeat came and is answered now; ``sent``: feed → newest row sent so far, a dict of
        the caller's that stays as it is.

        It proves what was sent before the pong of a ping at least PONG_WAIT_SECONDS older.
        """
        now, proven = self._clock(), False
        while self._pongs and self._pongs[0][0] <= now - limits.PONG_WAIT_SECONDS:
            self._proven.update(self._pongs.popleft()[1])
            proven = True
        if not self._pongs or self._pongs[-1][0] <= now - SNAPSHOT_EVERY_SECONDS:
            self._pongs.append(
                (
                    now,
                    {
                        feed_id: seq
                        for feed_id, seq in sent.items()
                        if self._noted.get(feed_id) != seq
                    },
                )
            )
            self._noted = sent
        if proven:
            self._write()

    def _write(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())

    async def _write_all(self) -> None:
        while self._acked or self._proven or self._known_gaps:
            acked, proven, gaps = self._acked, self._proven, self._known_gaps
            self._acked, self._proven, self._known_gaps = set(), {}, {}
            try:
                if acked or gaps:
                    await writers.run(
                        cursors.acknowledge, self._device_id, acked, gaps, dict(self._said)
                    )
                if proven:
                    await writers.run(cursors.prove, self._device_id, proven)
            except (OperationalError, InterfaceError) as error:
                # the database is away: nothing that was learnt is forgotten
                log.warning(
                    "receipts_wait_for_database",
                    device=self._device_id,
                    error=error.__class__.__name__,
                )
                self._acked |= acked
                self._proven = proven | self._proven
                self._known_gaps = gaps | self._known_gaps
                await asyncio.sleep(limits.POLL_SECONDS)

    async def flush(self) -> None:
        """Return when everything learnt so far is stored, or cannot be soon: then these rows are
        sent again, which is at least once.
        """
        if self._writer is not None:
            done, _ = await asyncio.wait({self._writer}, timeout=FLUSH_SECONDS)
            if not done:
                self._writer.cancel()
