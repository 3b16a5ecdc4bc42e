"""Cursors: acknowledgements in any order, the proof by heartbeat (D27)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.protocol.catalogue import encode
from devices_app.models import Device
from sessions_app import notifications
from sessions_app.log import cursors
from sessions_app.log.outbox import outbox
from sessions_app.log.reader import Row
from sessions_app.models import Cursor, Feed
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def phone() -> Device:
    return helpers.device()


@pytest.fixture
def five(phone: Device) -> list[Row]:
    return helpers.rows(helpers.post(count=5).feed_id)


def position(phone: Device, row: Row) -> int:
    return cursors.positions(phone).get(row.feed_id, phone.start_seq)


def ack(phone: Device, *rows: Row) -> None:
    cursors.acknowledge(phone.pk, [row.id for row in rows])


@given(order=st.permutations(range(5)))
def test_whatever_the_order_the_cursor_is_the_longest_acknowledged_beginning(
    five: list[Row], order: list[int]
) -> None:
    phone, done = helpers.device(), set()
    for index in order:
        ack(phone, five[index])
        done.add(index)
        reach = next((number for number in range(5) if number not in done), 5)
        before = five[reach - 1].seq if reach else phone.start_seq
        assert position(phone, five[0]) == before
    assert Cursor.objects.get(device=phone, feed=five[0].feed_id).ahead == []


def test_a_client_that_acks_notifications_alone_proves_the_rest(phone: Device) -> None:
    """The spec's table has only notifications answered."""
    with outbox() as box:
        box.append_to_all(encode(notifications.gap(None)))
    session = helpers.post(count=2)
    with outbox() as box:
        box.append_to_all(encode(notifications.gap(None)))
    first, started, second = helpers.rows(Feed.ALL)
    events = helpers.rows(session.feed_id)
    ack(phone, first)
    cursors.advance(phone.pk, {Feed.ALL: second.seq, session.feed_id: events[-1].seq})
    assert position(phone, events[0]) == events[-1].seq
    assert position(phone, first) == started.seq
    ack(phone, second)
    assert position(phone, first) == second.seq


def test_a_gap_that_was_said_is_passed_by_whoever_acknowledges_what_came_after_it(
    phone: Device, five: list[Row]
) -> None:
    """D27: what was discarded was never sent to the device, so it keeps no cursor back."""
    said = {five[0].feed_id: five[1].seq}
    cursors.acknowledge(phone.pk, [five[0].id], {}, said)
    assert position(phone, five[0]) == five[0].seq
    cursors.acknowledge(phone.pk, [five[2].id], {}, said)
    assert position(phone, five[0]) == five[2].seq
    cursors.acknowledge(phone.pk, [], {five[0].feed_id: five[3].seq})
    assert position(phone, five[0]) == five[3].seq, "the gap itself may be acknowledged"
