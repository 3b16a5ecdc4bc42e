"""Check that an address is a push service's, before anything is sent to it (D56)."""

import ipaddress
import re
import socket
from typing import Final
from urllib.parse import SplitResult, urlsplit

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.network.transport import IPAddress, parse_address

_COMPANIES: Final = {
    "fcm.googleapis.com": "Google",
    ".push.apple.com": "Apple",
    ".push.services.mozilla.com": "Mozilla",
    ".notify.windows.com": "Microsoft",
}
SERVICES: Final = ("fcm.googleapis.com",)
DOMAINS: Final = tuple(end for end in _COMPANIES if end.startswith("."))
_NAME: Final = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63}){0,9}")
_PRINTED: Final = re.compile(r"[!-\[\]-~]+")  # ASCII without space and backslash
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")


def host_of(endpoint: str) -> str:
    return urlsplit(endpoint).hostname or ""


def service_of(host: str) -> str:
    """Return whose push service it is, as people call it."""
    return next((name for end, name in _COMPANIES.items() if host.endswith(end)), host)


def check(endpoint: str) -> SplitResult:
    """Check a push address; return its normalised parts.

    Raises BridgeError PUSH_ENDPOINT_REFUSED.
    """
    try:
        parts = urlsplit(endpoint)
        port = parts.port or 443
    except ValueError:
        raise BridgeError("PUSH_ENDPOINT_REFUSED", "The endpoint is no address.") from None
    host = parts.hostname or ""
    if not _PRINTED.fullmatch(endpoint) or parts.scheme != "https" or "@" in parts.netloc:
        raise BridgeError("PUSH_ENDPOINT_REFUSED", "The endpoint is no https address.")
    known = (host in SERVICES or host.endswith(DOMAINS)) and port == 443
    if not _NAME.fullmatch(host) or not (known or _is_named(host)):
        text = "The endpoint is not at a push service that the bridge knows."
        raise BridgeError("PUSH_ENDPOINT_REFUSED", text)
    named = host if port == 443 else f"{host}:{port}"
    return parts._replace(netloc=named, path=parts.path or "/", fragment="")


def resolve(parts: SplitResult) -> list[tuple[str, int]]:
    """Look up an endpoint's host once; return its allowed addresses.

    A private one only where BRIDGE_PUSH_HOSTS names the host. Raises OSError when the name is not
    known, BridgeError PUSH_ENDPOINT_REFUSED when every address is private.
    """
    host, port = parts.hostname or "", parts.port or 443
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(str(one[4][0]) for one in found)
    allowed = [one for one in addresses if _is_named(host) or is_public(one)]
    if not allowed:
        text = f"{host} is in a private network; nothing is sent there."
        raise BridgeError("PUSH_ENDPOINT_REFUSED", text)
    return [(address, port) for address in allowed]


def is_public(text: str) -> bool:
    """Return whether an address is public, also one embedded in an IPv6 address."""
    address = parse_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        within: IPAddress | None = address.sixtofour
        if address in _NAT64:
            within = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        address = within or (None if address.teredo else address)
    return address is not None and address.is_global and not address.is_multicast


def _is_named(host: str) -> bool:
    return host in {name.lower() for name in conf.bridge_push_hosts}
