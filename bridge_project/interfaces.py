"""The addresses of this machine, as the system tells them; no name is looked up and no packet sent."""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import sys
from typing import Any

_LOOPBACK = ("127.0.0.1", "::1")
_BSD = sys.platform == "darwin" or "bsd" in sys.platform  # there a sockaddr begins with its length, and the family is one byte


class _IfAddrs(ctypes.Structure):
    pass


_IfAddrs._fields_ = [
    ("ifa_next", ctypes.POINTER(_IfAddrs)),
    ("ifa_name", ctypes.c_char_p),
    ("ifa_flags", ctypes.c_uint),
    ("ifa_addr", ctypes.c_void_p),
]  # the rest of the structure is not read: it is the system's, and only ever followed by its own pointers


def local_addresses() -> tuple[str, ...]:
    """Every address of every interface, as text, loopback first; never empty.

    Link-local IPv6 addresses are left out: they mean nothing without an interface, so no certificate or URL can hold them.
    """
    found = dict.fromkeys(_LOOPBACK)
    for text in _from_system() or _from_routes():
        address = ipaddress.ip_address(text)
        if not (address.version == 6 and address.is_link_local):
            found[str(address)] = None
    return tuple(found)


def primary_address() -> str | None:
    """The IPv4 address (IPv6 where there is none) by which this machine reaches other networks; None when it reaches none."""
    routes = _from_routes()
    return routes[0] if routes else None


def _from_system() -> list[str]:
    """getifaddrs(3): what Linux, macOS and the BSDs have in common."""
    library = ctypes.CDLL(None)  # the C library is in the process already
    head: Any = ctypes.POINTER(_IfAddrs)()
    if not hasattr(library, "getifaddrs") or library.getifaddrs(ctypes.byref(head)) != 0:
        return []
    library.freeifaddrs.argtypes = [ctypes.POINTER(_IfAddrs)]
    found: list[str] = []
    try:
        entry = head
        while entry:
            if entry.contents.ifa_addr:
                text = _address_at(entry.contents.ifa_addr)
                if text is not None:
                    found.append(text)
            entry = entry.contents.ifa_next
    finally:
        library.freeifaddrs(head)
    return found


def _address_at(sockaddr: int) -> str | None:
    start = ctypes.string_at(sockaddr, 2)
    family = start[1] if _BSD else int.from_bytes(start, sys.byteorder)
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, ctypes.string_at(sockaddr + 4, 4))
    if family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, ctypes.string_at(sockaddr + 8, 16))
    return None


def _from_routes() -> list[str]:
    """The source addresses that the routing table chooses; connecting a datagram socket sends nothing."""
    found: list[str] = []
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                found.append(str(probe.getsockname()[0]).partition("%")[0])
        except OSError:
            continue  # no route of this family
    return found
