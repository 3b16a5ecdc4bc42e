"""What stops the start (D16, D44, D45): one line that names the setting, no traceback, no listening
socket.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.bridge import REPOSITORY, Bridge

pytestmark = pytest.mark.spec("settings")

BAD: dict[str, dict[str, str]] = {
    "BRIDGE_HOOK_TOKEN": {"BRIDGE_HOOK_TOKEN": "short"},
    "BRIDGE_ADMIN_TOKEN": {"BRIDGE_ADMIN_TOKEN": "x" * 31},
    "BRIDGE_PORT": {"BRIDGE_PORT": "70000"},
    "BRIDGE_ALLOWED_ROOTS": {"BRIDGE_ALLOWED_ROOTS": "/no/such/directory"},
    "BRIDGE_MAX_WEBSOCKETS": {"BRIDGE_MAX_WEBSOCKETS": "many"},
    "BRIDGE_MIN_CLIENT_VERSION": {"BRIDGE_MIN_CLIENT_VERSION": "one"},
    "BRIDGE_TRUSTED_PROXIES": {"BRIDGE_TRUSTED_PROXIES": "not-an-address"},
    "DATABASE_URL": {"DATABASE_URL": "nonsense"},
    "BRIDGE_TLS_CERT": {
        "BRIDGE_TLS_CERT": "/no/such/file.pem",
        "BRIDGE_TLS_KEY": "/no/such/key.pem",
    },
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Exit code and output of `serve` with each bad setting, started two at a time."""
    results: dict[str, tuple[int, str]] = {}
    names = list(BAD)
    for group in (names[start : start + 2] for start in range(0, len(names), 2)):
        processes = {}
        for name in group:
            bridge = Bridge(tmp_path_factory.mktemp("bad"), **BAD[name])
            processes[name] = subprocess.Popen(
                [sys.executable, "manage.py", "serve"],
                cwd=REPOSITORY,
                env=bridge.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                stdin=subprocess.DEVNULL,
            )
        for name, process in processes.items():
            try:
                output, _ = process.communicate(timeout=180)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                output = f"IT STARTED\n{output}"
            results[name] = (process.returncode, output)
    return results


@pytest.mark.parametrize("name", BAD)
@pytest.mark.spec("severity.fatal")
def test_a_bad_value_stops_the_start(outcomes: dict[str, tuple[int, str]], name: str) -> None:
    """D44: a bad value stops the start with one line that names the setting (and does not print a
    secret).
    """
    code, output = outcomes[name]
    assert code not in (0, -9), output
    assert name in output and "Traceback" not in output, output
    assert len(output.strip().splitlines()) == 1, output
    if name.endswith("TOKEN"):
        assert BAD[name][name] not in output.replace("shorter", "")


def test_a_port_that_is_taken(shared: Bridge, tmp_path: Path) -> None:
    """It says so and ends; the one that listens goes on."""
    bridge = Bridge(tmp_path, BRIDGE_PORT=str(shared.port))
    done = subprocess.run(
        [sys.executable, "manage.py", "serve"],
        cwd=REPOSITORY,
        env=bridge.environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (
        done.returncode != 0
        and str(shared.port) in done.stdout + done.stderr
        and "Traceback" not in done.stderr
    ), done.stderr
    assert shared.get("/api/v1/health", shared.hook_token).status == 200


def test_listens_where_it_was_told(shared: Bridge) -> None:
    """D44: BRIDGE_HOST 127.0.0.1 listens there alone."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    local = {
        row.split()[1].split(":")[0]
        for row in rows
        if row.split()[1].endswith(f":{shared.port:04X}") and row.split()[3] == "0A"
    }
    assert local == {socket.inet_aton("127.0.0.1")[::-1].hex().upper()}
