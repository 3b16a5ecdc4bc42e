"""What stops the start (D16, D44, D45): one line that names the setting, no traceback."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge

pytestmark = pytest.mark.spec("settings")

# of a secret, of a file, of an address; tests/run/test_serve.py has others
BAD = {
    "BRIDGE_HOOK_TOKEN": {"BRIDGE_HOOK_TOKEN": "short-secret"},
    "BRIDGE_TRUSTED_PROXIES": {"BRIDGE_TRUSTED_PROXIES": "not-an-address"},
    "BRIDGE_TLS_CERT": {"BRIDGE_TLS_CERT": "/no/such/file.pem", "BRIDGE_TLS_KEY": "/no/key.pem"},
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.spec("severity.fatal")
def test_a_bad_value_stops_the_start(tmp_path: Path, name: str) -> None:
    """A secret is not printed."""
    done = Bridge(tmp_path, **BAD[name]).manage("serve", check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and name in said and "short-secret" not in said, said
    assert len(said.strip().splitlines()) == 1, said


def test_a_port_that_is_taken(shared: Bridge, tmp_path: Path) -> None:
    """The one that listens goes on."""
    done = QuickBridge(tmp_path, BRIDGE_PORT=str(shared.port)).manage("serve", check=False)
    assert done.returncode == 1 and str(shared.port) in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert shared.get("/api/v1/health", shared.hook_token).status == 200


def test_listens_where_it_was_told(shared: Bridge, public: Bridge) -> None:
    """BRIDGE_HOST 127.0.0.1 is there alone; so is the plain listener (D19)."""
    sockets = psutil.net_connections("tcp")
    listening = [one.laddr for one in sockets if one.laddr and one.status == psutil.CONN_LISTEN]
    for bridge in (shared, public):
        for port in {int(bridge.settings.get("BRIDGE_PLAIN_PORT", bridge.port)), bridge.port}:
            hosts = {address.ip for address in listening if address.port == port}
            assert hosts and hosts <= {"127.0.0.1", "::1"}
