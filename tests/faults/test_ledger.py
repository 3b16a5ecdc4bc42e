"""The book of the crash test finds each kind of broken promise: a test that could not fail would
prove nothing.
"""

from __future__ import annotations

import pytest

from tests.faults.ledger import ALL, Ledger, Wrong

SID = "session"


@pytest.fixture
def ledger() -> Ledger:
    """Two devices, one session, ten events of one poster, sent and acknowledged."""
    ledger = Ledger(["first", "second"])
    ledger.open(SID)
    for number in range(10):
        ledger.sending(SID, f"p-{number}", f"event {number}")
        ledger.promise(SID, f"p-{number}")
    return ledger


def send(ledger: Ledger, device: int, *numbers: int, id_: str = "id") -> None:
    for number in numbers:
        ledger.sent(ledger.views[device], SID, f"{id_} {number}", f"p-{number}", f"event {number}")


def test_kept_promises(ledger: Ledger) -> None:
    """D27: what was not acknowledged comes again on the next connection, with its id."""
    send(ledger, 0, *range(6))
    send(ledger, 1, 0, 1)
    ledger.views[0].acknowledge(["id 0", "id 1", "id 2", "id 4"])
    ledger.views[0].connected()
    send(ledger, 0, *range(3, 10))
    ledger.views[1].acknowledge(["id 0", "id 1"])
    ledger.views[1].connected()
    send(ledger, 1, *range(2, 10))
    assert ledger.outstanding() == {}
    assert (ledger.views[0].rows, ledger.views[0].again, ledger.views[1].again) == (13, 3, 0)


def test_an_acknowledged_event_that_nobody_gets(ledger: Ledger) -> None:
    for device in (0, 1):
        send(ledger, device, *range(9))
    assert list(ledger.outstanding()) == [f"{SID}, p"]


def test_a_lost_event(ledger: Ledger) -> None:
    send(ledger, 0, 0, 1)
    with pytest.raises(Wrong, match="p-3 has come before p-2, or that is lost"):
        send(ledger, 0, 3)


def test_a_hole_between_connections(ledger: Ledger) -> None:
    send(ledger, 0, 0, 1, 2, 3)
    send(ledger, 1, 0)
    ledger.views[1].acknowledge(["id 0"])
    ledger.views[1].connected()
    with pytest.raises(
        Wrong, match=r"row 1 was due \(p-1\), the connection begins with row 2 \(p-2\)"
    ):
        send(ledger, 1, 2)


def test_what_was_not_acknowledged_does_not_come_again(ledger: Ledger) -> None:
    """D27: a cursor moves over a row when it and all earlier ones are acknowledged."""
    send(ledger, 0, 0, 1, 2)
    ledger.views[0].acknowledge(["id 0", "id 2"])
    ledger.views[0].connected()
    assert ledger.outstanding()[f"first, {SID}"] == "2 rows"
    with pytest.raises(Wrong, match=r"row 1 was due \(p-1\), p-3 came"):
        send(ledger, 0, 3)
    with pytest.raises(Wrong, match=r"row 1 was due \(p-1\), the connection begins with row 2"):
        send(ledger, 0, 2)
    send(ledger, 0, *range(1, 10))
    assert f"first, {SID}" not in ledger.outstanding()


def test_twice_on_one_connection(ledger: Ledger) -> None:
    send(ledger, 0, 0, 1)
    with pytest.raises(Wrong, match="p-1 came again on this connection"):
        send(ledger, 0, 1)


def test_one_event_under_two_ids(ledger: Ledger) -> None:
    send(ledger, 0, 0, 1)
    with pytest.raises(Wrong, match="p-1 has come twice, under two ids"):
        send(ledger, 0, 1, id_="other")


def test_two_devices_see_two_orders(ledger: Ledger) -> None:
    for name in ("a-0", "b-0"):
        ledger.sending(SID, name, name)
    for name in ("a-0", "b-0"):
        ledger.sent(ledger.views[0], SID, f"id {name}", name, name)
    with pytest.raises(Wrong):
        ledger.sent(ledger.views[1], SID, "id b-0", "b-0", "b-0")


def test_another_event_id(ledger: Ledger) -> None:
    """D31: the poster's event_id is the event's."""
    with pytest.raises(Wrong, match="has the event_id made up"):
        ledger.sent(ledger.views[0], SID, "id", "p-0", "made up")


def test_announcements_are_counted(ledger: Ledger) -> None:
    """D31: an event that was sent again is announced once."""
    send(ledger, 0, *range(10))
    send(ledger, 1, *range(10))
    ledger.promise(SID, "p-9", announced=1)
    assert ledger.outstanding() == {ALL: "1 announcements were due, 0 have come"}
    for name in ("one", "two"):
        for view in ledger.views:
            view.arrived(ALL, name, f"session_started {SID}")
    assert ledger.outstanding() == {ALL: "1 announcements were due, 2 have come"}
