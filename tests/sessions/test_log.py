"""The log: one sequence, feeds in order, bounds, gaps that are said, pruning (D26, D29, D30)."""

from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.kernel import limits
from bridge_project.protocol.types import now_text
from sessions_app.log import outbox
from sessions_app.log import reader as log_reader
from sessions_app.models import Feed, LogHead, LogRow, Session
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)

KEPT_HOURS = limits.QUEUE_TTL_SECONDS // 3600


def dropped(feed_id: int) -> int:
    return Feed.objects.get(pk=feed_id).dropped_seq


def seqs(feed_id: int) -> list[int]:
    return list(LogRow.objects.filter(feed=feed_id).values_list("seq", flat=True))


def holds_what_it_says() -> bool:
    """The counters of every feed and of the log are those of their rows."""
    for feed in Feed.objects.all():
        sizes = list(LogRow.objects.filter(feed=feed).values_list("size", flat=True))
        if (feed.rows, feed.bytes) != (len(sizes), sum(sizes)):
            return False
    return LogHead.objects.get().bytes == sum(LogRow.objects.values_list("size", flat=True))


def test_bytes_of_a_session_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUE_MAX_SESSION_BYTES", 5_000)
    feed_id = helpers.post(count=10, filler="x" * 1000).feed_id
    assert len(seqs(feed_id)) in (3, 4) and dropped(feed_id)
    assert holds_what_it_says()


def test_bytes_of_the_whole_log_are_bounded_across_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = helpers.post("old", count=300, filler="x" * 100)
    monkeypatch.setattr(limits, "QUEUE_MAX_TOTAL_BYTES", LogHead.objects.get().bytes)
    new = helpers.post("new", count=200, filler="x" * 100)
    assert LogHead.objects.get().bytes <= limits.QUEUE_MAX_TOTAL_BYTES
    assert len(seqs(new.feed_id)) == 200 and 90 <= len(seqs(old.feed_id)) <= 110
    assert dropped(old.feed_id) == seqs(old.feed_id)[0] - 1 and not dropped(new.feed_id)
    assert holds_what_it_says()


def aged(*hours: int) -> tuple[int, list[int]]:
    feed_id = helpers.post(count=len(hours)).feed_id
    rows = seqs(feed_id)[-len(hours) :]
    for seq, age in zip(rows, hours, strict=True):
        LogRow.objects.filter(seq=seq).update(created_at=timezone.now() - timedelta(hours=age))
    return feed_id, rows


# hours, in the order of the log: a clock that was set has given later rows earlier times
ages = st.lists(
    st.sampled_from([-2, 0, 1, KEPT_HOURS + 1, KEPT_HOURS + 9]), min_size=1, max_size=12
)


@given(hours=ages, read=st.integers(0, 12), step=st.sampled_from([1, 3, 100]))
def test_pruning_keeps_the_end_of_a_feed_and_says_what_came_before(
    monkeypatch: pytest.MonkeyPatch, hours: list[int], read: int, step: int
) -> None:
    for model in (LogRow, Session, Feed, LogHead):
        model._default_manager.all().delete()
    monkeypatch.setattr(outbox, "PRUNE_ROWS", step)
    feed_id, rows = aged(*hours)
    young = [seq for seq, age in zip(rows, hours, strict=True) if age < KEPT_HOURS]
    kept = [seq for seq in rows if young and seq >= young[0]]
    position = rows[0] - 1 + min(read, len(rows))
    lost = [seq for seq in rows if seq > position and seq not in kept]
    assert outbox.prune() == len(rows) - len(kept)
    assert seqs(feed_id) == kept and holds_what_it_says()
    pages = list(iter(log_reader.Reader({feed_id: position}, log_reader.head_seq()).page, None))
    assert [through for page in pages for through in page.gaps.values()] == lost[-1:]
    assert [row.seq for page in pages for row in page.rows] == [s for s in kept if s > position]
    frames, complete = log_reader.asked_for(feed_id, None, None)
    assert (len(frames), complete) == (len(kept), len(kept) == len(rows))


def test_messages_since_a_moment_are_all_from_the_first_later_one_on() -> None:
    """D29: a row that was stamped while the clock was an hour behind is not left out."""
    feed_id, rows = aged(3, 1, 4, 0)
    since = now_text(timezone.now() - timedelta(hours=2))
    frames, complete = log_reader.asked_for(feed_id, None, since)
    assert (len(frames), complete) == (3, True)
    LogRow.objects.filter(seq=rows[0]).update(
        created_at=timezone.now() - timedelta(hours=KEPT_HOURS + 1)
    )
    outbox.prune()
    frames, complete = log_reader.asked_for(feed_id, None, since)
    # one that is gone may have been stamped like the one that is an hour behind
    assert (len(frames), complete) == (3, False)
