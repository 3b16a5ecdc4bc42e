"""A clock that was set has given later rows earlier times: what is kept is a feed's end all the
same, and what is gone is said (D29, D30).
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.protocol.types import now_text
from sessions_app.handlers.session import _replay
from sessions_app.log import reader, retention
from sessions_app.models import Feed, LogRow, Session
from tests.sessions import helpers
from tests.sessions.costs import statements
from tests.sessions.test_log import gap_of, set_conf

pytestmark = pytest.mark.django_db(transaction=True)

KEPT_HOURS = limits.QUEUE_TTL_SECONDS // 3600
# hours, in the order of the log
ages = st.lists(
    st.sampled_from([-2, 0, 1, KEPT_HOURS + 1, KEPT_HOURS + 9]), min_size=1, max_size=12
)


def rows_of(*hours: int) -> tuple[int, list[int]]:
    """A session's feed whose rows bear these ages, and the rows."""
    feed_id = helpers.post(count=len(hours)).feed_id
    seqs = list(
        LogRow.objects.filter(feed_id=feed_id).order_by("seq").values_list("seq", flat=True)
    )
    now = timezone.now()
    for seq, age in zip(seqs, hours, strict=True):
        LogRow.objects.filter(seq=seq).update(created_at=now - timedelta(hours=age))
    return feed_id, seqs


@given(
    hours=ages,
    read=st.integers(0, 12),
    most=st.sampled_from([1, 3, 100]),
    few_feeds=st.sampled_from([0, 16]),
    page_rows=st.sampled_from([1, 3, 100]),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_end_of_a_feed_is_sent_and_what_came_before_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
    hours: list[int],
    read: int,
    most: int,
    few_feeds: int,
    page_rows: int,
) -> None:
    """Nothing is missing between what is sent, before pruning and after it, and pruning leaves just
    that.
    """
    for model in (LogRow, Session, Feed):
        model._default_manager.all().delete()
    set_conf(monkeypatch, "bridge_queue_max", most)
    monkeypatch.setattr(retention, "FEW_FEEDS", few_feeds)
    monkeypatch.setattr(limits, "PAGE_ROWS", page_rows)
    feed_id, seqs = rows_of(*hours)
    position = seqs[0] - 1 + min(read, len(seqs))
    young = [
        seq
        for seq, age in zip(seqs, hours, strict=True)
        if age < KEPT_HOURS and seq in seqs[-most:]
    ]
    kept = [seq for seq in seqs if young and seq >= young[0]]
    lost = [seq for seq in seqs if seq > position and seq not in kept]
    for _ in ("before pruning", "after pruning"):
        pages = list(iter(reader.Reader({feed_id: position}, reader.head_seq()).page, None))
        assert [row.seq for page in pages for row in page.rows] == [
            seq for seq in kept if seq > position
        ]
        assert [gap.through for page in pages for gap in page.gaps] == lost[-1:]
        found = gap_of(feed_id, position)
        assert (found.through if found else None) == (lost[-1] if lost else None)
        frames, complete = _replay(feed_id, None, None)
        assert (len(frames), complete) == (len(kept), len(kept) == len(seqs))
        reader.prune()
    assert (
        list(LogRow.objects.filter(feed_id=feed_id).order_by("seq").values_list("seq", flat=True))
        == kept
    )


def test_rows_that_look_old_between_younger_ones_go_when_those_before_them_go() -> None:
    """They do not stay for ever, either."""
    feed_id, seqs = rows_of(1, KEPT_HOURS + 1, 0)
    reader.prune()
    assert [row.seq for row in helpers.rows(feed_id)] == seqs
    LogRow.objects.filter(seq=seqs[0]).update(
        created_at=timezone.now() - timedelta(hours=KEPT_HOURS + 1)
    )
    reader.prune()
    assert [row.seq for row in helpers.rows(feed_id)] == seqs[2:]
    assert gap_of(feed_id, 0) == reader.Gap(feed_id, seqs[1])


def test_messages_since_a_moment_are_all_from_the_first_later_one_on() -> None:
    """D29: a row that was stamped while the clock was an hour behind is not left out."""
    feed_id, seqs = rows_of(3, 1, 4, 0)
    frames, complete = _replay(feed_id, None, now_text(timezone.now() - timedelta(hours=2)))
    assert (len(frames), complete) == (3, True)
    LogRow.objects.filter(seq=seqs[0]).update(
        created_at=timezone.now() - timedelta(seconds=conf.bridge_queue_ttl_seconds + 1)
    )
    reader.prune()
    frames, complete = _replay(feed_id, None, now_text(timezone.now() - timedelta(hours=2)))
    assert (len(frames), complete) == (3, False), (
        "a later one that is gone may have been stamped like the one that is an hour behind"
    )


def test_one_transaction_prunes_many_feeds_and_none_prunes_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(6):
        helpers.post(f"s{number}", 3)
    LogRow.objects.update(created_at=timezone.now() - timedelta(days=9))
    monkeypatch.setattr(reader, "PRUNE_ROWS", 7)
    with statements() as seen:
        assert reader.prune() == 24  # 18 events and 6 session_started
    begun = (
        [sql for sql, _ in seen if sql.startswith("BEGIN")]
        if connection.vendor == "sqlite"
        else [None] * 4
    )
    assert len(begun) == 4
