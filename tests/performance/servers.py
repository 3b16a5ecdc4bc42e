"""The servers that are measured: bridges, and the yardstick beside them."""

import contextlib
import json
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trustme

from tests.conformance.bridge import REPOSITORY, Bridge, eventually
from tests.conformance.https import LOOPBACK
from tests.conformance.samples import hook
from tests.performance.load import Target
from tests.performance.sockets import Socket
from tests.servers import free_port, stop_process

SESSION = "measured"


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bridge-bench-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@contextlib.contextmanager
def bridge(path: Path, **settings: Any) -> Iterator[Bridge]:
    """A bridge with room for many sockets and without rate limits, otherwise as it comes."""
    made = Bridge(path, **{"BRIDGE_MAX_WEBSOCKETS": "100"} | settings)
    try:
        yield made.start()
    finally:
        if made.process is not None:
            stop_process(made.process)


def process_of(*bridges: Bridge) -> list[int]:
    return [made.process.pid for made in bridges if made.process is not None]


def target(*bridges: Bridge) -> Target:
    """All of them are one bridge. The session exists from here on."""
    bridges[0].accept(hook("SessionStart", SESSION))
    ports, token = [made.port for made in bridges], f"Bearer {bridges[0].hook_token}"
    return Target(ports, "/api/v1/hooks/event", token, process_of(*bridges))


def installed_hook(bridge: Bridge) -> str:
    """The command that `install_hooks` writes."""
    settings = bridge.directory / "settings.json"
    bridge.manage("install_hooks", "--settings", str(settings), "--yes")
    hooks = json.loads(settings.read_text())["hooks"]
    return str(hooks["PreToolUse"][0]["hooks"][0]["command"])


async def connect(bridge: Bridge, token: str, *sessions: str) -> Socket:
    """A phone that is ready and has joined the sessions."""
    opened = await (await Socket.open(bridge.port)).ready(token)
    for session in sessions:
        await opened.join(session)
    return opened


@contextlib.contextmanager
def tutorial(path: Path) -> Iterator[Target]:
    """The yardstick, `tests.performance.tutorial`, in a process."""
    port, token, issued = free_port(), secrets.token_hex(20), trustme.CA().issue_cert(LOOPBACK)
    places = [str(path / f"tutorial.{kind}") for kind in ("pem", "key", "sqlite3")]
    issued.cert_chain_pems[0].write_to_path(places[0])
    issued.private_key_pem.write_to_path(places[1])
    command = [sys.executable, "-m", "tests.performance.tutorial", str(port), *places, token]
    with (path / "tutorial.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )

    def listens() -> bool:
        assert process.poll() is None, (path / "tutorial.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, port)) == 0

    try:
        eventually(listens)
        yield Target([port], "/events/", f"Token {token}", [process.pid])
    finally:
        stop_process(process)
