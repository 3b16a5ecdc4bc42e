"""Classify a connection: encryption, client, kind of network (D18 to D20). Pure."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from bridge_project.kernel.config import Conf
from bridge_project.kernel.setting_types import IPNetwork
from bridge_project.protocol.types import ConnectionMode

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Headers = Iterable[tuple[bytes, bytes]]

# One sentence on each mode (SPEC Authentication 7), for `connection_ack`.
MODE_DESCRIPTIONS: Final[Mapping[ConnectionMode, str]] = {
    "local_only": "The client runs on the same machine as the bridge.",
    "private_network": "The client reaches the bridge over a private network.",
    "secure_remote": "The client reaches the bridge through a private mesh or a secure tunnel.",
    "direct_public": "The bridge is reached over the public internet without a tunnel; this must be"
    " acknowledged first.",
    "misconfigured": "BRIDGE_PUBLIC_URL is not an https address, so connections are rejected until"
    " it is corrected.",
}
# who reaches the bridge, for its owner
MODE_WORDS: Final[Mapping[ConnectionMode, str]] = {
    "local_only": "this machine only; no phone can reach it",
    "private_network": "devices in the same private network",
    "secure_remote": "devices in your mesh, or through your tunnel",
    "direct_public": "the public internet; each device must acknowledge that first",
    "misconfigured": "misconfigured: BRIDGE_PUBLIC_URL is not an https address, so every device is"
    " rejected until it is corrected",
}

_NETWORKS: Final[Mapping[IPNetwork, ConnectionMode]] = {
    ipaddress.ip_network("127.0.0.0/8"): "local_only",
    ipaddress.ip_network("::1/128"): "local_only",
    # meshes; before fc00::/7, which holds the second
    ipaddress.ip_network("100.64.0.0/10"): "secure_remote",
    ipaddress.ip_network("fd7a:115c:a1e0::/48"): "secure_remote",
    ipaddress.ip_network("10.0.0.0/8"): "private_network",
    ipaddress.ip_network("172.16.0.0/12"): "private_network",
    ipaddress.ip_network("192.168.0.0/16"): "private_network",
    ipaddress.ip_network("fc00::/7"): "private_network",
}
# networks for which the bridge's own authority may sign (D55)
PRIVATE_NETWORKS: Final[tuple[IPNetwork, ...]] = (
    *_NETWORKS,
    *map(ipaddress.ip_network, ("169.254.0.0/16", "fe80::/10")),
)
TUNNEL_DOMAINS: Final = ("ts.net", "trycloudflare.com", "ngrok-free.app")

# Headers that only a proxy or a tunnel sends. From a peer that is no trusted proxy they prove that
# the client is not at the peer's address.
FORWARDING_HEADERS: Final = frozenset(
    (
        *(b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port"),
        *(b"forwarded", b"x-real-ip", b"cf-connecting-ip", b"true-client-ip"),
    )
)
# the values of BRIDGE_HOST that name no one address; compared with, not listened on
EVERYWHERE: Final = ("auto", "0.0.0.0", "::")  # noqa: S104


@dataclass(frozen=True, slots=True)
class Transport:
    """Describe one connection.

    ``client``: the address that limits and logs count; ``base_url``: where this client reaches the
    bridge, without a path.
    """

    secure: bool
    client: str
    mode: ConnectionMode
    via_proxy: bool
    base_url: str


@lru_cache(4096)
def parse_address(text: str) -> IPAddress | None:
    """Parse an IP address; drop brackets, zone and IPv4-mapping; None if invalid."""
    try:
        address = ipaddress.ip_address(text.strip().strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


@lru_cache(4096)
def normalise(text: str) -> str:
    """Return an address in its usual form; anything else as it was."""
    address = parse_address(text)
    return text if address is None else str(address)


@lru_cache(4096)
def mode_of_address(text: str) -> ConnectionMode:
    """Return the network that an address belongs to (D20)."""
    address = parse_address(text)
    if address is None:
        return "direct_public"
    found = (mode for network, mode in _NETWORKS.items() if address in network)
    return next(found, "direct_public")


def accepts_on(host_setting: str, local_address: str) -> bool:
    """Return whether connections to this local address are accepted (D44, D45)."""
    return host_setting != "auto" or mode_of_address(local_address) != "direct_public"


def is_trusted_proxy(conf: Conf, address: str) -> bool:
    """Return whether this peer is a proxy that speaks for many clients (D19)."""
    found = parse_address(address)
    return found is not None and any(found in network for network in conf.bridge_trusted_proxies)


def resolve(
    conf: Conf, *, tls: bool, local_address: str, peer_address: str, headers: Headers
) -> Transport:
    """Derive a `Transport` from a connection's addresses and headers (D19, D20).

    ``headers``: pairs of bytes, names in lower case, as in an ASGI scope. Forwarding headers count
    only when the peer is a trusted proxy.
    """
    forwarding = [
        (name, value.decode("latin-1")) for name, value in headers if name in FORWARDING_HEADERS
    ]
    via_proxy = bool(forwarding) and is_trusted_proxy(conf, peer_address)
    secure, hop = tls, None
    if via_proxy:
        hop = _client_hop(conf, _values(forwarding, b"x-forwarded-for"))
        # it knows better than our own socket; every hop that it reports must have been encrypted
        if schemes := _values(forwarding, b"x-forwarded-proto"):
            secure = all(scheme.lower() == "https" for scheme in schemes)
    if conf.bridge_public_url:
        mode = mode_of_url(conf.bridge_public_url, conf.bridge_tunnel_domains)
    elif via_proxy:
        # our own address says only where the proxy is; one that does not name its client hides it
        mode = mode_of_address(hop) if hop else "direct_public"
    else:
        mode = mode_of_address(local_address)
    public = forwarding or mode_of_address(peer_address) == "direct_public"
    if public and not via_proxy and mode != "misconfigured":
        mode = "direct_public"
    if mode == "misconfigured":
        conf = conf.model_copy(update={"bridge_public_url": ""})  # nobody reaches it by that
    return Transport(
        secure=secure,
        client=hop or normalise(peer_address),
        mode=mode,
        via_proxy=via_proxy,
        base_url=base_url(conf, local_address),
    )


def _values(forwarding: Iterable[tuple[bytes, str]], name: bytes) -> list[str]:
    parts = [part.strip() for key, value in forwarding if key == name for part in value.split(",")]
    return [part for part in parts if part]


def _client_hop(conf: Conf, hops: list[str]) -> str | None:
    """Return the rightmost hop that is not a trusted proxy; the first if all are.

    Anything but an address ends the search: nothing left of it can be trusted.
    """
    found: str | None = None
    for hop in reversed(hops):
        # some proxies write `10.0.0.1:5000` or `[::1]:5000`
        address = parse_address(hop) or parse_address(hop.rpartition(":")[0])
        if address is None:
            return found
        found = str(address)
        if not is_trusted_proxy(conf, found):
            return found
    return found


def mode_of_url(url: str, tunnel_domains: Iterable[str] = ()) -> ConnectionMode:
    """Return the mode of BRIDGE_PUBLIC_URL, by scheme, address or domain.

    No name is looked up.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme != "https" or not host:
        return "misconfigured"
    if parse_address(host) is not None:
        return mode_of_address(host)
    if host == "localhost" or host.endswith(".localhost"):
        return "local_only"
    own = [domain.lower().removeprefix("*").strip(".") for domain in tunnel_domains]
    parents = tuple(f".{domain}" for domain in (*TUNNEL_DOMAINS, *own) if domain)
    tunnel = host in own or host.endswith(parents)
    return "secure_remote" if tunnel else "direct_public"


def base_url(conf: Conf, host: str = "") -> str:
    """Return the public URL, else https at ``host`` (or BRIDGE_HOST), without a path."""
    if conf.bridge_public_url:
        return conf.bridge_public_url
    own = "localhost" if conf.bridge_host in EVERYWHERE else conf.bridge_host
    return _url(host or own, conf.bridge_port)


def local_url(conf: Conf) -> str:
    """Return the bridge's address for this machine, whatever BRIDGE_PUBLIC_URL is."""
    own = "127.0.0.1" if conf.bridge_host in (*EVERYWHERE, "localhost") else conf.bridge_host
    return _url(own, conf.bridge_port)


def _url(host: str, port: int) -> str:
    host = normalise(host)
    netloc = f"[{host}]" if ":" in host else host
    return f"https://{netloc}" if port == 443 else f"https://{netloc}:{port}"


def websocket_url(base: str) -> str:
    """Return the WebSocket's address for a base address: wss for https, else ws."""
    parts = urlsplit(base)
    return f"{'wss' if parts.scheme == 'https' else 'ws'}://{parts.netloc}{parts.path}/api/v1/ws"
