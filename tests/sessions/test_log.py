"""The log: its bounds in bytes, and what is asked for by time (D29, D30)."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from bridge_project.kernel import limits
from bridge_project.protocol import jsontext
from bridge_project.protocol.catalogue import Encoded, encode_raw
from bridge_project.protocol.client_messages import ReplayRequest
from bridge_project.protocol.types import now_text
from sessions_app.log import outbox
from sessions_app.log import reader as log_reader
from sessions_app.models import Feed, LogHead, LogRow
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)

KEPT_HOURS = limits.HISTORY_DAYS * 24


def dropped(feed_id: int) -> int:
    return Feed.objects.get(pk=feed_id).dropped_seq


def seqs(feed_id: int) -> list[int]:
    return list(LogRow.objects.filter(feed=feed_id).values_list("seq", flat=True))


def test_bytes_of_a_session_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUE_MAX_SESSION_BYTES", 5_000)
    feed_id = helpers.post(count=10, filler="x" * 1000).feed_id
    assert len(seqs(feed_id)) in (3, 4) and dropped(feed_id)
    assert helpers.holds_what_it_says()


def test_bytes_of_the_whole_log_are_bounded_across_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = helpers.post("old", count=300, filler="x" * 100)
    monkeypatch.setattr(limits, "QUEUE_MAX_TOTAL_BYTES", LogHead.objects.get().bytes)
    new = helpers.post("new", count=200, filler="x" * 100)
    assert LogHead.objects.get().bytes <= limits.QUEUE_MAX_TOTAL_BYTES
    assert len(seqs(new.feed_id)) == 200 and 90 <= len(seqs(old.feed_id)) <= 110
    assert dropped(old.feed_id) == seqs(old.feed_id)[0] - 1 and not dropped(new.feed_id)
    assert helpers.holds_what_it_says()


def test_what_replaces_a_row_counts_with_its_own_bytes() -> None:
    """D30, D38: a decision is added to the question, also to one of the same transaction."""
    feed = helpers.post(count=2).feed
    first = LogRow.objects.filter(feed=feed).earliest("seq")
    with outbox.outbox() as box:
        feed.refresh_from_db()
        row = box.append(feed, encode_raw("agent_event", {}))
        box.amend(feed, Encoded(row.id, row.type, "y" * 5000))
        box.amend(feed, Encoded(first.message_id, first.type, "z" * 9000))
    frames = list(LogRow.objects.filter(feed=feed).order_by("seq").values_list("frame", flat=True))
    assert (frames[0], frames[-1]) == ("z" * 9000, "y" * 5000) and helpers.holds_what_it_says()


def set_age(seq: int, hours: int) -> None:
    LogRow.objects.filter(seq=seq).update(created_at=timezone.now() - timedelta(hours=hours))


def asked(**about: Any) -> ReplayRequest:
    return ReplayRequest(session_id="s1", **about)


def test_messages_since_a_moment_are_all_from_the_first_later_one_on() -> None:
    """D29: a row that was stamped while the clock was an hour behind is not left out."""
    feed_id = helpers.post("s1", 4).feed_id
    for seq, hours in zip(rows := seqs(feed_id), (3, 1, 4, 0), strict=True):
        set_age(seq, hours)
    since = now_text(timezone.now() - timedelta(hours=2))
    frames, complete, _ = log_reader.requested(feed_id, asked(since=since))
    assert (len(frames), complete) == (3, True)
    set_age(rows[0], KEPT_HOURS + 1)
    outbox.prune()
    frames, complete, _ = log_reader.requested(feed_id, asked(since=since))
    # one that is gone may have been stamped like the one that is an hour behind
    assert (len(frames), complete) == (3, False)


def test_pages_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """D73: each page ends before a message; the first says that there is no more."""
    feed_id = helpers.post("s1", 5).feed_id
    rows = LogRow.objects.filter(feed=feed_id).order_by("seq")
    ids = list(rows.values_list("message_id", flat=True))
    seen: list[str] = []
    before, more = ids[-1], True
    while more:
        frames, complete, more = log_reader.requested(feed_id, asked(before_id=before, limit=2))
        assert complete
        page = [jsontext.loads(frame)["id"] for frame in frames]
        seen, before = page + seen, page[0]
    assert seen == ids[:-1]
    monkeypatch.setattr(limits, "REPLAY_PAGE_ROWS", 3)
    assert len(log_reader.requested(feed_id, asked(before_id=ids[-1])).frames) == 3
    assert log_reader.requested(feed_id, asked(before_id=ids[0])) == ([], True, False)
    assert log_reader.requested(feed_id, asked(before_id="unknown")) == ([], False, False)
