"""Store which rows a device received, by acknowledgements and heartbeats (D27)."""

import asyncio
import time
from collections.abc import Iterable

from bridge_project.kernel import limits
from bridge_project.kernel.threads import writers
from bridge_project.protocol.types import is_uuid
from sessions_app.log import cursors

SNAPSHOT_EVERY_SECONDS = 1.0
FLUSH_SECONDS = 3.0
ANSWERS_REMEMBERED = 100  # that were not acknowledged: one is that a session ended


class Acknowledgements:
    """Collect one connection's acknowledgements; one writer at a time stores them."""

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        # message that is no row of the log → feed, and the feed's last row that it acknowledges
        self._summaries: dict[str, tuple[int, int]] = {}
        # id of a request that a row answered → the row's own
        self._answers: dict[str, str] = {}
        # feed → the newest discarded row that this connection was told of
        self._gaps: dict[int, int] = {}
        # received and not stored yet: message ids; feed → row, by a summary; by heartbeats
        self._acked: set[str] = set()
        self._answered: set[str] = set()
        self._through: dict[int, int] = {}
        self._proven: dict[int, int] = {}
        # when each pong was sent, and the rows sent since the pong before
        self._pongs: list[tuple[float, dict[int, int]]] = []
        self._noted: dict[int, int] = {}
        self._writer: asyncio.Task[None] | None = None

    def sent_summary(self, message_id: str, feed_id: int, through: int, gap: int) -> None:
        """Note that acknowledging this message acknowledges rows up to ``through``.

        It is a ``replay_buffer``, or a gap notice. ``gap``: the newest discarded row that it
        reports (0: none).
        """
        self._summaries[message_id] = (feed_id, through)
        if gap:
            self._gaps[feed_id] = gap

    def sent_answer(self, request_id: str, row_id: str) -> None:
        """Note that a row was sent as an answer, under the request's id."""
        self._answers[request_id.lower()] = row_id
        if len(self._answers) > ANSWERS_REMEMBERED:
            del self._answers[next(iter(self._answers))]  # its row is sent again

    def acknowledged(self, message_ids: Iterable[str]) -> None:
        # some clients print a UUID in capitals
        for message_id in map(str.lower, message_ids):
            if message_id in self._summaries:
                feed_id, through = self._summaries.pop(message_id)
                self._through[feed_id] = max(through, self._through.get(feed_id, 0))
            elif is_uuid(row_id := self._answers.pop(message_id, message_id)):  # as each row's is
                self._acked.add(row_id)
        self._write()

    async def wait_for_room(self) -> None:
        """Wait while too much is not stored yet: a client is not read meanwhile."""
        # a writer that has ended makes no room
        while len(self._acked) > limits.ACK_MAX_IDS and self._writer and not self._writer.done():
            await asyncio.wait({self._writer})

    def answered(self, row_id: str) -> None:
        """Count a row as received: the client already has its content from an answer."""
        self._answered.add(row_id)
        self._write()

    def ping(self, sent: dict[int, int]) -> None:
        """Take a ping as proof that rows sent before an older ping's pong have arrived.

        Only pongs at least PONG_WAIT_SECONDS old count. ``sent``: feed → newest row sent before
        this ping's pong.
        """
        now = time.monotonic()
        while self._pongs and self._pongs[0][0] <= now - limits.PONG_WAIT_SECONDS:
            self._proven.update(self._pongs.pop(0)[1])
        if not self._pongs or self._pongs[-1][0] <= now - SNAPSHOT_EVERY_SECONDS:
            new = {feed: seq for feed, seq in sent.items() if self._noted.get(feed) != seq}
            self._pongs.append((now, new))
            self._noted = sent
        if self._proven:
            self._write()

    def _write(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())

    async def _write_all(self) -> None:
        while self._acked or self._answered or self._proven or self._through:
            acked, answered, self._acked, self._answered = self._acked, self._answered, set(), set()
            through, proven, self._through, self._proven = self._through, self._proven, {}, {}
            if acked or answered or through:
                gaps = dict(self._gaps)
                await writers.retry(
                    cursors.acknowledge, self._device_id, acked, through, gaps, answered
                )
            if proven:
                await writers.retry(cursors.advance, self._device_id, proven)

    async def flush(self) -> None:
        """Wait until all acknowledgements are stored, for at most FLUSH_SECONDS.

        The database may be away.
        """
        if self._writer is not None:
            done, _ = await asyncio.wait({self._writer}, timeout=FLUSH_SECONDS)
            if not done:
                self._writer.cancel()
