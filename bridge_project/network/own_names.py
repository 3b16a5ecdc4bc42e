"""Check Host and Origin headers against the bridge's own names (D18)."""

import re
import socket
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from bridge_project.kernel.config import Conf, ConfError, conf
from bridge_project.network import certificates
from bridge_project.network.server_address import local_addresses
from bridge_project.network.transport import normalise, parse_address

log = structlog.get_logger("bridge.http")

NAMES_SECONDS: Final = 30  # an interface may come up while the bridge runs
# only characters of a host: in a URL nothing else must begin there
_HOST_HEADER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_DEFAULT_PORTS: Final = {"https": 443, "wss": 443, "http": 80, "ws": 80}

_known: tuple[float, frozenset[str]] = (0.0, frozenset())


def own_names(scope: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of certificate, public URL, interfaces and connection.

    In lower case, IPv6 without brackets; ``*.`` begins a name of a whole domain.
    """
    global _known
    until, names = _known
    if time.monotonic() >= until:
        certified = certificates.wanted_names(conf)
        if conf.bridge_tls_cert:
            try:
                certified += certificates.load_or_renew(conf).names
            except ConfError as error:  # the file is being replaced; the names in use stay
                log.warning("certificate_unreadable", error=str(error))
                certified += tuple(names)
        # of all addresses: compared with, not listened on
        names = frozenset(map(_host, certified)) - {"", "0.0.0.0", "::"}  # noqa: S104
        _known = (time.monotonic() + NAMES_SECONDS, names)
    accepted_on = (scope.get("server") or ("",))[0]
    return names | {normalise(str(accepted_on or ""))}


def local_name() -> str | None:
    """Return this machine's ``.local`` name if it is announced and leads here.

    May take seconds where no name server answers.
    """
    name = next((one for one in certificates.wanted_names(conf) if one.endswith(".local")), None)
    if name is None:
        return None  # a host name that no certificate can hold
    try:
        found = {normalise(str(entry[4][0])) for entry in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):  # nobody knows it, or it is too long for a name
        return None
    return name if found & set(local_addresses()) else None


def host_allowed(names: frozenset[str], host_header: str) -> bool:
    """Return whether a ``Host`` header (with or without a port) names this bridge."""
    found = _HOST_HEADER.fullmatch(host_header)
    return found is not None and _named(names, _host(found[1]))


def origin_allowed(conf: Conf, names: frozenset[str], origin: str | None) -> bool:
    """Return whether a page of this origin may open a WebSocket.

    The bridge's own pages may, and those of BRIDGE_ALLOWED_ORIGINS. None (no header) may.
    """
    if origin is None:
        return True
    given = _origin(origin)
    if given is None:
        return False
    listed = [_origin(url) for url in (*conf.bridge_allowed_origins, conf.bridge_public_url)]
    scheme, host, port = given
    return given in listed or (
        scheme == "https" and port == conf.bridge_port and _named(names, host)
    )


def _host(text: str) -> str:
    return normalise(text.lower().rstrip("."))


def _named(names: frozenset[str], host: str) -> bool:
    return host in names or (parse_address(host) is None and "*." + host.partition(".")[2] in names)


def _origin(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme or not parts.hostname:
        return None
    return parts.scheme, _host(parts.hostname), port or _DEFAULT_PORTS.get(parts.scheme)
