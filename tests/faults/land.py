"""A bridge on one host, its clients on another: two cables between them, as a phone has Wi-Fi and a
mobile network.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.bridge import Bridge
from tests.faults.hosts import Cable, Host, hosts, live_on

IMPATIENT = 2  # seconds that a client waits for an answer


@dataclass
class Land:
    """`bridge.dial` goes over Wi-Fi."""

    server: Host
    clients: Host
    wifi: Cable
    mobile: Cable
    bridge: Bridge

    def over(self, cable: Cable) -> Callable[[float], socket.socket]:
        return lambda timeout: self.clients.dial(
            cable.here, self.bridge.port, min(timeout, IMPATIENT), source=cable.there
        )


@contextmanager
def land(directory: Path, **settings: Any) -> Iterator[Land]:
    """Skips the test where there can be no hosts."""
    with hosts(2) as (server, clients):
        wifi, mobile = Cable(server, clients), Cable(server, clients)
        bridge = Bridge(directory, BRIDGE_HOST="0.0.0.0", **settings)
        live_on(bridge, server)
        made = Land(server, clients, wifi, mobile, bridge)
        bridge.dial = made.over(wifi)
        try:
            bridge.start()
            yield made
        finally:
            bridge.hang_up()
            assert bridge.process is not None
            bridge.kill()
