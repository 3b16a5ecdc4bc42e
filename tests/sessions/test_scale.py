"""The log stays as quick as it was, with many rows and sessions, and a device that has been away
(D26 to D30). No clock is asked: what is counted is steps of the database and bytes of memory.
`make bench` measures times.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from django.db import connection

from bridge_project.http import ratelimit
from bridge_project.kernel.config import conf
from sessions_app.log import cursors, retention
from sessions_app.log import reader as log_reader
from sessions_app.models import LogRow
from tests.http.conftest import Api
from tests.performance.fill import fill
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)

on_sqlite = pytest.mark.skipif(
    connection.vendor != "sqlite", reason="one database is enough for what is counted here"
)
# rows; what grows with the log is twenty times as much, what goes through an index a little more
FEW, MANY = 500, 10_000
GRAIN = 10  # SQLite reports every so many steps


def steps(work: Callable[[], object]) -> int:
    """How many steps of SQLite's machine a piece of work takes; run before once, so that nothing
    has to be prepared.
    """
    work()
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += GRAIN
        return 0

    connection.connection.set_progress_handler(count, GRAIN)
    try:
        work()
    finally:
        connection.connection.set_progress_handler(None, 0)
    return taken


@on_sqlite
def test_what_is_done_costs_the_same_with_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storing, reading a page, listing the sessions, looking for what to prune, acknowledging."""
    monkeypatch.setattr(ratelimit, "conf", conf.model_copy(update={"bridge_rate_limits": "off"}))
    phone, admin = helpers.device(), Api(conf.secret("admin_token"))

    def read() -> None:
        after = log_reader.head_seq() - 100
        positions = dict.fromkeys(log_reader.feeds_with_news({}, after), after)
        page = log_reader.Reader(positions, log_reader.head_seq()).page()
        assert page is not None and page.rows

    def acknowledge() -> None:
        newest = LogRow.objects.order_by("-seq")[:50]
        cursors.acknowledge(phone.pk, [row.message_id for row in newest])

    works: dict[str, Callable[[], object]] = {
        "store": lambda: helpers.post("one"),
        "read": read,
        "list": lambda: admin.get("/api/v1/sessions").json(),
        "prune": retention.prune,
        "acknowledge": acknowledge,
    }
    fill(10, FEW)
    before = {name: steps(work) for name, work in works.items()}
    fill(10, MANY)
    after = {name: steps(work) for name, work in works.items()}
    assert {name for name in works if after[name] >= 1.5 * before[name]} == set(), (before, after)


def test_thousands_of_sessions_with_news_are_read_by_the_page() -> None:
    fill(2_000, 4_000)
    positions, upto = log_reader.feeds_with_news({}, 0), log_reader.head_seq()
    pages = list(iter(log_reader.Reader(positions, upto).page, None))
    assert [row.seq for page in pages for row in page.rows] == list(range(1, 4_001))
    assert len(pages[0].rows) > 200, "what each session cost once a phone waited seconds for"


@on_sqlite
def test_memory_does_not_grow_with_the_rows_that_wait() -> None:
    """D30: what is held for one socket stays under 1 MB, whatever waits, and its positions."""
    sessions = 500
    fill(1, 2_000)
    fill(sessions, 2_000)
    positions, upto = log_reader.feeds_with_news({}, 0), log_reader.head_seq()
    # what is made only once has been made
    log_reader.Reader(dict(list(positions.items())[:3]), upto).page()
    tracemalloc.start()
    try:
        pages = iter(log_reader.Reader(positions, upto).page, None)
        assert sum(len(page.rows) for page in pages) == 4_000
        assert tracemalloc.get_traced_memory()[1] < 2**20 + sessions * 300
    finally:
        tracemalloc.stop()
