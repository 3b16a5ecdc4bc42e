"""The sockets that the server listens on, bound before anything else starts, so that a port in use
is said at once (D44).
"""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

from bridge_project.kernel.config import ConfError

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


def bind(host: str, port: int, setting: str, closing: ExitStack) -> list[socket.socket]:
    """Bound sockets, not yet listening: both families for `auto` and `localhost`, as far as the
    machine has them. Raises ConfError.

    They are closed with ``closing``, whatever becomes of them.
    """
    bound: list[socket.socket] = []
    addresses = {"auto": ("0.0.0.0", "::"), "localhost": ("127.0.0.1", "::1")}.get(host, (host,))  # noqa: S104 - `auto` drops what arrives on a public address
    for address in addresses:
        try:
            bound.append(closing.enter_context(_bound(address, port, dual=host == "::")))
        except OSError as error:
            if len(addresses) == 2 and ":" in address and error.errno in _NO_IPV6:
                continue
            raise cannot_listen(setting, address, port, error) from None
    return bound


def _bound(address: str, port: int, *, dual: bool) -> socket.socket:
    listening = socket.socket(
        socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM
    )
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listening.family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        listening.bind(
            socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[
                0
            ][4]
        )
    except OSError:
        listening.close()
        raise
    return listening


def cannot_listen(setting: str, address: str, port: int, error: OSError) -> ConfError:
    """What is said to whoever started the bridge: one line naming the setting."""
    if error.errno == errno.EADDRINUSE:
        return ConfError(
            f"{setting}: port {port} is in use by another program; stop it, or set {setting} to a free port"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfError(f"BRIDGE_HOST: {address} is not an address of this machine")
    return ConfError(f"{setting}: cannot listen on {address} port {port} ({error.strerror})")
