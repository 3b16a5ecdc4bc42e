"""Guess tokens through a trusted proxy, and through one that is not (D16, D19). By other ways:
tests/conformance/test_rate_limits.py.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import Response
from tests.conformance.raw import RawSocket
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
        BRIDGE_TRUSTED_PROXIES="127.0.0.1,10.9.0.0/16",
    )
    made.start()
    made.pin = made.pairing().pin
    yield made
    made.stop()


def ask(port: int, token: str, lines: Sequence[str], path: str = HEALTH, **how: Any) -> Response:
    """A GET with these lines in its head, over a connection of its own."""
    raw = RawSocket(port, **how)
    head = [
        f"GET {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
        "Connection: close",
        *lines,
    ]
    try:
        raw.socket.sendall("\r\n".join([*head, "", ""]).encode("latin-1"))
        return raw.response()
    finally:
        raw.close()


def through(bridge: Bridge, token: str, *lines: str, path: str = HEALTH) -> Response:
    """The same through the trusted proxy, which says these of who is behind it."""
    port = int(bridge.settings["BRIDGE_PLAIN_PORT"])
    return ask(port, token, ["X-Forwarded-Proto: https", *lines], path, plain=True)


def guess(guess_once: Callable[[int], Response]) -> int:
    """Guess until it is refused; how many were looked at."""
    for number in range(2 * RATE + 1):  # the minute may turn once
        status = guess_once(number).status
        if status == 429:
            return number
        assert status == 401, status
    raise AssertionError("never refused")


FOR = "X-Forwarded-For: "
OTHERS = (
    *("X-Real-IP", "CF-Connecting-IP", "True-Client-IP", "X-Client-IP", "Client-IP", "Via"),
    *("X_Forwarded_For", "X-Forwarded-Host", "X-Original-Forwarded-For", "Fastly-Client-IP"),
)
# What a guesser writes the nth time, with the word of the proxy, which saw him, at the end of it.
LIES: dict[str, Callable[[int, str], list[str]]] = {
    "another address each time": lambda n, me: [f"{FOR}203.0.113.{n}, {me}"],
    "a zone each time": lambda n, me: [f"{FOR}fe80::{n}%eth{n}, [fe80::1%{n}]:5{n}, {me}"],
    "another proxy's headers": lambda n, me: [
        f"Forwarded: for=203.0.113.{n};proto=https, for=127.0.0.1",
        *[f"{name}: 203.0.113.{n}" for name in OTHERS],
        f"{FOR}{me}",
    ],
    "an IPv6 network": lambda n, me: [f"{FOR}2001:db8:1:{me.rpartition('.')[2]}:{n:x}::1"],
    "an IPv4 address in IPv6": lambda n, me: [f"{FOR}203.0.113.{n}, [::ffff:{me}]:{n}"],
}


@pytest.mark.parametrize("lie", LIES)
def test_behind_a_trusted_proxy(bridge: ClockBridge, lie: str) -> None:
    """Whatever he wrote before it; others behind the proxy, and his own token, are not held up."""
    number = list(LIES).index(lie)
    me, other = f"198.51.100.{10 + number}", f"198.51.100.{110 + number}"
    assert guess(lambda n: through(bridge, f"wrong-{n}", *LIES[lie](n, me))) >= RATE
    assert through(bridge, "wrong", *LIES[lie](0, other)).status == 401
    token = bridge.device_token()
    assert through(bridge, token, f"{FOR}{me}", path="/api/v1/sessions").status == 200


def test_behind_a_proxy_that_is_not_trusted(bridge: ClockBridge) -> None:
    """Its word counts for nothing: all behind it are one address, which a right token passes."""
    source, lies = "127.0.0.61", list(LIES.values())

    def lied(n: int) -> list[str]:
        return lies[n % len(lies)](n, f"203.0.113.{n}")

    assert guess(lambda n: ask(bridge.port, f"wrong-{n}", lied(n), source=source)) >= RATE
    assert bridge.https(source="127.0.0.62").get(HEALTH, token="wrong").status == 401
    token = bridge.device_token()
    assert ask(bridge.port, token, lied(1), "/api/v1/sessions", source=source).status == 200
