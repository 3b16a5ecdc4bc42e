"""How many connections (spec, Limits: max_websocket_connections; D21, D23): with room for three."""

from collections.abc import Iterator

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.raw import RawSocket
from tests.conformance.samples import new_session, prompt


@pytest.fixture
def full(narrow: Bridge) -> Iterator[list[Phone]]:
    """Three ready phones: the bridge is full. Places that earlier tests left are free first."""
    phones = [connect_patiently(narrow.phone()) for _ in range(3)]
    yield phones
    for phone in phones:
        phone.close()


def connect_patiently(phone: Phone) -> Phone:
    """Reconnect until the place that a closed connection held is free."""
    for _ in range(100):
        if not refused(phone):
            return phone
    raise AssertionError("no place became free")


def refused(phone: Phone) -> bool:
    """Connect; whether there was no place."""
    answer = phone.connect().auth()
    if answer["type"] == "connection_ack":
        return False
    assert answer["payload"]["code"] == "RATE_LIMITED", answer
    assert answer["type"] == "connection_error" and phone.wait_closed() == 4429
    return True


@pytest.mark.spec("limit.max_websocket_connections", "connerror.RATE_LIMITED")
def test_one_too_many(narrow: Bridge, full: list[Phone]) -> None:
    """The others stay; /info names BRIDGE_MAX_WEBSOCKETS (D44)."""
    assert refused(narrow.phone())
    limits = narrow.get("/api/v1/info", narrow.hook_token).json()["limits"]
    assert limits["max_websocket_connections"] == 3
    for phone in full:
        phone.ping()


def test_a_replaced_connection_frees_its_place_first(narrow: Bridge, full: list[Phone]) -> None:
    """A device of a full bridge comes back while its old socket still looks open."""
    again = Phone(narrow.port, full[1].token, full[1].pin)
    assert not refused(again)
    assert full[1].wait_closed() == 4409
    full[0].ping()
    full[2].ping()
    again.close()


def test_only_authenticated_connections_count(narrow: Bridge, full: list[Phone]) -> None:
    for phone in full:
        phone.close()
    strangers = [RawSocket(narrow.port) for _ in range(6)]
    for stranger in strangers:
        assert stranger.upgrade().status == 101
    for phone in full:
        connect_patiently(phone)
    for stranger in strangers:
        stranger.close()
    health = narrow.get("/api/v1/health", narrow.hook_token).json()
    assert health["active_websockets"] >= 3


def test_a_refused_device_loses_nothing(narrow: Bridge, full: list[Phone]) -> None:
    """D28: it gets later what came meanwhile; a place becomes free in order or not."""
    sid = new_session()
    narrow.accept(prompt(sid, 0))
    full[0].close()
    phone = connect_patiently(narrow.phone())
    phone.close()
    connect_patiently(full[0])
    narrow.accept(prompt(sid, 1))
    assert refused(phone)
    full[0].vanish()
    connect_patiently(phone).wait_numbers(sid, [1])
    phone.close()
