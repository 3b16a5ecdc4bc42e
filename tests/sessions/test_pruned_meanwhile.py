"""What is discarded while it is being delivered is a said gap too, on every way to the device
(D29).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from bridge_project.kernel import limits
from devices_app.models import Device
from sessions_app.log import cursors, retention
from sessions_app.log import reader as log_reader
from sessions_app.log.tail import Tail
from sessions_app.models import Feed, LogRow
from sessions_app.socket.acknowledgements import Receipts
from tests.sessions import helpers
from tests.sessions.test_delivery import Phone, phone, say, tail

__all__ = ["tail"]
pytestmark = pytest.mark.django_db(transaction=True)


def expire(newest: int) -> None:
    """A row and those before it become too old."""
    LogRow.objects.filter(seq__lte=newest).update(created_at=timezone.now() - timedelta(days=9))


def test_rows_pruned_between_choosing_and_reading_are_a_gap_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PAGE_BYTES", 1)  # a row a page
    feed_id = helpers.post(count=4).feed_id
    first = helpers.rows(feed_id)[0].seq
    reader = log_reader.Reader({feed_id: first - 1}, log_reader.head_seq())
    page = reader.page()
    assert page is not None and [row.seq for row in page.rows] == [first]
    LogRow.objects.filter(seq=first + 1).delete()
    pages = list(iter(reader.page, None))
    assert [gap.through for one in pages for gap in one.gaps] == [first + 1]
    assert [row.seq for one in pages for row in one.rows] == [first + 2, first + 3]


def test_two_feeds_of_which_one_was_pruned_lose_nothing_of_the_other() -> None:
    old, new = helpers.post("old", 3), helpers.post("new", 5)
    gone = [row.seq for row in helpers.rows(old.feed_id)]
    expire(gone[-1])
    log_reader.prune()
    reader = log_reader.Reader({old.feed_id: 0, new.feed_id: 0}, log_reader.head_seq())
    pages = list(iter(reader.page, None))
    assert [gap for one in pages for gap in one.gaps] == [log_reader.Gap(old.feed_id, gone[-1])]
    assert len([row for one in pages for row in one.rows]) == 5


async def test_a_live_socket_that_fell_behind_is_told(
    tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = await say("one")
    client = await phone(tail)
    client.delivery.join(feed)
    await client.until(lambda: client.prompts == ["one"])
    # the bell is lost, so the log is read
    monkeypatch.setattr(tail, "committed", lambda rows: None)
    await say("lost", "kept")
    newest = await sync_to_async(log_reader.head_seq)()
    await sync_to_async(expire)(newest - 1)
    await sync_to_async(log_reader.prune)()
    tail.heard(newest)
    await client.until(lambda: client.prompts == ["one", "kept"])
    notices = [
        message["payload"] for message in client.messages if message["type"] == "notification"
    ]
    assert [(notice["notification_type"], notice["session_id"]) for notice in notices] == [
        ("error", "s1")
    ]
    assert client.messages[-2]["type"] == "notification"  # before what came later


async def test_a_forgotten_session_does_not_stop_the_receipts_of_others(tail: Tail) -> None:
    feed, other = await say("one"), await say("two", session_id="other")
    client: Phone = await phone(tail)
    await client.until(lambda: len(client.prompts) == 2)
    await sync_to_async(Feed.objects.filter(pk=other).delete)()
    device = await sync_to_async(Device.objects.get)(pk=client.device_id)
    await sync_to_async(cursors.prove)(device.pk, dict(client.delivery.sent))
    assert (await sync_to_async(cursors.positions)(device))[feed] == client.delivery.sent[feed]


async def test_acknowledgements_wait_for_a_database_that_is_away(
    tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import OperationalError

    feed = await say("one")
    rows = await sync_to_async(helpers.rows)(feed)
    device = await sync_to_async(helpers.device)()
    real, failed = cursors.acknowledge, asyncio.Event()
    loop = asyncio.get_running_loop()

    def fail(*arguments: object) -> None:
        monkeypatch.setattr(cursors, "acknowledge", real)
        loop.call_soon_threadsafe(failed.set)
        raise OperationalError

    monkeypatch.setattr(cursors, "acknowledge", fail)
    receipts = Receipts(device.pk)
    receipts.acknowledged([rows[0].id])
    await failed.wait()
    await receipts.flush()
    assert (await sync_to_async(cursors.positions)(device))[feed] == rows[0].seq


def test_ids_that_no_database_would_take_are_unknown_ids() -> None:
    device = helpers.device()
    cursors.acknowledge(device.pk, ["a\x00b", "x" * 100_000, *(str(n) for n in range(3_000))], {})
    assert cursors.positions(device) == {}


def test_a_gap_further_along_a_feed_is_said_after_what_comes_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page never marks a feed as sent beyond rows that it still holds: a heartbeat between the
    two would prove them (D27).
    """
    monkeypatch.setattr(limits, "PAGE_ROWS", 2)  # two rows are looked up at once
    feed_id = helpers.post(count=6).feed_id
    seqs = [row.seq for row in helpers.rows(feed_id)]
    real, calls = retention.ahead, []

    def ahead(*arguments: Any) -> dict[int, retention.Ahead]:
        calls.append(arguments)
        if len(calls) == 2:  # the first two rows are known, the others are looked up now
            expire(seqs[3])
            log_reader.prune()
        return real(*arguments)

    monkeypatch.setattr(retention, "ahead", ahead)
    reader = log_reader.Reader({feed_id: seqs[0] - 1}, log_reader.head_seq())
    told: list[int] = []
    for page in iter(reader.page, None):
        told += [gap.through for gap in page.gaps]
        told += [row.seq for row in page.rows]
    assert told == [seqs[1], seqs[3], seqs[4], seqs[5]], (
        "those that were known are gone, too; then what lies behind them"
    )
