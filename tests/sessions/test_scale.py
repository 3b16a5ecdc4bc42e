"""The log stays as quick as it was: with a million rows, thousands of sessions, and a device that
has been away (D26 to D30).

No clock is asked here: what is counted is statements, steps of the database and bytes of memory.
`make bench` measures times.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from bridge_project.http import ratelimit
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from devices_app.models import Device
from sessions_app.handlers import handshake
from sessions_app.log import cursors, retention
from sessions_app.log import reader as log_reader
from sessions_app.log.row import Row
from sessions_app.log.tail import Tail
from sessions_app.models import Cursor, Feed, LogRow
from sessions_app.socket import delivery
from tests.http.conftest import Api
from tests.performance.fill import fill
from tests.sessions import helpers
from tests.sessions.costs import LOG, statements, steps, whole_reads
from tests.sessions.test_delivery import Phone, connected, tail

__all__ = ["tail"]
pytestmark = pytest.mark.django_db(transaction=True)

on_sqlite = pytest.mark.skipif(
    connection.vendor != "sqlite", reason="one database is enough for what is counted here"
)
# rows; what grows with the log is twenty times as much, what goes through an index a little more
FEW, MANY = 500, 10_000


def read_page(after: int) -> None:
    positions = dict.fromkeys(log_reader.news({}, after), after)
    page = log_reader.Reader(positions, log_reader.head_seq()).page()
    assert page is not None and page.rows


def costs_the_same(work: Callable[[], object]) -> None:
    fill(10, FEW)
    before = steps(work)
    fill(10, MANY)
    assert steps(work) < 1.5 * before


@on_sqlite
def test_storing_an_event_costs_the_same_with_many_rows() -> None:
    costs_the_same(lambda: helpers.post("one"))


@on_sqlite
def test_reading_a_page_costs_the_same_with_many_rows() -> None:
    costs_the_same(lambda: read_page(log_reader.head_seq() - 100))


@on_sqlite
def test_looking_for_what_to_prune_costs_the_same_with_many_rows() -> None:
    costs_the_same(log_reader.prune)


@on_sqlite
def test_acknowledging_costs_the_same_with_many_rows() -> None:
    phone = helpers.device()

    def acknowledge() -> None:
        newest = LogRow.objects.order_by("-seq")[:50]
        cursors.acknowledge(phone.pk, [row.message_id for row in newest], {})

    costs_the_same(acknowledge)


@on_sqlite
def test_the_first_page_of_a_long_absence_costs_the_same_as_that_of_a_short_one() -> None:
    fill(1, 2_000)
    newest = log_reader.head_seq()
    short, long = (
        steps(lambda after=after: read_page(after))  # type: ignore[misc]
        for after in (newest - limits.PAGE_ROWS, 0)
    )
    assert long < 2.5 * short  # it looks ahead as far as there is something ahead


def test_nothing_reads_the_whole_log() -> None:
    fill(40, MANY)
    phone = helpers.device()
    with statements() as seen:
        helpers.post("one", count=3)
        upto = log_reader.head_seq()
        positions = delivery.positions_of(phone, None, {})
        reader = log_reader.Reader(positions, upto)
        ids = [row.id for _ in range(3) for row in (reader.page() or log_reader.Page([], [])).rows]
        newest = Feed.objects.order_by("-pk").values_list("pk", flat=True)[0]
        log_reader.Reader({newest: 0, Feed.ALL: 0}, upto).page()
        cursors.acknowledge(phone.pk, ids, {})
        cursors.prove(phone.pk, positions)
        retention.newest(upto - 10, 100, 2**20)
        log_reader.prune()
        handshake._active_sessions()
    assert sum(LOG in sql for sql, _ in seen) > 10
    assert whole_reads(seen) == []


def test_thousands_of_sessions_with_news_take_few_statements() -> None:
    """Five statements for each of them is what a phone once waited seconds for."""
    fill(2_000, 4_000)
    phone = helpers.device()
    with statements() as seen:
        upto = log_reader.head_seq()
        positions = delivery.positions_of(phone, None, {})
        reader = log_reader.Reader(positions, upto)
        first = reader.page()
    assert first is not None and len(first.rows) > 200
    assert len(seen) < 20
    with statements() as seen:
        rest = [row.seq for page in iter(reader.page, None) for row in page.rows]
    assert [row.seq for row in first.rows] + rest == list(range(1, 4_001))
    assert len(seen) < 4_000 / 40


@on_sqlite
def test_each_of_thousands_of_sessions_takes_few_steps() -> None:
    fill(2_000, 2_000)
    assert steps(lambda: read_page(0)) < 2_000 * 100


@on_sqlite
def test_memory_does_not_grow_with_the_rows_that_wait() -> None:
    """D30: what is held for one socket stays under 1 MB, whatever waits."""
    fill(1, 5_000)
    fill(50, 5_000)
    positions = log_reader.news({}, 0)
    assert _peak_of_reading(positions) < 2**20


@on_sqlite
def test_memory_for_thousands_of_sessions_is_some_hundred_bytes_each() -> None:
    fill(2_000, 6_000)
    positions = log_reader.news({}, 0)
    assert _peak_of_reading(positions) < 2**20 + 2_000 * 300


def _peak_of_reading(positions: dict[int, int]) -> int:
    # what is made only once has been made
    log_reader.Reader(dict(list(positions.items())[:3]), log_reader.head_seq()).page()
    tracemalloc.start()
    try:
        reader, rows = log_reader.Reader(positions, log_reader.head_seq()), 0
        while page := reader.page():
            rows += len(page.rows)
        assert rows == LogRow.objects.count()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_heartbeat_moves_thousands_of_cursors_in_few_statements() -> None:
    fill(1_000, 2_000)
    phone = helpers.device()
    sent = dict(Feed.objects.values_list("pk", "last_seq"))
    with statements() as seen:
        cursors.prove(phone.pk, sent)
    assert len(seen) < 1_000 / 10
    assert cursors.positions(phone) == sent
    with statements() as seen:
        cursors.prove(phone.pk, sent)
    assert not [sql for sql, _ in seen if not sql.startswith(("SELECT", "BEGIN", "COMMIT"))]


def test_acknowledging_thousands_of_sessions_takes_few_statements() -> None:
    fill(1_000, 2_000)
    phone = helpers.device()
    ids = list(LogRow.objects.values_list("message_id", flat=True))
    with statements() as seen:
        cursors.acknowledge(phone.pk, ids, {})
    assert len(seen) < 1_000 / 10
    assert cursors.positions(phone) == dict(Feed.objects.values_list("pk", "last_seq"))
    assert not Cursor.objects.exclude(ahead=[]).exists()


def test_the_lists_of_sessions_never_touch_the_log_nor_recent_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GET /sessions and connection_ack are as quick with a million rows as with none."""
    monkeypatch.setattr(ratelimit, "conf", conf.model_copy(update={"bridge_rate_limits": "off"}))
    admin, counts = Api(conf.secret("admin_token")), []
    for sessions in (10, 40):
        fill(sessions, 200)
        with statements() as seen:
            assert admin.get("/api/v1/sessions").json()["total"] == sessions
            assert len(handshake._active_sessions()) == sessions
        assert not [sql for sql, _ in seen if LOG in sql or "recent_events" in sql]
        counts.append(len(seen))
    assert counts[0] == counts[1]


class Greedy(Phone):
    """Takes all it is given, and notes in which turn of the event loop."""

    def __init__(self, tail: Tail, device: Device, upto: int) -> None:
        super().__init__(tail, device, upto)
        self.turn = 0
        self.rows: Counter[int] = Counter()
        self.ticking = asyncio.create_task(self.tick())

    async def tick(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    def send_at_once(self, rows: Sequence[Row]) -> int:
        self.rows[self.turn] += len(rows)
        self.changed.set()
        return len(rows)


async def test_a_backlog_leaves_turns_of_the_event_loop_to_the_others(tail: Tail) -> None:
    """Live events of other sockets wait for no more than some rows of it."""
    await sync_to_async(fill)(3, 2_000)
    client = await connected(tail, await sync_to_async(helpers.device)(), Greedy)
    await client.until(lambda: client.rows.total() == 2_000)
    client.ticking.cancel()
    assert max(client.rows.values()) <= delivery.ROWS_AT_ONCE < limits.PAGE_ROWS
