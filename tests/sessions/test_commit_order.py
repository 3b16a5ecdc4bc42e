"""Numbers in the order of commits (D26): whoever reads "the rows after my last" misses none. On
PostgreSQL too, where numbers taken before the commit would let 6 be seen while 5 is not.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from sessions_app.log import reader as log_reader
from sessions_app.models import Feed
from tests.servers import PATIENCE
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)

LATE = 0.3  # seconds in which a writer that nobody holds up has long committed


def write(session_id: str, before: Callable[[], object], written: Callable[[], object]) -> None:
    """Append a row, and commit when `written` returns, on a connection of this thread's own."""
    try:
        before()
        with transaction.atomic():
            helpers.post(session_id)
            written()
    finally:
        connection.close()


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_a_later_writer_waits_for_the_one_that_has_a_number(commits: bool) -> None:
    """It is there long before the first commits, and neither it nor its row gets past it."""
    feeds = [helpers.post(name).feed_id for name in ("one", "two")]
    begun = log_reader.head_seq()
    appended, go, trying = (threading.Event() for _ in range(3))

    def hold() -> None:
        appended.set()
        assert go.wait(PATIENCE)
        if not commits:
            raise InterruptedError

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(write, "one", lambda: None, hold)
        assert appended.wait(PATIENCE)
        second = pool.submit(write, "two", trying.set, lambda: None)
        assert trying.wait(PATIENCE)
        with pytest.raises(TimeoutError):
            second.result(LATE)
        positions = dict.fromkeys([*feeds, Feed.ALL], begun)
        assert log_reader.head_seq() == begun and not helpers.read_all(positions)
        go.set()
        second.result(PATIENCE)
    assert isinstance(first.exception(), InterruptedError) is not commits
    rows = helpers.read_all(positions)
    assert [row.feed_id for row in rows] == (feeds if commits else feeds[1:])
    assert [row.seq for row in rows] == list(range(begun + 1, begun + 1 + len(rows))), "no hole"
