"""List the addresses of this machine; look up no name and send no packet."""

import ipaddress
import socket

import psutil


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


def primary_address() -> str | None:
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
