"""The servers that are measured: bridges, and the yardstick beside them, each on a free port with a
directory of its own.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trustme

from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.samples import hook, new_id, now
from tests.performance.load import Target
from tests.performance.sockets import HOST, Socket
from tests.servers import free_port, stop_process, wait_until

SESSION = "measured"
SOCKETS_MAX = "100"


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """For the data of the servers: gone at the end, whatever happens."""
    path = Path(tempfile.mkdtemp(prefix="bridge-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def bridge(path: Path, *, kind: type[Bridge] = Bridge, **settings: Any) -> Iterator[Bridge]:
    """A bridge with room for many sockets and without rate limits, otherwise as it comes."""
    made = kind(path, **{"BRIDGE_MAX_WEBSOCKETS": SOCKETS_MAX} | settings)
    try:
        yield made.start()
    finally:
        if made.process is not None and made.process.poll() is None:
            made.terminate()
            made.ended(30)


def process_of(*bridges: Bridge) -> list[int]:
    return [made.process.pid for made in bridges if made.process is not None]


def target(*bridges: Bridge, session: str = SESSION) -> Target:
    """All of them are one bridge. The session exists from here on."""
    bridges[0].accept(hook("SessionStart", session))
    ports, token = [made.port for made in bridges], f"Bearer {bridges[0].hook_token}"
    return Target(ports, "/api/v1/hooks/event", token, session, process_of(*bridges))


def installed_hook(bridge: Bridge) -> str:
    """The command that `install_hooks` writes."""
    settings = bridge.directory / "settings.json"
    bridge.manage("install_hooks", "--settings", str(settings), "--yes")
    hooks = json.loads(settings.read_text())["hooks"]
    return str(hooks["PreToolUse"][0]["hooks"][0]["command"])


async def connect(bridge: Bridge, token: str, *sessions: str) -> Socket:
    """A phone as the specification has it: authenticated, ready, and joined to the sessions."""
    opened = await Socket.open(bridge.port, "/api/v1/ws")
    await authenticate(opened, token)
    for session in sessions:
        where = {"session_id": session, "working_directory": "/", "resume": True}
        await opened.ask("session_start", "session_ready", agent="", **where)
    return opened


async def authenticate(opened: Socket, token: str) -> None:
    await opened.ask("auth", "connection_ack", token=token, client_version="1.0.0", platform="ios")
    await opened.ask(
        "health_check",
        "health_status",
        timestamp=now(),
        client_nonce=new_id(),
        client_capabilities=["health_v1"],
    )


class Tutorial:
    """The yardstick, `tests.performance.tutorial`, in a process."""

    def __init__(self, path: Path) -> None:
        port, token, issued = free_port(), secrets.token_hex(20), trustme.CA().issue_cert(HOST)
        issued.private_key_pem.write_to_path(path / "tutorial.key")
        issued.cert_chain_pems[0].write_to_path(path / "tutorial.pem")
        places = [str(path / f"tutorial.{kind}") for kind in ("pem", "key", "sqlite3")]
        with (path / "tutorial.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.performance.tutorial", str(port), *places, token],
                cwd=REPOSITORY,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self.port = port
        processes = [self.process.pid]
        self.target = Target([port], "/events/", f"Token {token}", SESSION, processes)
        wait_until(self._listens, f"it listens; its log is {path / 'tutorial.log'}")

    def _listens(self) -> bool:
        assert self.process.poll() is None, "the yardstick has ended"
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
            return True
        return False

    async def connect(self, count: int) -> list[Socket]:
        return [await Socket.open(self.port, f"/ws/{SESSION}") for _ in range(count)]


@contextlib.contextmanager
def tutorial(path: Path) -> Iterator[Tutorial]:
    made = Tutorial(path)
    try:
        yield made
    finally:
        stop_process(made.process)
