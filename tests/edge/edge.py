"""Starting, asking and ending the server under test; plain sockets where a library would be too
polite.
"""

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
from typing import IO, Any, ClassVar

from tests.faults.quick import nursery
from tests.servers import Running, free_port
from tests.websocket import WebSocket

PROJECT = Path(__file__).resolve().parents[2]
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
# All are forked from one template: what it read of its own environment, and how it logs, is not
# theirs.
FORKED = """
import json, logging, os, runpy, sys, warnings
os.environ.clear()
os.environ.update(json.loads(sys.argv[1]))
sys.argv = sys.argv[:1] + sys.argv[2:]
for logger in (logging.root, *logging.root.manager.loggerDict.values()):
    if isinstance(logger, logging.Logger):
        logger.handlers.clear()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
warnings.simplefilter("always", ResourceWarning)
warnings.filterwarnings("ignore", r"unclosed <socket\\.socket fd=\\d+, family=1, type=5\\b", ResourceWarning)  # the template's own
runpy.run_module("tests.edge.program", run_name="__main__")
"""


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """The condition's first true value; AssertionError when none comes in time."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)
    return value


class Edge:
    """A server process. ``arguments`` and ``environment`` go to ``tests.edge.program``; ``cold``:
    it is started, not forked from what has it imported.
    """

    template: ClassVar[dict[str, str] | None] = None

    def __init__(
        self,
        data: Path,
        *arguments: str,
        plain: bool = False,
        cold: bool = False,
        **environment: str,
    ) -> None:
        self.data, self.arguments, self.cold = data, arguments, cold
        self.port, self.plain_port = free_port(), free_port() if plain else 0
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("BRIDGE_")
        } | {
            "BRIDGE_DATA_DIR": str(data),
            "BRIDGE_PORT": str(self.port),
            "PYTHONWARNINGS": "always::ResourceWarning",
            **({"BRIDGE_PLAIN_PORT": str(self.plain_port)} if plain else {}),
            **environment,
        }
        self.process: Running | None = None
        self.output: IO[str] | None = None
        self.log_path = data.with_suffix(".log")

    def spawn(self) -> Edge:
        ours, theirs = os.pipe()
        self.output = os.fdopen(ours)
        with open(self.log_path, "wb") as log, open(theirs, "wb") as output:
            if self.cold:
                command = [sys.executable, "-m", "tests.edge.program", *self.arguments]
                self.process = subprocess.Popen(
                    command, env=self.environment, cwd=PROJECT, stdout=output, stderr=log
                )
            else:
                Edge.template = Edge.template or self.environment
                self.process = nursery.spawn(
                    ["-c", json.dumps(self.environment), *self.arguments],
                    Edge.template,
                    output,
                    log,
                    FORKED,
                )
        return self

    def start(self) -> Edge:
        return self.spawn().ready()

    def ready(self) -> Edge:
        assert self.output is not None
        ready, _, _ = select.select([self.output], [], [], 120)
        assert ready and self.output.readline() == "listening\n", self.log
        return self

    __enter__ = start

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self.output is not None:
            self.output.close()

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self, seconds: float = 60) -> int:
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
        return (
            int(
                subprocess.run(
                    ["ps", "-o", "rss=", "-p", str(self.process.pid)],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )
            * 1024
        )

    # -- clients --

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.data / "tls" / "ca.crt"))

    def stream(self, host: str = "127.0.0.1", *, plain: bool = False) -> socket.socket:
        raw = socket.create_connection((host, self.plain_port if plain else self.port), timeout=180)
        return raw if plain else self.context().wrap_socket(raw, server_hostname=host)

    def http(self, *, plain: bool = False, host: str = "127.0.0.1") -> http.client.HTTPConnection:
        if plain:
            return http.client.HTTPConnection(host, self.plain_port, timeout=180)
        return http.client.HTTPSConnection(host, self.port, timeout=180, context=self.context())

    def get(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        *,
        plain: bool = False,
        host: str = "127.0.0.1",
    ) -> tuple[int, Any]:
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

    def websocket(
        self,
        path: str = "/ws",
        *,
        plain: bool = False,
        headers: dict[str, str] | None = None,
        compress: bool = True,
    ) -> WebSocket:
        uri = (
            f"ws://127.0.0.1:{self.plain_port}{path}"
            if plain
            else f"wss://127.0.0.1:{self.port}{path}"
        )
        return WebSocket(self.stream(plain=plain), uri, headers=headers, compress=compress)


def read_response(stream: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """One response from a bare socket: status, headers in lower case, body by its
    Content-Length.
    """
    response = http.client.HTTPResponse(stream)
    response.begin()
    return (
        response.status,
        {name.lower(): value for name, value in response.getheaders()},
        response.read(),
    )
