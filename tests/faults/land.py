"""A bridge on one host; clients and an agent on another, by two cables: Wi-Fi and mobile."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hooks_app.producer.__main__ import make_one_file
from hooks_app.producer.shell_command import hook_command, write_hook_script
from hooks_app.producer.spool import spool_status
from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.samples import new_session
from tests.faults.hosts import Cable, Host, bridge_on, hosts
from tests.servers import stop_process

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


class Agent:
    """A coding agent on the clients' host, with a spool and a forwarder there (D47)."""

    def __init__(self, land: Land, directory: Path) -> None:
        self.land, self.session_id, self.fired = land, new_session(), 0
        self.spool, self.said = directory / "spool", directory / "forwarder.log"
        self.spool.mkdir(mode=0o700)
        write_hook_script(self.spool)
        self.token, self.producer = directory / "token", directory / "producer.py"
        make_one_file(self.producer)
        self.token.write_text(land.bridge.hook_token)
        self.forwarder: subprocess.Popen[bytes] | None = None

    def forward(self, pin: str) -> None:
        """Start the forwarder."""
        url = f"https://{self.land.wifi.here}:{self.land.bridge.port}"
        command = [sys.executable, str(self.producer), "--spool", str(self.spool), "--url", url]
        with self.said.open("ab") as said:
            self.forwarder = subprocess.Popen(
                [*self.land.clients.enter, *command, "--token-file", str(self.token), "--pin", pin],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stderr=said,
            )

    def stop(self) -> None:
        if self.forwarder is not None:
            stop_process(self.forwarder)

    def fire(self, count: int = 1) -> None:
        """The hook of a prompt, as the agent runs it."""
        for _ in range(count):
            raw = {
                "hook_event_name": "UserPromptSubmit",
                "session_id": self.session_id,
                "prompt": f"prompt {self.fired}",
                "number": self.fired,
            }
            done = subprocess.run(
                ["/bin/sh", "-c", hook_command(str(self.spool))],
                input=json.dumps(raw).encode(),
                capture_output=True,
                timeout=10,
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
            self.fired += 1

    def waiting(self) -> int:
        return int(spool_status(self.spool)["waiting"])


@contextmanager
def land(directory: Path, **settings: Any) -> Iterator[Land]:
    """Skips the test where there can be no hosts."""
    with hosts(2) as (server, clients):
        wifi, mobile = Cable(server, clients), Cable(server, clients)
        bridge = bridge_on(server, directory, BRIDGE_HOST="0.0.0.0", **settings)
        made = Land(server, clients, wifi, mobile, bridge)
        bridge.dial = made.over(wifi)
        try:
            bridge.start()
            yield made
        finally:
            bridge.hang_up()
            assert bridge.process is not None
            bridge.kill()
