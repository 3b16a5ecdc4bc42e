"""Which sockets are bound for each BRIDGE_HOST, with and without IPv6 (D44)."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from bridge_project.edge import listening
from bridge_project.kernel.config import ConfError
from tests.servers import free_port

bound = listening._bound


@pytest.fixture
def no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(address: str, port: int, **options: Any) -> socket.socket:
        if ":" in address:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return bound(address, port, **options)

    monkeypatch.setattr(listening, "_bound", without)


@pytest.mark.usefixtures("no_ipv6")
@pytest.mark.parametrize(
    ("host", "address"),
    [("auto", "0.0.0.0"), ("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")],
)
def test_a_machine_without_ipv6(host: str, address: str) -> None:
    with ExitStack() as closing:
        assert [
            one.getsockname()[0]
            for one in listening.bind(host, free_port(), "BRIDGE_PORT", closing)
        ] == [address]
    with (
        ExitStack() as closing,
        pytest.raises(ConfError, match=r"^BRIDGE_PORT: cannot listen on ::1 port"),
    ):
        listening.bind("::1", free_port(), "BRIDGE_PORT", closing)


def test_sockets_are_closed_whatever_happens() -> None:
    with ExitStack() as closing:
        sockets = listening.bind("127.0.0.1", free_port(), "BRIDGE_PORT", closing)
    assert [one.fileno() for one in sockets] == [-1]
