"""The pure part: connection modes, client addresses, names and origins (D18, D19, D20)."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge_project.kernel.config import Conf
from bridge_project.network.own_names import allowed_names, host_allowed, origin_allowed
from bridge_project.network.transport import (
    MODE_DESCRIPTIONS,
    ConnectionMode,
    accepts_on,
    base_url,
    mode_of_address,
    mode_of_url,
    normalise,
    resolve,
    websocket_url,
)

LOCAL, PRIVATE, REMOTE, PUBLIC, WRONG = ConnectionMode
addresses = st.ip_addresses().map(str)


def conf(**settings: Any) -> Conf:
    return Conf(**settings)


def through(
    settings: dict[str, Any], local: str, peer: str, *headers: tuple[str, str], tls: bool = True
) -> Any:
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    return resolve(conf(**settings), tls=tls, local_address=local, peer_address=peer, headers=pairs)


def cases(table: dict[Any, str]) -> list[tuple[str, Any]]:
    """(word, expected) for each word of a table of expected results → words."""
    return [(word, expected) for expected, words in table.items() for word in words.split()]


ADDRESSES = {
    LOCAL: "127.0.0.1 127.255.0.9 ::1 ::ffff:127.0.0.1",
    PRIVATE: "10.0.0.1 172.16.0.1 172.31.255.255 192.168.0.1 ::ffff:192.168.0.1 fc00::1 fdff::1",
    REMOTE: "100.64.0.1 100.127.255.255 fd7a:115c:a1e0::5",
    PUBLIC: "172.32.0.1 172.15.255.255 192.169.0.1 100.128.0.1 169.254.1.1 fe80::1%eth0 8.8.8.8 "
    "2001:4860:4860::8888 nonsense",
}


@pytest.mark.parametrize(("address", "mode"), [*cases(ADDRESSES), ("", PUBLIC)])
@pytest.mark.spec(
    "mode.local_only", "mode.private_network", "mode.secure_remote", "mode.direct_public"
)
def test_mode_of_an_address(address: str, mode: ConnectionMode) -> None:
    assert mode_of_address(address) is mode


@given(addresses)
def test_every_address_has_a_mode_and_its_mapped_form_the_same(address: str) -> None:
    assert mode_of_address(address) in (LOCAL, PRIVATE, REMOTE, PUBLIC)
    if ":" not in address:
        assert mode_of_address(f"::ffff:{address}") is mode_of_address(address)
        assert normalise(f"::ffff:{address}") == address


@given(addresses, addresses)
def test_auto_takes_no_public_address_and_a_named_one_takes_all(local: str, named: str) -> None:
    assert accepts_on("auto", local) is (mode_of_address(local) is not PUBLIC)
    assert accepts_on(named, local)
    assert accepts_on("0.0.0.0", local)


URLS = {
    LOCAL: "https://[::1]:8443 https://localhost:8443",
    PRIVATE: "https://192.168.1.5:8443",
    REMOTE: "https://machine.tailnet.ts.net https://MACHINE.TAILNET.TS.NET. "
    "https://words.trycloudflare.com:8443 https://a.ngrok-free.app/path https://a.tunnel.example "
    "https://tunnel.example https://b.other.example https://[fd7a:115c:a1e0::5] "
    "https://100.100.1.1",
    PUBLIC: "https://bridge.example https://ts.net https://evilts.net "
    "https://ts.net.evil.example https://8.8.8.8",
    WRONG: "http://192.168.1.5 http://machine.ts.net wss://bridge.example",
}


@pytest.mark.parametrize(("url", "mode"), cases(URLS))
@pytest.mark.spec("mode.secure_remote", "mode.misconfigured")
def test_mode_of_a_public_url(url: str, mode: ConnectionMode) -> None:
    assert mode_of_url(url, ["tunnel.example", "*.other.example"]) is mode


HERE, TUNNEL = "127.0.0.1", {"bridge_public_url": "https://m.ts.net"}
PROXY = {"bridge_trusted_proxies": HERE}


@pytest.mark.parametrize(
    ("settings", "local", "peer", "headers", "mode"),
    [
        ({}, HERE, HERE, {}, LOCAL),
        ({}, "192.168.1.5", "192.168.1.9", {}, PRIVATE),
        ({}, "100.64.0.5", "100.64.0.9", {}, REMOTE),
        ({}, "8.8.8.8", "9.9.9.9", {}, PUBLIC),
        # a public peer, whatever address it came in on
        ({}, "192.168.1.5", "9.9.9.9", {}, PUBLIC),
        (TUNNEL, "192.168.1.5", "9.9.9.9", {}, PUBLIC),
        # forwarding headers from a peer that is no trusted proxy
        ({}, HERE, HERE, {"x-forwarded-for": HERE}, PUBLIC),
        ({}, HERE, HERE, {"forwarded": "for=10.0.0.1"}, PUBLIC),
        (TUNNEL, HERE, HERE, {"x-real-ip": "10.0.0.1"}, PUBLIC),
        # the public URL decides
        (TUNNEL, HERE, HERE, {}, REMOTE),
        ({"bridge_public_url": "https://bridge.example"}, HERE, HERE, {}, PUBLIC),
        ({"bridge_public_url": "http://b.example"}, HERE, "9.9.9.9", {"forwarded": "x"}, WRONG),
        # a trusted proxy: the public URL, else where its client is
        (PROXY | TUNNEL, HERE, HERE, {"x-forwarded-for": "9.9.9.9"}, REMOTE),
        (PROXY, HERE, HERE, {"x-forwarded-for": "9.9.9.9"}, PUBLIC),
        (PROXY, HERE, HERE, {"x-forwarded-for": "10.0.0.9"}, PRIVATE),
        (PROXY, HERE, HERE, {"x-forwarded-proto": "https"}, PUBLIC),
        # a header that forwards nothing
        ({}, HERE, HERE, {"host": "b.example", "origin": "https://evil.example"}, LOCAL),
    ],
)
def test_mode_of_a_connection(
    settings: dict[str, Any], local: str, peer: str, headers: dict[str, str], mode: ConnectionMode
) -> None:
    assert through(settings, local, peer, *headers.items()).mode is mode


PROXIES = {"bridge_trusted_proxies": "127.0.0.1, 10.0.0.0/8"}


@pytest.mark.parametrize(
    ("hops", "client"),
    [
        (["9.9.9.9"], "9.9.9.9"),
        (["6.6.6.6, 9.9.9.9"], "9.9.9.9"),
        (["6.6.6.6, 9.9.9.9, 10.1.1.1"], "9.9.9.9"),
        (["6.6.6.6", "9.9.9.9, 10.1.1.1"], "9.9.9.9"),
        (["10.2.2.2, 10.1.1.1"], "10.2.2.2"),
        (["9.9.9.9:5000"], "9.9.9.9"),
        (["[2001:db8::1]:5000"], "2001:db8::1"),
        (["2001:DB8:0::1"], "2001:db8::1"),
        (["::ffff:9.9.9.9"], "9.9.9.9"),
        (["9.9.9.9, unknown"], "127.0.0.1"),
        (["9.9.9.9, unknown, 10.1.1.1"], "10.1.1.1"),
        ([" , "], "127.0.0.1"),
    ],
)
def test_the_client_is_the_rightmost_hop_that_is_no_proxy(hops: list[str], client: str) -> None:
    found = through(
        PROXIES, "127.0.0.1", "127.0.0.1", *(("x-forwarded-for", hop) for hop in hops), tls=False
    )
    assert (found.client, found.via_proxy) == (client, True)


@given(st.lists(addresses, min_size=1, max_size=5))
def test_no_peer_but_a_trusted_proxy_can_say_who_it_is(hops: list[str]) -> None:
    found = through(
        PROXIES,
        "192.168.1.5",
        "192.168.1.9",
        ("x-forwarded-for", ",".join(hops)),
        ("x-forwarded-proto", "https"),
        tls=False,
    )
    assert found.client == "192.168.1.9"
    assert found.via_proxy is False
    assert found.secure is False
    assert found.mode == PUBLIC


@given(st.lists(addresses, min_size=1, max_size=5))
def test_what_a_client_writes_before_the_proxy_does_not_count(forged: list[str]) -> None:
    found = through(
        PROXIES,
        "127.0.0.1",
        "127.0.0.1",
        ("x-forwarded-for", ",".join([*forged, "9.9.9.9"])),
        tls=False,
    )
    assert found.client == "9.9.9.9"


@given(st.text(), st.text(), st.booleans())
@example("127.0.0.1%", "https", False)
def test_any_header_gives_an_address(hops: str, proto: str, tls: bool) -> None:
    headers = [(b"x-forwarded-for", hops.encode()), (b"x-forwarded-proto", proto.encode())]
    found = resolve(
        conf(**PROXIES),
        tls=tls,
        local_address="127.0.0.1",
        peer_address="::ffff:127.0.0.1",
        headers=headers,
    )
    assert str(ipaddress.ip_address(found.client)) == found.client
    words = [
        part.strip().lower() for part in proto.encode().decode("latin-1").split(",") if part.strip()
    ]
    assert found.secure is (set(words) == {"https"} if words else tls)


@pytest.mark.parametrize(
    ("tls", "peer", "proto", "secure"),
    [
        (True, "9.9.9.9", [], True),
        (False, "9.9.9.9", [], False),
        (False, "127.0.0.1", [], False),
        (False, "127.0.0.1", ["https"], True),
        (False, "127.0.0.1", ["HTTPS"], True),
        (False, "127.0.0.1", ["http"], False),
        (False, "127.0.0.1", ["https, http"], False),
        (False, "127.0.0.1", ["http", "https"], False),
        (False, "127.0.0.1", ["https, https"], True),
        (False, "9.9.9.9", ["https"], False),
        (True, "127.0.0.1", ["http"], False),
        (True, "9.9.9.9", ["http"], True),
    ],
)
def test_secure_is_tls_or_the_word_of_a_trusted_proxy(
    tls: bool, peer: str, proto: list[str], secure: bool
) -> None:
    assert (
        through(
            PROXIES, "127.0.0.1", peer, *(("x-forwarded-proto", value) for value in proto), tls=tls
        ).secure
        is secure
    )


NAMES = ("localhost", "Box.local", "127.0.0.1", "::1", "*.bridge.example")


def test_allowed_names_are_those_of_certificate_url_and_addresses() -> None:
    settings = conf(bridge_public_url="https://Public.example:9443", bridge_host="10.0.0.7")
    names = allowed_names(settings, NAMES, ["192.168.1.5"])
    assert names == {
        "localhost",
        "box.local",
        "127.0.0.1",
        "::1",
        "*.bridge.example",
        "192.168.1.5",
        "public.example",
        "10.0.0.7",
    }
    assert "8.8.8.8" not in allowed_names(conf(), NAMES, ["8.8.8.8"])
    assert allowed_names(conf(bridge_host="0.0.0.0"), NAMES, ["8.8.8.8"]) >= {"8.8.8.8"}


HOSTS = {
    True: "localhost LOCALHOST:8443 box.local. [::1]:8443 [0:0::1] 127.0.0.1:1 a.bridge.example",
    False: "a.b.bridge.example bridge.example evil.example evil.example:8443 [ 10.0.0.1",
}


@pytest.mark.parametrize(("header", "allowed"), [*cases(HOSTS), ("", False)])
def test_host_header(header: str, allowed: bool) -> None:
    assert host_allowed(allowed_names(conf(), NAMES), header) is allowed


ORIGINS = {
    True: "https://localhost:8443 https://LOCALHOST:8443 https://[::1]:8443 "
    "https://x.bridge.example:8443 https://public.example https://public.example:443 "
    "https://app.example http://localhost:3000 capacitor://localhost",
    # https://localhost is another server of this machine
    False: "https://localhost https://localhost:3000 http://localhost:8443 null file:// https://[ "
    "https://public.example:444 http://public.example https://evil.example ionic://localhost "
    "https://localhost.evil.example:8443 https://localhost:99999",
}


@pytest.mark.parametrize(("origin", "allowed"), [*cases(ORIGINS), (None, True), ("", False)])
def test_origin(origin: str | None, allowed: bool) -> None:
    settings = conf(
        bridge_public_url="https://public.example",
        bridge_allowed_origins="https://app.example/, http://localhost:3000, capacitor://localhost",
    )
    assert origin_allowed(settings, allowed_names(settings, NAMES), origin) is allowed


@given(st.text())
def test_no_text_breaks_the_checks(text: str) -> None:
    names = allowed_names(conf(), NAMES)
    assert host_allowed(names, text) in (True, False)
    assert origin_allowed(conf(), names, text) is False


def at(url: str) -> dict[str, str]:
    return {"bridge_public_url": url}


@pytest.mark.parametrize(
    ("settings", "host", "base"),
    [
        ({}, "", "https://localhost:8443"),
        ({}, "192.168.1.5", "https://192.168.1.5:8443"),
        ({}, "::ffff:10.0.0.1", "https://10.0.0.1:8443"),
        ({}, "fd00::2", "https://[fd00::2]:8443"),
        ({"bridge_port": 443}, "box.local", "https://box.local"),
        ({"bridge_host": "10.0.0.7", "bridge_port": 9000}, "", "https://10.0.0.7:9000"),
        (at("https://p.example/"), "10.0.0.1", "https://p.example"),
        (at("https://p.example:1/b"), "", "https://p.example:1/b"),
        (at("http://p.example"), "", "http://p.example"),
    ],
)
def test_own_addresses(settings: dict[str, Any], host: str, base: str) -> None:
    assert base_url(conf(**settings), host) == base
    assert websocket_url(base) == base.replace("http", "ws", 1) + "/api/v1/ws"


def test_every_mode_is_described_in_one_sentence() -> None:
    texts = [MODE_DESCRIPTIONS[mode] for mode in ConnectionMode]
    assert len(set(texts)) == 5
    assert all(text.endswith(".") and text.count(". ") == 0 for text in texts)
