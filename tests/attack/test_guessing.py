"""Guess tokens through a trusted proxy, through one that is not, and without any (D16, D18 to D20)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import Https, Response
from tests.conformance.phone import Closed, Phone
from tests.faults.clock import ClockBridge
from tests.servers import free_port

RATE = 10  # failed authentications a minute, for each address
HEALTH = "/api/v1/health"


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClockBridge]:
    """A bridge with its limits on, and a listener for a proxy at 127.0.0.1 that it trusts."""
    made = ClockBridge(
        tmp_path_factory.mktemp("guesses"),
        BRIDGE_RATE_LIMITS="on",
        BRIDGE_PLAIN_PORT=str(free_port()),
        BRIDGE_TRUSTED_PROXIES="127.0.0.1",
    )
    made.start()
    made.pin = made.pairing().pin
    yield made
    made.stop()


@pytest.fixture
def proxy(bridge: Bridge) -> Https:
    return Https(int(bridge.settings["BRIDGE_PLAIN_PORT"]), plain=True)


def told(*clients: str) -> dict[str, str]:
    """What a proxy says of who is behind it: the last is the proxy's own word."""
    return {
        "X-Forwarded-Proto": "https",
        "X-Forwarded-For": ", ".join(clients),
    }


def guess(guess_once: Callable[[int], Response]) -> int:
    """Guess until it is refused; how many were looked at."""
    for number in range(2 * RATE + 1):  # the minute may turn once
        status = guess_once(number).status
        if status == 429:
            return number
        assert status == 401, status
    raise AssertionError("never refused")


LIES: dict[str, Callable[[int], tuple[str, ...]]] = {
    "another address each time": lambda number: (f"203.0.113.{number}",),
    "more hops each time": lambda number: ("198.51.100.9",) * number,
    "a trusted one": lambda number: ("127.0.0.1",),
    "no address": lambda number: ("unknown", "", "::ffff:127.0.0.1:99", "'", "x" * 4000),
}


@pytest.mark.parametrize("lie", LIES)
def test_behind_a_trusted_proxy(bridge: ClockBridge, proxy: Https, lie: str) -> None:
    """A guesser is counted by what the proxy saw, whatever he wrote before it; others behind the
    proxy, and his own right token, are not held up.
    """
    me = f"198.51.100.{10 + list(LIES).index(lie)}"
    assert (
        guess(
            lambda number: proxy.get(
                HEALTH, token=f"wrong-{number}", headers=told(*LIES[lie](number), me)
            )
        )
        >= RATE
    )
    assert proxy.get(HEALTH, token="wrong", headers=told("198.51.100.200")).status == 401
    token = bridge.device_token()
    assert proxy.get("/api/v1/sessions", token=token, headers=told(me)).status == 200


def test_behind_a_proxy_that_is_not_trusted(bridge: ClockBridge) -> None:
    """Its word counts for nothing: all behind it are one address, which a right token passes."""
    other = bridge.https(source="127.0.0.61")
    assert (
        guess(
            lambda number: other.get(
                HEALTH, token=f"wrong-{number}", headers=told(f"203.0.113.{number}")
            )
        )
        >= RATE
    )
    assert bridge.https(source="127.0.0.62").get(HEALTH, token="wrong").status == 401
    assert other.get("/api/v1/sessions", token=bridge.device_token()).status == 200


def test_by_every_way_at_once(bridge: ClockBridge) -> None:
    """Guesses over HTTP, at the upgrade and by `auth` are one count, and the device's own token
    still opens a socket from the same address.
    """
    source = "127.0.0.63"
    https, refusals = bridge.https(source=source), []
    phone = bridge.phone()
    for number in range(3 * RATE):
        if number % 2:
            refusals.append(https.get(HEALTH, token=f"wrong-{number}").status == 429)
        else:
            liar = Phone(bridge.port, f"wrong-{number}", bridge.pin, source=source)
            liar.connect()
            try:
                answer = liar.auth()
                refusals.append(answer["payload"]["code"] == "RATE_LIMIT_EXCEEDED")
            except Closed:
                refusals.append(True)
            liar.close()
    assert not all(refusals) and refusals.index(True) <= 2 * RATE, "of two minutes at most"
    own = Phone(bridge.port, phone.token, bridge.pin, source=source, device_id=phone.device_id)
    own.ready()
    own.close()
