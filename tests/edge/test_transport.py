"""The pure part: connection modes, client addresses, names and origins (D18, D19, D20)."""

import ipaddress
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge_project.kernel.config import Conf
from bridge_project.network import certificates
from bridge_project.network.certificates import wanted_names
from bridge_project.network.own_names import origin_allowed
from bridge_project.network.transport import (
    accepts_on,
    mode_of_address,
    mode_of_url,
    resolve,
)
from bridge_project.protocol.types import ConnectionMode

LOCAL, PRIVATE, REMOTE, PUBLIC, WRONG = get_args(ConnectionMode)
HERE, NEAR, FAR = "127.0.0.1", "192.168.1.5", "9.9.9.9"


def through(settings: dict[str, Any], local: str, peer: str, *headers: tuple[str, str]) -> Any:
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    return resolve(
        Conf(**settings), tls=True, local_address=local, peer_address=peer, headers=pairs
    )


def cases(table: dict[Any, str]) -> list[tuple[str, Any]]:
    """(word, expected) for each word of a table of expected results → words."""
    return [(word, expected) for expected, words in table.items() for word in words.split()]


MODES = {
    LOCAL: "127.0.0.1 127.255.0.9 ::1 ::ffff:127.0.0.1 https://[::1]:8443 https://localhost:8443",
    PRIVATE: "10.0.0.1 172.16.0.1 172.31.255.255 192.168.0.1 ::ffff:192.168.0.1 fc00::1 fdff::1 "
    "https://192.168.1.5:8443",
    REMOTE: "100.64.0.1 100.127.255.255 fd7a:115c:a1e0::5 https://[fd7a:115c:a1e0::5] "
    "https://100.100.1.1 https://machine.tailnet.ts.net https://MACHINE.TAILNET.TS.NET. "
    "https://words.trycloudflare.com:8443 https://a.ngrok-free.app/path https://a.tunnel.example "
    "https://tunnel.example https://b.other.example",
    PUBLIC: "172.32.0.1 172.15.255.255 192.169.0.1 100.128.0.1 169.254.1.1 fe80::1%eth0 8.8.8.8 "
    "2001:4860:4860::8888 nonsense https://bridge.example https://ts.net https://evilts.net "
    "https://ts.net.evil.example https://8.8.8.8",
    WRONG: "http://192.168.1.5 http://machine.ts.net wss://bridge.example",
}


@pytest.mark.parametrize(("word", "mode"), [*cases(MODES), ("", PUBLIC)])
@pytest.mark.spec(
    "mode.local_only mode.private_network mode.secure_remote mode.direct_public mode.misconfigured"
)
def test_mode_of_an_address_or_a_public_url(word: str, mode: ConnectionMode) -> None:
    tunnels = ["tunnel.example", "*.other.example"]
    assert (mode_of_url(word, tunnels) if "://" in word else mode_of_address(word)) == mode


def test_auto_takes_no_public_address_and_a_named_one_takes_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor has it the names of one in its certificate and for Host headers (D18, D19)."""
    assert accepts_on("auto", NEAR) and not accepts_on("auto", FAR)
    assert accepts_on(NEAR, FAR) and accepts_on("0.0.0.0", FAR)
    monkeypatch.setattr(certificates, "local_addresses", lambda: (HERE, NEAR, FAR))
    assert FAR not in wanted_names(Conf()) and FAR in wanted_names(Conf(bridge_host="0.0.0.0"))


TUNNEL, PROXY = {"bridge_public_url": "https://m.ts.net"}, {"bridge_trusted_proxies": HERE}


@pytest.mark.parametrize(
    ("settings", "local", "peer", "headers", "mode"),
    [
        ({}, NEAR, "192.168.1.9", {}, PRIVATE),
        ({}, "100.64.0.5", "100.64.0.9", {}, REMOTE),
        ({}, "8.8.8.8", FAR, {}, PUBLIC),
        # a public peer, whatever address it came in on
        ({}, NEAR, FAR, {}, PUBLIC),
        (TUNNEL, NEAR, FAR, {}, PUBLIC),
        # forwarding headers from a peer that is no trusted proxy
        ({}, HERE, HERE, {"x-forwarded-for": HERE}, PUBLIC),
        ({}, HERE, HERE, {"forwarded": "for=10.0.0.1"}, PUBLIC),
        (TUNNEL, HERE, HERE, {"x-real-ip": "10.0.0.1"}, PUBLIC),
        # the public URL decides
        (TUNNEL, HERE, HERE, {}, REMOTE),
        ({"bridge_public_url": "https://bridge.example"}, HERE, HERE, {}, PUBLIC),
        ({"bridge_public_url": "http://b.example"}, HERE, FAR, {"forwarded": "x"}, WRONG),
        # a trusted proxy: the public URL, else where its client is
        (PROXY | TUNNEL, HERE, HERE, {"x-forwarded-for": FAR}, REMOTE),
        (PROXY, HERE, HERE, {"x-forwarded-for": FAR}, PUBLIC),
        (PROXY, HERE, HERE, {"x-forwarded-for": "10.0.0.9"}, PRIVATE),
        (PROXY, HERE, HERE, {"x-forwarded-proto": "https"}, PUBLIC),
        # a header that forwards nothing
        ({}, HERE, HERE, {"host": "b.example", "origin": "https://evil.example"}, LOCAL),
    ],
)
def test_mode_of_a_connection(
    settings: dict[str, Any], local: str, peer: str, headers: dict[str, str], mode: ConnectionMode
) -> None:
    assert through(settings, local, peer, *headers.items()).mode == mode


PROXIES = {"bridge_trusted_proxies": "127.0.0.1, 10.0.0.0/8"}


@pytest.mark.parametrize("hops", ["9.9.9.9, unknown", " , "])
def test_a_hop_that_is_no_address_is_the_proxys_own(hops: str) -> None:
    """Whom it believes otherwise: tests/attack/test_guessing.py."""
    assert through(PROXIES, HERE, HERE, ("x-forwarded-for", hops)).client == HERE


@given(st.text(), st.text())
@example("127.0.0.1%", "https")
def test_any_header_gives_an_address(hops: str, proto: str) -> None:
    headers = ("x-forwarded-for", hops), ("x-forwarded-proto", proto)
    found = through(PROXIES, HERE, "::ffff:127.0.0.1", *headers)
    assert str(ipaddress.ip_address(found.client)) == found.client


NAMES = frozenset({"localhost", "box.local", "127.0.0.1", "::1", "*.bridge.example"})

ORIGINS = {
    True: "https://localhost:8443 https://LOCALHOST:8443 https://[::1]:8443 "
    "https://x.bridge.example:8443 https://public.example https://public.example:443 "
    "https://app.example http://localhost:3000 capacitor://localhost",
    # https://localhost is another server of this machine
    False: "https://localhost https://localhost:3000 http://localhost:8443 null file:// https://[ "
    "https://public.example:444 http://public.example https://evil.example ionic://localhost "
    "https://localhost.evil.example:8443 https://localhost:99999 "
    "https://a.b.bridge.example:8443 https://bridge.example:8443",
}


@pytest.mark.parametrize(("origin", "allowed"), [*cases(ORIGINS), (None, True), ("", False)])
def test_origin(origin: str | None, allowed: bool) -> None:
    others = "https://app.example/, http://localhost:3000, capacitor://localhost"
    given: dict[str, Any] = {"bridge_allowed_origins": others}
    settings = Conf(bridge_public_url="https://public.example", **given)
    assert origin_allowed(settings, NAMES | {"public.example"}, origin) is allowed
