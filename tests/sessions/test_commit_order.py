"""Numbers in the order of commits (D26), with real connections: whoever reads "the rows after my
last" misses none, however late a writer commits.

`test_on_postgresql.py` runs this on PostgreSQL too, where numbers that are taken before the commit
would let 6 be seen while 5 is not.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest
from django.db import connection, transaction

from sessions_app.log import reader as log_reader
from sessions_app.log.reader import Row
from sessions_app.models import Feed
from tests.servers import PATIENCE
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)

T = TypeVar("T")
WRITERS, ROUNDS, READERS = 5, 12, 3
LATE = 0.3  # seconds in which a writer that nobody holds up has long committed


class Crowd:
    """Threads, each with a database connection of its own."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def run(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        return self._pool.submit(self._with_connection, work, *arguments)

    @staticmethod
    def _with_connection(work: Callable[..., T], *arguments: object) -> T:
        try:
            return work(*arguments)
        finally:
            connection.close()


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    with ThreadPoolExecutor(WRITERS + READERS) as pool:
        yield Crowd(pool)


@pytest.fixture
def feeds() -> list[int]:
    """The feeds of two sessions, and the one for all."""
    return [helpers.post(name).feed_id for name in ("one", "two")] + [Feed.ALL]


class Refused(Exception):
    """A writer that thought better of it."""


def write(session_id: str, written: Callable[[], object], *, commit: bool = True) -> None:
    """Append a row, then commit, or roll back, when `written` returns."""
    try:
        with transaction.atomic():
            helpers.post(session_id)
            written()
            if not commit:
                raise Refused
    except Refused:
        pass


class Reader:
    """Reads "the rows after my last", as a socket that no bell wakes does."""

    def __init__(self, feeds: list[int]) -> None:
        self.feeds = feeds
        self.last = self.first = log_reader.head_seq()
        self.seen: list[int] = []

    def poll(self) -> list[Row]:
        """What is new; the log's numbers have no holes, so a row that is not the next one has come
        before another.
        """
        upto = log_reader.head_seq()
        rows = helpers.read_all(dict.fromkeys(self.feeds, self.last), upto)
        for row in rows:
            assert row.seq == self.last + 1, f"row {row.seq} was visible before row {self.last + 1}"
            self.last = row.seq
            self.seen.append(row.seq)
        assert self.last == upto, f"the head stood at {upto}, and only {self.last} was visible"
        return rows

    def poll_until(self, done: threading.Event) -> list[int]:
        while not done.is_set():
            self.poll()
        self.poll()
        return self.seen


def test_a_later_writer_waits_for_the_one_that_has_a_number(crowd: Crowd, feeds: list[int]) -> None:
    """The first appends and commits late. The second is there long before, and neither it nor its
    row gets past the first.
    """
    reader, appended, go, trying = (
        Reader(feeds),
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )

    def hold() -> None:
        appended.set()
        assert go.wait(PATIENCE)

    def follow() -> None:
        trying.set()
        write("two", lambda: None)

    first = crowd.run(write, "one", hold)
    assert appended.wait(PATIENCE)
    second = crowd.run(follow)
    assert trying.wait(PATIENCE)
    with pytest.raises(TimeoutError):
        second.result(LATE)
    assert not reader.poll()
    go.set()
    first.result(PATIENCE)
    second.result(PATIENCE)
    assert [row.feed_id for row in reader.poll()] == feeds[:2], "the first one's row is the first"


def test_readers_beside_many_late_writers_miss_nothing(crowd: Crowd, feeds: list[int]) -> None:
    """Writers of two sessions hold their transactions open for a moment after appending, some roll
    back; every reader sees every row, in order, without a hole.
    """
    begun = log_reader.head_seq()
    done = threading.Event()
    readers = [crowd.run(Reader(feeds).poll_until, done) for _ in range(READERS)]

    def work(number: int) -> int:
        chance, committed = random.Random(number), 0
        for _ in range(ROUNDS):
            commits, pause = chance.random() < 0.8, chance.random() * 0.008
            write(
                chance.choice(["one", "two"]),
                lambda pause=pause: threading.Event().wait(pause),  # type: ignore[misc]
                commit=commits,
            )
            committed += commits
        return committed

    writers = [crowd.run(work, number) for number in range(WRITERS)]
    try:
        committed = sum(writer.result(PATIENCE) for writer in writers)
    finally:
        done.set()
    for reader in readers:
        assert reader.result(PATIENCE) == list(range(begun + 1, begun + 1 + committed))
