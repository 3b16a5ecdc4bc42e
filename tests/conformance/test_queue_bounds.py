"""Bounds of the log (D29, D30): the oldest goes first, and a gap is always said, never silent: a
bridge with a small queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.delivery import away, replay, replayed
from tests.conformance.phone import Phone
from tests.conformance.samples import new_session, now, prompt
from tests.servers import wait_until

pytestmark = pytest.mark.spec("delivery.bounds")


@pytest.fixture(scope="module")
def small(database_url: str | None, make_bridge: Callable[..., Bridge]) -> Iterator[Bridge]:
    bridge = make_bridge("small", database_url=database_url, BRIDGE_QUEUE_MAX="20")
    yield bridge
    bridge.stop()


def said_gap(phone: Phone, session_id: str) -> bool:
    """D29: a feed that had to drop says so in a notification of type error on the next
    connection.
    """
    return any(
        message["type"] == "notification"
        and message["payload"]["notification_type"] == "error"
        and session_id in str(message["payload"])
        for message in phone.messages
    )


@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
def test_a_full_queue_drops_the_oldest_and_says_so(small: Bridge, sid: str, batch: bool) -> None:
    """D29, D30: oldest first out, whenever pruning last ran; the gap is said, the rest comes in
    order.
    """
    small.accept(prompt(sid, "start"))
    phone = small.phone()
    away(phone)
    events = [prompt(sid, number) for number in range(60)]
    if batch:
        assert small.post_batch(events).json()["accepted"] == 60
    else:
        small.accept(*events)
    phone.ready()
    phone.collect(lambda: 59 in phone.numbers(sid), "the newest event")
    numbers = phone.numbers(sid)
    assert 1 <= len(numbers) <= 20 and numbers == list(range(60 - len(numbers), 60))
    phone.collect(lambda: said_gap(phone, sid), "the notification that messages were dropped")
    phone.join(sid)
    payload = replay(phone, sid, since=now(-120))
    assert payload["complete"] is False and replayed(payload) == numbers
    phone.close()


def test_a_replay_since_a_moment_says_what_is_gone_after_it(small: Bridge, sid: str) -> None:
    """D29, D30: `complete` is about what was asked for: false when some of it is gone (pruned yet
    or not), true when only what came before it is.
    """
    small.accept(prompt(sid, "start"))
    phone = small.phone().ready()
    phone.join(sid)
    moments = []
    for start in (0, 30):
        moments.append(now())
        assert (
            small.post_batch([prompt(sid, number) for number in range(start, start + 15)]).json()[
                "accepted"
            ]
            == 15
        )
    payloads = [replay(phone, sid, since=moment) for moment in moments]
    assert [payload["complete"] for payload in payloads] == [False, True]
    assert [len(replayed(payload)) for payload in payloads] == [20, 15]
    phone.close()


def test_no_gap_is_said_where_none_is(small: Bridge, sid: str) -> None:
    """D29: what the device had acknowledged before it was dropped is no gap."""
    small.accept(prompt(sid, "start"))
    phone = small.phone().ready()
    phone.join(sid)
    for start in range(0, 60, 10):
        small.accept(*[prompt(sid, number) for number in range(start, start + 10)])
        phone.ack(*phone.wait_numbers(sid, range(start + 10)))
    phone.close()
    small.accept(prompt(sid, 60))
    phone.ready()
    phone.wait_numbers(sid, [60])
    small.fence(phone)
    assert not said_gap(phone, sid)
    phone.close()


def test_a_busy_session_drops_nothing_of_a_quiet_one(small: Bridge, sid: str) -> None:
    """D30: the bound is a session's."""
    quiet = new_session()
    small.accept(prompt(sid, "start"), prompt(quiet, "start"))
    phone = small.phone()
    away(phone)
    small.accept(prompt(quiet, 1))
    assert small.post_batch([prompt(sid, number) for number in range(50)]).json()["accepted"] == 50
    phone.ready()
    phone.collect(lambda: 1 in phone.numbers(quiet), "the quiet session's event")
    assert not said_gap(phone, quiet)
    phone.close()


def test_old_messages_are_dropped_and_it_is_said(
    small: Bridge, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30: BRIDGE_QUEUE_TTL_SECONDS, as of the prune of every minute; the gap is said."""
    small.accept(prompt(sid, "start"))
    phone = small.phone()
    away(phone)
    small.accept(prompt(sid, "old"))
    posted = time.monotonic()
    wait_until(lambda: time.monotonic() - posted > 1.5, "it is older than a second")
    monkeypatch.setitem(small.settings, "BRIDGE_QUEUE_TTL_SECONDS", "1")
    small.manage("prune")
    small.accept(prompt(sid, "new"))
    phone.ready()
    phone.collect(lambda: "new" in phone.numbers(sid), "the new event")
    assert phone.numbers(sid) == ["new"]
    phone.collect(lambda: said_gap(phone, sid), "the notification that messages were dropped")
    phone.close()
