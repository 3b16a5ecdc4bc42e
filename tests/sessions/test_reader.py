"""The reader beside a model that anyone can check: whatever the feeds, positions and page sizes,
each row once and in order, or said to be gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge_project.kernel import limits
from sessions_app.log import reader as log_reader
from sessions_app.log import retention
from sessions_app.models import Feed, LogRow, Session
from tests.sessions import helpers
from tests.sessions.test_log import set_conf

pytestmark = pytest.mark.django_db(transaction=True)
generously = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass
class Case:
    """``posts``: whose event comes next; ``read``: how many rows each session's position is into
    the log; ``expired``: how many of its oldest are too old.
    """

    posts: list[int]
    read: list[int]
    expired: list[int]
    most: int
    page_rows: int
    page_bytes: int
    few_feeds: int
    ahead_feeds: int
    upto: int


SESSIONS = 6
cases = st.builds(
    Case,
    posts=st.lists(st.integers(0, SESSIONS - 1), min_size=1, max_size=40),
    read=st.lists(st.integers(0, 45), min_size=SESSIONS, max_size=SESSIONS),
    expired=st.lists(st.integers(0, 8), min_size=SESSIONS, max_size=SESSIONS),
    most=st.sampled_from([2, 5, 100]),
    page_rows=st.sampled_from([1, 2, 7, 100]),
    page_bytes=st.sampled_from([1, 2_000, 100_000]),
    few_feeds=st.sampled_from([0, 2, 16]),
    ahead_feeds=st.sampled_from([1, 3, 250]),
    upto=st.integers(1, 60),
)


class World:
    """The log that a case describes: feed → its rows, in order, and those that the bounds still
    keep.
    """

    def __init__(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        for model in (LogRow, Session, Feed):
            model._default_manager.all().delete()
        set_conf(monkeypatch, "bridge_queue_max", 1_000_000)
        monkeypatch.setattr(limits, "PAGE_ROWS", case.page_rows)
        monkeypatch.setattr(limits, "PAGE_BYTES", case.page_bytes)
        monkeypatch.setattr(retention, "FEW_FEEDS", case.few_feeds)
        monkeypatch.setattr(log_reader, "AHEAD_FEEDS", case.ahead_feeds)
        before = log_reader.head_seq()
        helpers.store(
            *[helpers.event(f"s{number}", prompt="x" * (number * 50)) for number in case.posts]
        )
        self.rows: dict[int, list[int]] = {}
        for seq, feed_id in LogRow.objects.order_by("seq").values_list("seq", "feed_id"):
            self.rows.setdefault(feed_id, []).append(seq)
        self.positions: dict[int, int] = {}
        self.expired: dict[int, int] = {}
        for number, feed_id in enumerate(sorted(self.rows)):
            self.positions[feed_id] = before + case.read[number % SESSIONS]
            self.expire(feed_id, case.expired[number % SESSIONS])
        set_conf(monkeypatch, "bridge_queue_max", case.most)
        self.most = case.most
        self.upto = before + case.upto

    def expire(self, feed_id: int, count: int) -> None:
        """The oldest rows of a feed become too old."""
        self.expired[feed_id] = max(count, self.expired.get(feed_id, 0))
        LogRow.objects.filter(seq__in=self.rows[feed_id][:count]).update(
            created_at=timezone.now() - timedelta(days=9)
        )

    def wanted(self, feed_id: int) -> list[int]:
        return [seq for seq in self.rows[feed_id] if self.positions[feed_id] < seq <= self.upto]

    def kept(self, feed_id: int) -> list[int]:
        there = self.rows[feed_id][self.expired[feed_id] :]
        return [
            seq
            for seq in there
            if seq in self.rows[feed_id][-self.most :] and seq in self.wanted(feed_id)
        ]

    def lost(self, feed_id: int) -> list[int]:
        return sorted(set(self.wanted(feed_id)) - set(self.kept(feed_id)))


def told(pages: Iterator[log_reader.Page]) -> list[tuple[int, int, bool]]:
    """(feed, row, whether it is a gap up to there) as a device gets them."""
    said = []
    for page in pages:
        said += [(gap.feed_id, gap.through, True) for gap in page.gaps]
        said += [(row.feed_id, row.seq, False) for row in page.rows]
    return said


@given(case=cases, pruned=st.booleans())
@generously
def test_each_row_once_in_order_and_a_gap_before_what_follows_it(
    monkeypatch: pytest.MonkeyPatch, case: Case, pruned: bool
) -> None:
    """D26 to D30; whether or not pruning has run makes no difference to the device."""
    world = World(case, monkeypatch)
    if pruned:
        log_reader.prune()
    said = told(iter(log_reader.Reader(world.positions, world.upto).page, None))
    rows = [seq for _, seq, gap in said if not gap]
    assert rows == sorted(seq for feed_id in world.rows for seq in world.kept(feed_id))
    for feed_id in world.rows:
        of_feed = [(seq, gap) for said_of, seq, gap in said if said_of == feed_id]
        gone = world.lost(feed_id)
        if not pruned or not gone or world.kept(feed_id):
            assert of_feed == [
                *([(gone[-1], True)] if gone else []),
                *((seq, False) for seq in world.kept(feed_id)),
            ]


@given(
    case=cases,
    meanwhile=st.lists(st.tuples(st.integers(0, SESSIONS), st.integers(1, 12)), max_size=6),
)
@generously
def test_what_is_pruned_between_two_pages_is_sent_or_said(
    monkeypatch: pytest.MonkeyPatch, case: Case, meanwhile: list[tuple[int, int]]
) -> None:
    """D29: never left out in silence, and never said of a row that has been sent or is still to
    come.
    """
    world = World(case, monkeypatch)
    feeds = sorted(world.rows)

    def pages() -> Iterator[log_reader.Page]:
        reader, changes = log_reader.Reader(world.positions, world.upto), iter(meanwhile)
        while page := reader.page():
            yield page
            if change := next(changes, None):
                world.expire(feeds[change[0] % len(feeds)], change[1])
                log_reader.prune()

    said = told(pages())
    assert [seq for _, seq, gap in said if not gap] == sorted(
        {seq for _, seq, gap in said if not gap}
    )
    for feed_id in feeds:
        of_feed: list[Any] = [(seq, gap) for said_of, seq, gap in said if said_of == feed_id]
        assert [seq for seq, _ in of_feed] == sorted(seq for seq, _ in of_feed)
        sent, said_gone = (
            {seq for seq, gap in of_feed if not gap},
            [seq for seq, gap in of_feed if gap],
        )
        unsaid = [
            seq
            for seq in world.wanted(feed_id)
            if seq not in sent and seq > max(said_gone, default=0)
        ]
        # then the next reader says it
        beyond = Feed.objects.get(pk=feed_id).dropped_seq > world.upto
        assert not unsaid or beyond
