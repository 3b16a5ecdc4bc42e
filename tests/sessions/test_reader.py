"""The reader beside a model (D26 to D30), and the memory that it takes."""

import tracemalloc
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.kernel import limits
from sessions_app.log import outbox
from sessions_app.log import reader as log_reader
from sessions_app.models import Feed, LogHead, LogRow, Session
from tests.performance.fill import fill
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)

SESSIONS = 6


def expire(feed_id: int, count: int) -> None:
    """Prune the oldest rows of a feed; one behind a young one, of a wrong clock, stays."""
    rows = LogRow.objects.filter(feed=feed_id).order_by("seq")
    seqs = list(rows.values_list("seq", flat=True))
    long_ago = timezone.now() - timedelta(days=limits.HISTORY_DAYS + 9)
    rows.filter(seq__in=[*seqs[:count], *seqs[count + 1 : count + 2]]).update(created_at=long_ago)
    young = rows.filter(created_at__gt=long_ago).first()
    outbox.prune()
    left = list(rows.values_list("seq", flat=True))
    assert left == [seq for seq in seqs if young is not None and seq >= young.seq]


def told(pages: Iterator[log_reader.Page], sent: dict[int, int]) -> list[tuple[int, int, bool]]:
    """(feed, row, whether it is a gap up to there) as a device gets them."""
    said = []
    for page in pages:
        for feed_id, through in page.gaps.items():
            if through > sent.get(feed_id, 0):
                said.append((feed_id, through, True))
                sent[feed_id] = through
        for row in page.rows:
            said.append((row.feed_id, row.seq, False))
            sent[row.feed_id] = row.seq
    return said


@given(
    posts=st.lists(st.integers(0, SESSIONS - 1), min_size=1, max_size=40),
    read=st.lists(st.integers(0, 45), min_size=SESSIONS, max_size=SESSIONS),
    expired=st.lists(st.integers(0, 8), min_size=SESSIONS, max_size=SESSIONS),
    meanwhile=st.lists(st.tuples(st.integers(0, SESSIONS), st.integers(1, 12)), max_size=6),
    page_rows=st.sampled_from([1, 2, 7, 100]),
    page_bytes=st.sampled_from([1, 2_000, 100_000]),
    window=st.sampled_from([1, 3, 5_000]),
    last=st.integers(1, 60),
)
def test_each_row_once_in_order_or_a_gap_before_what_follows_it(
    monkeypatch: pytest.MonkeyPatch,
    posts: list[int],
    read: list[int],
    expired: list[int],
    meanwhile: list[tuple[int, int]],
    page_rows: int,
    page_bytes: int,
    window: int,
    last: int,
) -> None:
    """D26 to D30: none is left out in silence, nor said to be gone when it was sent."""
    for model in (LogRow, Session, Feed, LogHead):
        model._default_manager.all().delete()
    monkeypatch.setattr(limits, "PAGE_ROWS", page_rows)
    monkeypatch.setattr(limits, "PAGE_BYTES", page_bytes)
    monkeypatch.setattr(log_reader, "WINDOW", window)
    monkeypatch.setattr(outbox, "PRUNE_ROWS", page_rows)
    before = log_reader.head_seq()
    helpers.store(*[helpers.event(f"s{number}", prompt="x" * (number * 50)) for number in posts])
    rows: dict[int, list[int]] = {}
    for seq, feed_id in LogRow.objects.order_by("seq").values_list("seq", "feed_id"):
        rows.setdefault(feed_id, []).append(seq)
    feeds, upto = sorted(rows), before + last
    positions = {feed_id: before + read[n % SESSIONS] for n, feed_id in enumerate(feeds)}
    for number, feed_id in enumerate(feeds):
        expire(feed_id, expired[number % SESSIONS])

    def pages() -> Iterator[log_reader.Page]:
        reader, changes = log_reader.Reader(positions, upto), iter(meanwhile)
        while page := reader.page():
            yield page
            if change := next(changes, None):
                expire(feeds[change[0] % len(feeds)], change[1])

    said = told(pages(), dict(positions))
    assert helpers.holds_what_it_says()
    sent = [seq for _, seq, gap in said if not gap]
    assert sent == sorted(set(sent))
    for feed_id in feeds:
        of_feed = [seq for said_of, seq, _ in said if said_of == feed_id]
        assert of_feed == sorted(of_feed)
        gone = max((seq for said_of, seq, gap in said if gap and said_of == feed_id), default=0)
        wanted = [seq for seq in rows[feed_id] if positions[feed_id] < seq <= upto]
        unsaid = [seq for seq in wanted if seq not in sent and seq > gone]
        # what was pruned when the reader had come to its end, the next one says
        assert not unsaid or Feed.objects.get(pk=feed_id).dropped_seq >= unsaid[-1]
        if not meanwhile:
            dropped = Feed.objects.get(pk=feed_id).dropped_seq
            assert not unsaid and all(seq > dropped for seq in of_feed[gone > 0 :])


@pytest.mark.slow
@pytest.mark.skipif(connection.vendor != "sqlite", reason="one database is enough for it")
def test_memory_does_not_grow_with_the_rows_that_wait() -> None:
    """D30: what is held for one socket stays under 1 MB, whatever waits."""
    sessions = 500
    fill(1, 2_000, said=False)
    fill(sessions, 2_000, said=False)
    positions, upto = log_reader.feeds_with_news({}, 0), log_reader.head_seq()
    # what is made only once has been made
    log_reader.Reader(dict(list(positions.items())[:3]), upto).page()
    tracemalloc.start()
    try:
        pages = iter(log_reader.Reader(positions, upto).page, None)
        assert sum(len(page.rows) for page in pages) == 4_000 + sessions  # each began
        assert tracemalloc.get_traced_memory()[1] < 2**20 + sessions * 300
    finally:
        tracemalloc.stop()
