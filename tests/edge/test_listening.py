"""Which sockets are bound for each BRIDGE_HOST, with and without IPv6 (D44)."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from bridge_project.edge.connection import bind
from bridge_project.kernel.config import ConfError
from tests.servers import free_port


@pytest.mark.parametrize(
    ("host", "address"),
    [("auto", "0.0.0.0"), ("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")],
)
def test_a_machine_without_ipv6(monkeypatch: pytest.MonkeyPatch, host: str, address: str) -> None:
    class Without(socket.socket):
        def __init__(self, family: int = -1, *more: Any) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *more)

    port = free_port()
    monkeypatch.setattr(socket, "socket", Without)
    with ExitStack() as closing:
        assert [one.getsockname()[0] for one in bind(host, port, "BRIDGE_PORT", closing)] == [
            address
        ]
    with (
        ExitStack() as closing,
        pytest.raises(ConfError, match=r"^BRIDGE_PORT: cannot listen on ::1 port"),
    ):
        bind("::1", port, "BRIDGE_PORT", closing)


def test_sockets_are_closed_whatever_happens() -> None:
    with ExitStack() as closing:
        sockets = bind("127.0.0.1", free_port(), "BRIDGE_PORT", closing)
    assert [one.fileno() for one in sockets] == [-1]
