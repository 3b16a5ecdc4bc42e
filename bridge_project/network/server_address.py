"""Find this machine's addresses; record the bridge's for its commands (D43).

``serve`` writes it into the data directory. No name is looked up and no packet sent.
"""

import contextlib
import fcntl
import ipaddress
import json
import shlex
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from bridge_project.kernel.config import Conf
from bridge_project.kernel.own_commands import make_command
from bridge_project.kernel.private_files import make_private_dir, write_private_file
from bridge_project.network import transport
from bridge_project.network.certificate_files import Certificates


@dataclass(frozen=True, slots=True)
class Address:
    """Hold the bridge's URLs, its pin and its certificate's fingerprint.

    ``base_url``: https address without a path; ``ws_url``: the WebSocket's address; ``pin``,
    ``fingerprint``: hex SHA-256 of public key and certificate; ``local_ws_url``: the WebSocket as
    this machine reaches it, past any proxy or tunnel that the others name; empty when unknown;
    ``arguments``: what `serve` was given, as a shell takes it; ``environment``: the settings that
    its environment had, of secrets only that (`Conf.environment`).
    """

    base_url: str
    ws_url: str
    pin: str
    fingerprint: str
    local_ws_url: str = ""
    arguments: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int | None:
        """Return the port on which the bridge listens itself."""
        return urlsplit(self.local_ws_url).port


def holder(conf: Conf) -> str:
    """Return the number of the process that serves, empty for none; it may be dead."""
    with contextlib.suppress(OSError), (conf.bridge_data_dir / "serve.lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(20).strip() or "unknown"
    return ""


def local_addresses() -> tuple[str, ...]:
    """Return every interface's addresses as text, loopback first; never empty.

    Link-local IPv6 addresses are left out: they mean nothing without an interface, so no
    certificate and no URL can hold them.
    """
    found = dict.fromkeys(("127.0.0.1", "::1"))
    for interface in psutil.net_if_addrs().values():
        for entry in interface:
            if entry.family in (socket.AF_INET, socket.AF_INET6):
                address = ipaddress.ip_address(entry.address.partition("%")[0])
                if not (address.version == 6 and address.is_link_local):
                    found[str(address)] = None
    return tuple(found)


def _primary_address() -> str | None:
    """Return the address that reaches other networks, IPv4 first, or None.

    Connecting a datagram socket sends nothing: the routing table chooses the source address.
    """
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                return str(probe.getsockname()[0]).partition("%")[0]
        except OSError:
            continue  # no route of this family
    return None


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


def run_command(conf: Conf, **changed: str) -> str:
    """Return the command that starts the bridge as last time, but for ``changed``."""
    last = None
    with contextlib.suppress(OSError):  # it is another user's
        last = recorded(conf)
    settings = dict(last.environment) if last else {}
    settings = {name: one for name, one in settings.items() if conf.environment.get(name) != one}
    if last and last.port not in (None, conf.bridge_port):  # at which devices look for it
        settings["BRIDGE_PORT"] = str(last.port)
    settings = {**changed, **settings, **changed}  # what is changed stands first
    given = "".join(f"{name}={shlex.quote(one)} " for name, one in settings.items())
    return given + make_command(conf, "run", last.arguments if last else "")


def current(conf: Conf, certificates: Certificates) -> Address:
    """Return the address for other devices: BRIDGE_PUBLIC_URL, else the network's."""
    host = conf.bridge_host
    if host in transport.EVERYWHERE:  # the address that reaches the network; "" without one
        others = [
            one for one in local_addresses() if transport.mode_of_address(one) != "local_only"
        ]
        others.sort(key=lambda one: ":" in one)
        found = [one for one in (_primary_address(), *others) if one]
        host = next((one for one in found if transport.accepts_on(conf.bridge_host, one)), "")
    base = transport.base_url(conf, host)
    return Address(
        base_url=base,
        ws_url=transport.websocket_url(base),
        pin=certificates.pin,
        fingerprint=certificates.fingerprint,
        local_ws_url=transport.websocket_url(transport.local_url(conf)),
        environment=conf.environment,
    )
