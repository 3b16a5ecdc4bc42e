"""The log stays as quick as it was: with a million rows, thousands of sessions, and a device that
has been away (D26 to D30).

No clock is asked here: what is counted is steps of the database, bytes of memory, and statements.
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
from sessions_app.log import cursors, retention
from sessions_app.log import reader as log_reader
from sessions_app.log.reader import Row
from sessions_app.log.tail import Tail
from sessions_app.models import Feed, LogRow
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
    positions = dict.fromkeys(log_reader.feeds_with_news({}, after), after)
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
    costs_the_same(retention.prune)


@on_sqlite
def test_acknowledging_costs_the_same_with_many_rows() -> None:
    phone = helpers.device()

    def acknowledge() -> None:
        newest = LogRow.objects.order_by("-seq")[:50]
        cursors.acknowledge(phone.pk, [row.message_id for row in newest])

    costs_the_same(acknowledge)


def test_nothing_reads_the_whole_log() -> None:
    fill(40, MANY)
    phone = helpers.device()
    with statements() as seen:
        helpers.post("one", count=3)
        upto = log_reader.head_seq()
        positions = log_reader.feeds_with_news({}, 0)
        reader = log_reader.Reader(positions, upto)
        ids = [row.id for _ in range(3) for row in (reader.page() or log_reader.Page([], [])).rows]
        newest = Feed.objects.order_by("-pk").values_list("pk", flat=True)[0]
        log_reader.Reader({newest: 0, Feed.ALL: 0}, upto).page()
        cursors.acknowledge(phone.pk, ids)
        cursors.prove(phone.pk, positions)
        log_reader.newest(upto - 10, 100, 2**20)
        retention.prune()
    assert sum(LOG in sql for sql, _ in seen) > 10
    assert whole_reads(seen) == []


def test_thousands_of_sessions_with_news_are_read_by_the_page() -> None:
    """Some statements for each of them is what a phone once waited seconds for."""
    fill(2_000, 4_000)
    positions, upto = log_reader.feeds_with_news({}, 0), log_reader.head_seq()
    with statements() as seen:
        pages = list(iter(log_reader.Reader(positions, upto).page, None))
    assert [row.seq for page in pages for row in page.rows] == list(range(1, 4_001))
    assert len(pages[0].rows) > 200 and len(seen) < 4_000 / 40


@on_sqlite
@pytest.mark.parametrize("sessions", [50, 2_000])
def test_memory_does_not_grow_with_the_rows_that_wait(sessions: int) -> None:
    """D30: what is held for one socket stays under 1 MB, whatever waits, and its positions."""
    fill(1, 5_000)
    fill(sessions, 5_000)
    positions, upto = log_reader.feeds_with_news({}, 0), log_reader.head_seq()
    # what is made only once has been made
    log_reader.Reader(dict(list(positions.items())[:3]), upto).page()
    tracemalloc.start()
    try:
        pages = iter(log_reader.Reader(positions, upto).page, None)
        assert sum(len(page.rows) for page in pages) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 2**20 + sessions * 300
    finally:
        tracemalloc.stop()


def test_the_list_of_sessions_never_touches_the_log_nor_recent_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GET /sessions is as quick with a million rows as with none."""
    monkeypatch.setattr(ratelimit, "conf", conf.model_copy(update={"bridge_rate_limits": "off"}))
    admin, counts = Api(conf.secret("admin_token")), []
    for sessions in (10, 40):
        fill(sessions, 200)
        with statements() as seen:
            assert admin.get("/api/v1/sessions").json()["total"] == sessions
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

    def send_rows(self, rows: Sequence[Row]) -> int:
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
