"""Starting, asking and ending the server under test; plain sockets where a library would be too polite."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.servers import free_port

PROJECT = Path(__file__).resolve().parents[2]


def wait_for(condition: Callable[[], Any], seconds: float = 10) -> Any:
    """The condition's first true value; AssertionError when none comes in time."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)
    return value


class Edge:
    """A server process. ``arguments`` and ``environment`` go to ``tests.edge.program``."""

    def __init__(self, data: Path, *arguments: str, plain: bool = False, **environment: str) -> None:
        self.data, self.arguments = data, arguments
        self.port, self.plain_port = free_port(), free_port() if plain else 0
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("BRIDGE_")} | {
            "BRIDGE_DATA_DIR": str(data),
            "BRIDGE_PORT": str(self.port),
            "PYTHONWARNINGS": "always::ResourceWarning",
            **({"BRIDGE_PLAIN_PORT": str(self.plain_port)} if plain else {}),
            **environment,
        }
        self.process: subprocess.Popen[str] | None = None
        self.log_path = data.with_suffix(".log")

    def spawn(self) -> Edge:
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.edge.program", *self.arguments], env=self.environment, cwd=PROJECT, stdout=subprocess.PIPE, stderr=log, text=True
            )
        return self

    def start(self) -> Edge:
        return self.spawn().ready()

    def ready(self) -> Edge:
        process = self.process
        assert process is not None and process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 20)
        assert ready and process.stdout.readline() == "listening\n", self.log
        return self

    __enter__ = start

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self, seconds: float = 15) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    @property
    def memory(self) -> int:
        """Resident bytes of the server."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status")
        if status.exists():
            return int(status.read_text().partition("VmRSS:")[2].split()[0]) * 1024
        return int(subprocess.run(["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, text=True, check=True).stdout) * 1024

    # -- clients --

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.data / "tls" / "ca.crt"))

    def stream(self, host: str = "127.0.0.1", *, plain: bool = False) -> socket.socket:
        raw = socket.create_connection((host, self.plain_port if plain else self.port), timeout=20)
        return raw if plain else self.context().wrap_socket(raw, server_hostname=host)

    def http(self, *, plain: bool = False, host: str = "127.0.0.1") -> http.client.HTTPConnection:
        if plain:
            return http.client.HTTPConnection(host, self.plain_port, timeout=20)
        return http.client.HTTPSConnection(host, self.port, timeout=20, context=self.context())

    def get(self, path: str, headers: dict[str, str] | None = None, *, plain: bool = False, host: str = "127.0.0.1") -> tuple[int, Any]:
        connection = self.http(plain=plain, host=host)
        try:
            connection.request("GET", path, headers=headers or {})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def stats(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.get("/stats")[1]
        return answer

    def websocket(self, path: str = "/ws", *, plain: bool = False, **options: Any) -> ClientConnection:
        port, context = (self.plain_port, None) if plain else (self.port, self.context())
        opened: ClientConnection = connect(f"{'ws' if plain else 'wss'}://127.0.0.1:{port}{path}", ssl=context, max_size=None, proxy=None, **options)
        return opened


def read_response(stream: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """One response from a bare socket: status, headers in lower case, body by its Content-Length."""
    response = http.client.HTTPResponse(stream)
    response.begin()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
