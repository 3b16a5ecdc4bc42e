"""A small real TLS bridge for the producer's tests: it validates and remembers events as the bridge
does, and misbehaves as it is told.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme

from bridge_project.protocol.hooks import HookInvalid, parse_hook_event
from tests.conformance.https import spki_pin

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "hooks"
SCRIPTED = {"field": "payload.x", "message": "scripted", "code": "PAYLOAD_VALIDATION_ERROR"}
TOKEN = "test-hook-token-0123456789abcdefghijklmnop"

# An answer: (status, headers, body); None: the connection is cut after the request was read and
# taken; 0 as status: cut without taking it.
Action = Callable[
    ["ScriptedBridge", str, list[dict[str, Any]]], tuple[int, dict[str, str], dict[str, Any]] | None
]


def fixture(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return loaded


def answer(status: int, body: dict[str, Any] | None = None, **headers: str) -> Action:
    """Refuse the next request like this."""
    return lambda bridge, path, events: (
        status,
        {name.replace("_", "-"): value for name, value in headers.items()},
        body or {},
    )


def cut_after_taking(bridge: ScriptedBridge, path: str, events: list[dict[str, Any]]) -> None:
    bridge.take(events)


class ScriptedBridge:
    """``events``: what was taken, once for each event_id, in order; ``requests``: (path, number of
    events) of every request; ``script``: what to do with the next requests instead of taking them;
    ``skew``: seconds that its clock is ahead."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.ids: set[str] = set()
        self.requests: list[tuple[str, int]] = []
        self.script: deque[Action] = deque()
        self.connections = 0
        self.token = TOKEN
        self.skew = 0.0
        self.refuse: Callable[[dict[str, Any]], bool] = lambda event: False
        self.max_bytes = 10 * 2**20
        certificate = trustme.CA().issue_cert("127.0.0.1")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self._context)
        chain = certificate.cert_chain_pems[0].bytes().decode()
        self.pin = spki_pin(ssl.PEM_cert_to_DER_cert(chain))
        self.port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        self._server.bridge = self
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        return self._context.wrap_socket(connection, server_side=True)

    def now(self) -> float:
        return time.time() + self.skew

    def take(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Validate and remember; the rejected ones come back as the batch's ``errors``."""
        errors = []
        for index, event in enumerate(events):
            rows: list[dict[str, Any]] = [SCRIPTED] if self.refuse(event) else []
            try:
                parse_hook_event(event, now=datetime.fromtimestamp(self.now(), UTC))
            except HookInvalid as invalid:
                rows = [
                    {"field": v.field, "message": v.message, "code": v.code, "rule": v.rule}
                    for v in invalid.violations
                ]
            if rows:
                errors.append({"index": index, "validation_errors": rows})
            elif event["event_id"] not in self.ids:
                self.ids.add(event["event_id"])
                self.events.append(event)
        return errors


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    bridge: ScriptedBridge

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.bridge.connections += 1
        try:
            super().finish_request(self.bridge.wrap(request), client_address)
        except (ssl.SSLError, OSError):
            return


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # one write for an answer, or its second half waits for the client's acknowledgement
    wbufsize = -1

    def do_POST(self) -> None:
        bridge = self.server.bridge
        body = self.rfile.read(int(self.headers["Content-Length"]))
        value = json.loads(body)
        events = value["events"] if self.path.endswith("batch") else [value]
        bridge.requests.append((self.path, len(events)))
        told = self._answer(body, events)
        if told is None:
            self.close_connection = True
            return
        status, headers, answered = told
        data = json.dumps(answered).encode()
        self.send_response(status)
        own = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        for name, text in (own | headers).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def _answer(
        self, body: bytes, events: list[dict[str, Any]]
    ) -> tuple[int, dict[str, str], dict[str, Any]] | None:
        bridge = self.server.bridge
        if bridge.script:
            return bridge.script.popleft()(bridge, self.path, events)
        now = datetime.fromtimestamp(bridge.now(), UTC).isoformat()
        if self.headers["Authorization"] != f"Bearer {bridge.token}":
            return 401, {}, {"code": "HOOK_AUTH_FAILED", "timestamp": now}
        if len(body) > bridge.max_bytes:
            return 413, {}, {"code": "PAYLOAD_TOO_LARGE", "timestamp": now}
        errors = bridge.take(events)
        if self.path.endswith("batch"):
            counts = {"accepted": len(events) - len(errors), "rejected": len(errors)}
            counts |= {"received": True, "count": len(events)}
            return 200, {}, counts | {"event_ids": [], "errors": errors}
        if errors:
            rule = errors[0]["validation_errors"][0].get("rule", "HOOK_INVALID_PAYLOAD")
            return 400, {}, {"received": False, "code": rule, "timestamp": now, **errors[0]}
        receipt = {"received": True, "event_id": events[0]["event_id"], "broadcast_count": 0}
        return 200, {}, receipt | {"timestamp": now}

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def scripted_bridge() -> Iterator[ScriptedBridge]:
    bridge = ScriptedBridge()
    bridge.start()
    try:
        yield bridge
    finally:
        bridge.stop()
