"""Record the bridge's address for the commands and the pairing QR code (D43).

``serve`` writes it into the data directory.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from bridge_project.kernel.config import Conf
from bridge_project.kernel.private_files import make_private_dir, write_private_file
from bridge_project.network import interfaces, transport
from bridge_project.network.certificate_files import Certificates


@dataclass(frozen=True, slots=True)
class Address:
    """Hold the bridge's URLs, its pin and its certificate's fingerprint.

    ``base_url``: https address without a path; ``ws_url``: the WebSocket's address; ``pin``,
    ``fingerprint``: hex SHA-256 of public key and certificate; ``local_ws_url``: the WebSocket as
    this machine reaches it, past any proxy or tunnel that the others name; empty when unknown.
    """

    base_url: str
    ws_url: str
    pin: str
    fingerprint: str
    local_ws_url: str = ""


def path(conf: Conf) -> Path:
    return conf.bridge_data_dir / "server.json"


def record(conf: Conf, address: Address) -> None:
    make_private_dir(conf.bridge_data_dir)
    write_private_file(path(conf), json.dumps(asdict(address), indent=2).encode() + b"\n")


def recorded(conf: Conf) -> Address | None:
    """Return what ``serve`` wrote last; None if it never ran with this directory."""
    try:
        return Address(**json.loads(path(conf).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def current(conf: Conf, certificates: Certificates) -> Address:
    """Return the address for other devices: BRIDGE_PUBLIC_URL, else the network's."""
    host = conf.bridge_host
    if host in transport.EVERYWHERE:  # the address that reaches the network; "" without one
        local = transport.ConnectionMode.LOCAL_ONLY
        there = interfaces.local_addresses()
        others = [one for one in there if transport.mode_of_address(one) != local]
        others.sort(key=lambda one: ":" in one)
        found = [one for one in (interfaces.primary_address(), *others) if one]
        host = next((one for one in found if transport.accepts_on(conf.bridge_host, one)), "")
    base = transport.base_url(conf, host)
    return Address(
        base_url=base,
        ws_url=transport.websocket_url(base),
        pin=certificates.pin,
        fingerprint=certificates.fingerprint,
        local_ws_url=transport.websocket_url(transport.local_url(conf)),
    )
