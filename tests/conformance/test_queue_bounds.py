"""Bounds of the log (D29, D30): the oldest goes first, and a gap is always said, never silent."""

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


@pytest.fixture
def phone(small: Bridge, sid: str) -> Iterator[Phone]:
    """A device that knows the session's beginning, and is not connected."""
    small.accept(prompt(sid, "start"))
    phone = small.phone()
    away(phone)
    yield phone
    phone.close()


def post(bridge: Bridge, session_id: str, numbers: range) -> None:
    answer = bridge.post_batch([prompt(session_id, number) for number in numbers])
    assert answer.json()["accepted"] == len(numbers)


def said_gap(phone: Phone, session_id: str) -> bool:
    """A notification of type error, on the next connection."""
    payloads = [one["payload"] for one in phone.messages if one["type"] == "notification"]
    errors = [one for one in payloads if one["notification_type"] == "error"]
    return any(session_id in str(one) for one in errors)


@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
def test_a_full_queue_drops_the_oldest_and_says_so(
    small: Bridge, sid: str, phone: Phone, batch: bool
) -> None:
    """The rest comes in order."""
    if batch:
        post(small, sid, range(60))
    else:
        small.accept(*[prompt(sid, number) for number in range(60)])
    phone.ready()
    phone.collect(lambda: 59 in phone.numbers(sid), "the newest event")
    numbers = phone.numbers(sid)
    assert 1 <= len(numbers) <= 20 and numbers == list(range(60 - len(numbers), 60))
    phone.collect(lambda: said_gap(phone, sid), "the notification that messages were dropped")
    phone.join(sid)
    payload = replay(phone, sid, since=now(-120))
    assert payload["complete"] is False and replayed(payload) == numbers


def test_a_replay_since_a_moment_says_what_is_gone_after_it(
    small: Bridge, sid: str, phone: Phone
) -> None:
    """`complete` is true when only what came before that moment is gone."""
    phone.ready().join(sid)
    moments = []
    for start in (0, 30):
        moments.append(now())
        post(small, sid, range(start, start + 15))
    payloads = [replay(phone, sid, since=moment) for moment in moments]
    assert [payload["complete"] for payload in payloads] == [False, True]
    assert [len(replayed(payload)) for payload in payloads] == [20, 15]


def test_no_gap_is_said_where_none_is(small: Bridge, sid: str, phone: Phone) -> None:
    """What the device had acknowledged before it was dropped is no gap."""
    phone.ready().join(sid)
    for start in range(0, 60, 10):
        post(small, sid, range(start, start + 10))
        phone.ack(*phone.wait_numbers(sid, range(start + 10)))
    phone.close()
    small.accept(prompt(sid, 60))
    phone.ready().wait_numbers(sid, [60])
    small.fence(phone)
    assert not said_gap(phone, sid)


def test_a_busy_session_drops_nothing_of_a_quiet_one(small: Bridge, sid: str, phone: Phone) -> None:
    quiet = new_session()
    small.accept(prompt(quiet, 1))
    post(small, sid, range(50))
    phone.ready().wait_numbers(quiet, [1])
    assert not said_gap(phone, quiet)


def test_old_messages_are_dropped_and_it_is_said(
    small: Bridge, sid: str, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30: BRIDGE_QUEUE_TTL_SECONDS, as of the prune of every minute."""
    small.accept(prompt(sid, "old"))
    posted = time.monotonic()
    wait_until(lambda: time.monotonic() - posted > 1.5, "it is older than a second")
    monkeypatch.setitem(small.settings, "BRIDGE_QUEUE_TTL_SECONDS", "1")
    small.manage("prune")
    small.accept(prompt(sid, "new"))
    phone.ready().wait_numbers(sid, ["new"])
    phone.collect(lambda: said_gap(phone, sid), "the notification that messages were dropped")
