"""The servers that are measured: bridges, and the yardsticks beside them, each on a free port with
a directory of its own.
"""

from __future__ import annotations

import contextlib
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
    ports = [made.port for made in bridges]
    return Target(
        ports,
        "/api/v1/hooks/event",
        f"Bearer {bridges[0].hook_token}",
        session,
        process_of(*bridges),
    )


async def connect(bridge: Bridge, token: str, *sessions: str) -> Socket:
    """A phone as the specification has it: authenticated, ready, and joined to the sessions."""
    opened = await Socket.open(bridge.port, "/api/v1/ws")
    await authenticate(opened, token)
    for session in sessions:
        await opened.ask(
            "session_start",
            "session_ready",
            agent="",
            session_id=session,
            working_directory="/",
            resume=True,
        )
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


class Yardstick:
    """One of our own small servers, `tests.performance.NAME`, in a process."""

    def __init__(self, name: str, scheme: str, post: str, sockets: str, path: Path) -> None:
        self.name, self.socket_path, self.port = name, f"{sockets}{SESSION}", free_port()
        token, issued = secrets.token_hex(20), trustme.CA().issue_cert(HOST)
        issued.private_key_pem.write_to_path(path / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(path / f"{name}.pem")
        arguments = [
            str(self.port),
            str(path / f"{name}.pem"),
            str(path / f"{name}.key"),
            str(path / f"{name}.sqlite3"),
            token,
        ]
        with (path / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-m", f"tests.performance.{name}", *arguments]
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        self.target = Target([self.port], post, f"{scheme} {token}", SESSION, [self.process.pid])
        wait_until(self._listens, f"{name} listens; its log is {path / name}.log")

    def _listens(self) -> bool:
        assert self.process.poll() is None, f"{self.name} has ended"
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
            return True
        return False

    async def connect(self, count: int) -> list[Socket]:
        return [await Socket.open(self.port, self.socket_path) for _ in range(count)]


# Name → how it is posted to: scheme of the token, path of the posts, path of the sockets.
YARDSTICKS = {"tutorial": ("Token", "/events/", "/ws/"), "bare": ("Bearer", "/events", "/ws/")}


@contextlib.contextmanager
def yardsticks(path: Path, *names: str) -> Iterator[list[Yardstick]]:
    """Those named, or all."""
    made: list[Yardstick] = []
    try:
        made.extend(Yardstick(name, *YARDSTICKS[name], path) for name in names or YARDSTICKS)
        yield made
    finally:
        for one in made:
            stop_process(one.process)
