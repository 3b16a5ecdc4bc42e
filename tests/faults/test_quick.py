"""The quick bridge is a real one: its own process and session, killed by SIGKILL, ended in order by
SIGTERM, never outliving the tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.conformance.bridge import REPOSITORY
from tests.conformance.samples import new_session, prompt
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

ABANDON = """
import os, sys
from pathlib import Path
from tests.faults.quick import QuickBridge
bridge = QuickBridge(Path(sys.argv[1])).start()
print(bridge.process.pid, flush=True)
os._exit(0)
"""


def test_it_is_killed_and_ended_like_any_process(tmp_path: Path) -> None:
    bridge = QuickBridge(tmp_path).start()
    assert bridge.process is not None
    first = bridge.process.pid
    assert os.getsid(first) == first != os.getsid(0)
    bridge.kill()
    assert bridge.process.returncode == -signal.SIGKILL
    bridge.start()
    assert bridge.process.pid != first
    assert bridge.stop() == 0, bridge.tail()


def test_two_have_their_own_settings_and_logs(tmp_path: Path) -> None:
    """D42, D44: settings come from each one's environment, not from the process that forked it, nor
    from the other.
    """
    first, second = (
        QuickBridge(tmp_path / "first").start(),
        QuickBridge(tmp_path / "second", BRIDGE_MAX_WEBSOCKETS="3").start(),
    )
    sid = new_session()
    first.accept(prompt(sid, 1))
    assert first.knows(sid) and not second.knows(sid)
    assert first.get("/api/v1/health", second.hook_token).status == 401
    limits = [
        bridge.get("/api/v1/info", bridge.admin_token).json()["limits"]["max_websocket_connections"]
        for bridge in (first, second)
    ]
    assert limits == [5, 3]
    for bridge in (first, second):
        lines = [
            json.loads(line)
            for line in (bridge.data / "logs" / "bridge.log").read_text().splitlines()
        ]
        assert any(f"port {bridge.port} " in line["event"] for line in lines)
        assert bridge.stop() == 0, bridge.tail()


def test_commands_and_pairings(tmp_path: Path) -> None:
    bridge = QuickBridge(tmp_path).start()
    pairing = bridge.mint("--name", "a phone")
    assert pairing.name == "a phone" and "a phone" in bridge.manage("list_devices").stdout
    with bridge.phones(1):
        pass
    assert bridge.manage("revoke_device", "nobody", check=False).returncode == 1
    assert bridge.stop() == 0, bridge.tail()


def test_nothing_outlives_the_tests(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABANDON, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    pid = int(done.stdout)
    wait_until(
        lambda: not Path(f"/proc/{pid}").exists(),
        10,
        "the server is gone with the process that started it",
    )
