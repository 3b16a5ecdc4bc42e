"""Where `serve` listens (D19, D44)."""

from pathlib import Path

import psutil

from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge


def test_a_port_that_is_taken(shared: Bridge, tmp_path: Path) -> None:
    """The one that listens goes on."""
    done = QuickBridge(tmp_path, BRIDGE_PORT=str(shared.port)).manage("serve", check=False)
    assert done.returncode == 1 and str(shared.port) in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert shared.get("/api/v1/health", shared.hook_token).status == 200


def test_listens_where_it_was_told(shared: Bridge, public: Bridge) -> None:
    """BRIDGE_HOST 127.0.0.1 is there alone; so is the plain listener."""
    sockets = psutil.net_connections("tcp")
    listening = [one.laddr for one in sockets if one.laddr and one.status == psutil.CONN_LISTEN]
    for bridge in (shared, public):
        for port in {int(bridge.settings.get("BRIDGE_PLAIN_PORT", bridge.port)), bridge.port}:
            hosts = {address.ip for address in listening if address.port == port}
            assert hosts and hosts <= {"127.0.0.1", "::1"}
