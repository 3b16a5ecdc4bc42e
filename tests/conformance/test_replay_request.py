"""replay_request (D29) and the bounds of the log (D30): a gap is always said."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import away, back, replay, replayed
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id, new_session, now, prompt
from tests.servers import wait_until

pytestmark = pytest.mark.spec("ws.replay_request ws.replay_buffer offline.ask delivery.bounds")
YESTERDAY = """
from datetime import timedelta
from sessions_app.models import LogRow
for row in LogRow.objects.all():
    LogRow.objects.filter(pk=row.pk).update(created_at=row.created_at - timedelta(hours=25))
"""
on_both = pytest.mark.usefixtures("database")


@on_both
def test_replay_after_a_message(bridge: Bridge, sid: str, phone: Phone) -> None:
    """By its id: whole envelopes with their ids, acknowledged or not. By its time: of what was
    stored together, nothing that came after it is left out.
    """
    bridge.watch(phone, sid)
    bridge.post_batch([prompt(sid, number) for number in range(100)])
    events = phone.wait_numbers(sid, range(100))
    phone.ack(*events)
    payload = replay(phone, sid, after_id=events[96]["id"])
    assert replayed(payload) == [97, 98, 99] and payload["complete"] is True
    for name in ("id", "payload"):
        assert [one[name] for one in payload["messages"]] == [one[name] for one in events[97:]]
    assert replayed(replay(phone, sid, after_id=events[98]["id"].upper())) == [99]
    for number in range(9, 100, 10):
        answer = replay(phone, sid, since=events[number]["timestamp"])
        assert set(replayed(answer)) >= set(range(number + 1, 100)) and answer["complete"]
    bridge.accept(hook("Stop", sid, {"reason": "task_completed"}))
    told = phone.expect("notification", session_id=sid)  # the last that came, and every device's
    payload = replay(phone, sid, after_id=told["id"])
    assert payload["complete"] is True and payload["messages"] == []


@on_both
def test_replay_since_a_time(bridge: Bridge, sid: str, device: Phone) -> None:
    """Also what a new device never got. D27: it moves nothing: the backlog is still due."""
    bridge.accept(prompt(sid, 0))
    device.ready().join(sid)
    bridge.accept(prompt(sid, 1))
    device.wait_numbers(sid, [1])
    payload = replay(device, sid, since=now(-120))
    assert replayed(payload) == [0, 1] and payload["complete"] is True
    assert replayed(replay(device, sid, since=now(60))) == []
    bridge.accept(prompt(sid, 2))
    device.wait_numbers(sid, [1, 2])
    device.close()
    back(device, sid, [1, 2])


def test_replay_after_an_unknown_id(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D29: it cannot be answered as complete, also when it is another session's."""
    other = new_session()
    bridge.watch(phone, sid, other)
    answer = phone.request("replay_request", {"session_id": sid, "since": "x"})
    assert assert_refused(answer, "PROTO_INVALID_MESSAGE", True)["violations"]
    bridge.accept(prompt(other, "secret"))
    (secret,) = phone.wait_numbers(other, ["secret"])
    for unknown in (new_id(), "not-a-uuid", secret["id"]):
        payload = replay(phone, sid, after_id=unknown)
        assert payload["complete"] is False and "secret" not in replayed(payload)


@pytest.fixture(scope="module")
def small(database_url: str | None, make_bridge: Callable[..., Bridge]) -> Iterator[Bridge]:
    bridge = make_bridge("small", database_url=database_url, BRIDGE_QUEUE_MAX="20")
    yield bridge
    bridge.stop()


@pytest.fixture
def absent(small: Bridge, sid: str) -> Iterator[Phone]:
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
    told = [one["payload"] for one in phone.messages if one["type"] == "notification"]
    return any(one["notification_type"] == "error" and session_id in str(one) for one in told)


def test_a_full_queue_drops_the_oldest_and_says_so(small: Bridge, sid: str, absent: Phone) -> None:
    """Of a batch, and of what comes one by one; the rest comes in order."""
    post(small, sid, range(30))
    small.accept(*[prompt(sid, number) for number in range(30, 60)])
    absent.ready()
    absent.collect(lambda: 59 in absent.numbers(sid), "the newest event")
    numbers = absent.numbers(sid)
    assert 1 <= len(numbers) <= 20 and numbers == list(range(60 - len(numbers), 60))
    absent.collect(lambda: said_gap(absent, sid), "the notification that messages were dropped")
    absent.join(sid)
    payload = replay(absent, sid, since=now(-120))
    assert payload["complete"] is False and replayed(payload) == numbers
    # what was discarded keeps no cursor back (D27)
    absent.ack(*absent.events(sid))
    small.fence(absent.again())
    assert not absent.events(sid) and not said_gap(absent, sid)


def test_a_replay_since_a_moment_says_what_is_gone(small: Bridge, sid: str, absent: Phone) -> None:
    """`complete` is true when only what came before that moment is gone."""
    absent.ready().join(sid)
    moments = []
    for start in (0, 30):
        moments.append(now())
        post(small, sid, range(start, start + 15))
    payloads = [replay(absent, sid, since=moment) for moment in moments]
    assert [payload["complete"] for payload in payloads] == [False, True]
    assert [len(replayed(payload)) for payload in payloads] == [20, 15]


def test_no_gap_is_said_where_none_is(small: Bridge, sid: str, absent: Phone) -> None:
    """What the device had acknowledged before it was dropped is no gap."""
    absent.ready().join(sid)
    for start in range(0, 60, 10):
        post(small, sid, range(start, start + 10))
        absent.ack(*absent.wait_numbers(sid, range(start + 10)))
    absent.close()
    small.accept(prompt(sid, 60))
    absent.ready().wait_numbers(sid, [60])
    small.fence(absent)
    assert not said_gap(absent, sid)


def test_what_is_old_is_only_sent_to_who_asks(small: Bridge, sid: str, absent: Phone) -> None:
    """D73: of more than 24 hours ago nothing comes unasked, and nothing is said to be lost."""
    for word in ("old", "older"):
        small.accept(prompt(sid, word))
    small.manage("shell", "--command", YESTERDAY)
    small.manage("prune")
    small.accept(prompt(sid, "new"))
    (new,) = absent.ready().wait_numbers(sid, ["new"])
    small.fence(absent)
    assert not said_gap(absent, sid)
    absent.join(sid)
    page = replay(absent, sid, before_id=new["id"], limit=1)
    assert (replayed(page), page["complete"], page["older"]) == (["older"], True, True)
    page = replay(absent, sid, before_id=page["messages"][0]["id"])
    assert page["complete"] and "older" not in page and replayed(page)[-1] == "old"


def test_old_messages_are_dropped_and_it_is_said(
    small: Bridge, sid: str, absent: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30: BRIDGE_QUEUE_TTL_SECONDS, as of the prune of every minute."""
    small.accept(prompt(sid, "old"))
    posted = time.monotonic()
    wait_until(lambda: time.monotonic() - posted > 1.5, "it is older than a second")
    monkeypatch.setitem(small.settings, "BRIDGE_QUEUE_TTL_SECONDS", "1")
    small.manage("prune")
    small.accept(prompt(sid, "new"))
    absent.ready().wait_numbers(sid, ["new"])
    absent.collect(lambda: said_gap(absent, sid), "the notification that messages were dropped")
