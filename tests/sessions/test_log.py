"""The log: one sequence, feeds in order, bounds at read time, gaps that are said, pruning (D26,
D29, D30).
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from sessions_app.log import reader as log_reader
from sessions_app.models import Feed, LogHead, LogRow
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)


def gap_of(feed_id: int, after: int) -> log_reader.Gap | None:
    return log_reader.gap(
        Feed.objects.get(pk=feed_id), after, LogHead.objects.get(pk=1).bytes, timezone.now()
    )


def set_conf(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    monkeypatch.setitem(conf.__dict__, name, value)


def test_one_sequence_numbers_the_rows_of_all_feeds() -> None:
    for n in range(4):
        helpers.post("one" if n % 2 else "two")
    assert list(LogRow.objects.values_list("seq", flat=True)) == list(
        range(1, log_reader.head_seq() + 1)
    )


def test_a_reader_merges_feeds_in_the_order_of_the_log() -> None:
    for n in range(6):
        helpers.post("one" if n % 2 else "two")
    feeds = [helpers.session(name).feed_id for name in ("one", "two")]
    assert [row.seq for row in helpers.rows(Feed.ALL, *feeds)] == list(
        range(1, log_reader.head_seq() + 1)
    )


def test_what_rolls_back_takes_no_number() -> None:
    helpers.post()
    before = log_reader.head_seq()
    with pytest.raises(RuntimeError), transaction.atomic():
        helpers.post(count=3)
        raise RuntimeError
    helpers.post()
    assert log_reader.head_seq() == before + 1


def test_a_page_is_bounded_by_bytes_but_never_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAGE_BYTES", 1000)
    feed_id = helpers.post(count=20, filler="x" * 400).feed_id
    reader, pages = log_reader.Reader({feed_id: 0}, log_reader.head_seq()), []
    while page := reader.page():
        pages.append([row.seq for row in page.rows])
    assert all(len(page) == 1 for page in pages)
    assert [seq for page in pages for seq in page] == sorted(seq for page in pages for seq in page)
    assert len(pages) == 20


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=30),
    most=st.integers(1, 12),
    after=st.integers(0, 30),
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_newest_rows_within_the_bound_are_read_and_the_rest_is_a_said_gap(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], most: int, after: int
) -> None:
    LogRow.objects.all().delete()
    Feed.objects.all().delete()
    set_conf(monkeypatch, "bridge_queue_max", most)
    helpers.store(*[helpers.event(prompt="x" * size) for size in sizes])
    feed = helpers.session("s1").feed
    all_seqs = list(LogRow.objects.filter(feed=feed).values_list("seq", flat=True))
    position = all_seqs[min(after, len(all_seqs)) - 1] if after else all_seqs[0] - 1
    kept = all_seqs[-most:]
    expected = [seq for seq in kept if seq > position]
    lost = [seq for seq in all_seqs if seq > position and seq not in kept]
    for _ in ("before pruning", "after pruning"):
        assert [row.seq for row in helpers.read_all({feed.pk: position})] == expected
        found = gap_of(feed.pk, position)
        assert (found.through if found else None) == (lost[-1] if lost else None)
        log_reader.prune()
    assert LogRow.objects.filter(feed=feed).count() == len(kept)


def test_bytes_of_a_session_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    feed_id = helpers.post(count=10, filler="x" * 1000).feed_id
    newest = list(LogRow.objects.filter(feed_id=feed_id).values_list("size", flat=True))[-3:]
    monkeypatch.setattr(limits, "QUEUE_MAX_SESSION_BYTES", sum(newest))
    assert len(helpers.rows(feed_id)) == 3
    assert gap_of(feed_id, 0) is not None


def test_bytes_of_the_whole_log_are_bounded_across_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = (
        helpers.post("old", filler="x" * 1000),
        helpers.post("new", count=2, filler="x" * 1000),
    )
    sizes = list(LogRow.objects.filter(feed_id=new.feed_id).values_list("size", flat=True))
    monkeypatch.setattr(limits, "QUEUE_MAX_TOTAL_BYTES", sum(sizes))
    assert helpers.rows(old.feed_id) == []
    assert len(helpers.rows(new.feed_id)) == 2


def test_old_rows_are_not_read_although_nothing_pruned_them() -> None:
    feed_id = helpers.post(count=3).feed_id
    oldest = LogRow.objects.filter(feed_id=feed_id)[0]
    LogRow.objects.filter(pk=oldest.pk).update(
        created_at=timezone.now() - timedelta(seconds=conf.bridge_queue_ttl_seconds + 1)
    )
    assert len(helpers.rows(feed_id)) == 2
    assert gap_of(feed_id, 0) == log_reader.Gap(feed_id, oldest.seq)
    assert gap_of(feed_id, oldest.seq) is None
    assert log_reader.prune() == 1
    assert gap_of(feed_id, 0) == log_reader.Gap(feed_id, oldest.seq)


def test_pruning_everything_still_says_the_gap() -> None:
    feed_id = helpers.post(count=3).feed_id
    LogRow.objects.update(created_at=timezone.now() - timedelta(days=9))
    newest = log_reader.head_seq()
    log_reader.prune()
    assert not LogRow.objects.exists()
    assert gap_of(feed_id, 0) == log_reader.Gap(feed_id, newest)
    assert helpers.post().feed.last_seq == newest + 1


def test_pruning_takes_only_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "PRUNE_ROWS", 2)
    helpers.post(count=5)
    LogRow.objects.update(created_at=timezone.now() - timedelta(days=9))
    assert log_reader.prune() == 6  # five events and session_started
