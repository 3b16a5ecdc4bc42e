"""Guess tokens through a proxy (D16, D19); without: tests/conformance/test_rate_limits.py."""

from collections.abc import Callable
from contextlib import closing
from itertools import count

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import Response
from tests.conformance.raw import RawSocket, head
from tests.conformance.test_rate_limits import until_refused
from tests.faults.quick import bridge_of_module
from tests.servers import free_port

RATE = 10  # failed authentications a minute, for each address
HEALTH = "/api/v1/health"

# with its limits on, and a listener for a proxy at 127.0.0.1 that it trusts
bridge = bridge_of_module(
    BRIDGE_RATE_LIMITS="on",
    BRIDGE_PLAIN_PORT=str(free_port()),
    BRIDGE_TRUSTED_PROXIES="127.0.0.1,10.9.0.0/16",
)


def ask(
    bridge: Bridge, token: str, lines: list[str], path: str = HEALTH, source: str | None = None
) -> Response:
    """GET with these lines in its head: from that address, or through the trusted proxy, which says
    these of who is behind it.
    """
    proxied = int(bridge.settings["BRIDGE_PLAIN_PORT"])
    said = [*lines, "X-Forwarded-Proto: https"] if source is None else lines
    port = proxied if source is None else bridge.port
    with closing(RawSocket(port, plain=source is None, source=source)) as raw:
        raw.socket.sendall(head(bridge, *said, line=f"GET {path}", token=token))
        return raw.response()


def guess(guess_once: Callable[[int], Response]) -> None:
    """Guess until it is refused, which is not before RATE."""
    until_refused(map(guess_once, count()).__next__, RATE, (401,))


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
    "two proxies that are trusted": lambda n, me: [f"{FOR}203.0.113.{n}", f"{FOR}{me}, 10.9.0.{n}"],
    "what is no address": lambda n, me: [f"{FOR}203.0.113.{n}, unknown, {me}"],
}


@pytest.mark.parametrize("lie", LIES)
def test_behind_a_trusted_proxy(bridge: Bridge, lie: str) -> None:
    """Whatever he wrote before it; others behind the proxy, and his own token, are not held up."""
    number = list(LIES).index(lie)
    me, other = f"198.51.100.{10 + number}", f"198.51.100.{110 + number}"
    guess(lambda n: ask(bridge, f"wrong-{n}", LIES[lie](n, me)))
    assert ask(bridge, "wrong", LIES[lie](0, other)).status == 401
    assert ask(bridge, bridge.device_token(), [f"{FOR}{me}"], "/api/v1/sessions").status == 200


def test_behind_a_proxy_that_is_not_trusted(bridge: Bridge) -> None:
    """Its word counts for nothing: all behind it are one address, which a right token passes."""
    source, lies = "127.0.0.61", list(LIES.values())

    def guess_once(n: int) -> Response:
        return ask(bridge, f"wrong-{n}", lies[n % len(lies)](n, f"203.0.113.{n}"), source=source)

    guess(guess_once)
    assert bridge.https(source="127.0.0.62").get(HEALTH, token="wrong").status == 401
    lied, token = lies[1](1, "203.0.113.1"), bridge.device_token()
    assert ask(bridge, token, lied, "/api/v1/sessions", source).status == 200
