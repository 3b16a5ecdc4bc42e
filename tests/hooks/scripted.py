"""A small real TLS bridge for the producer's tests: it validates and remembers events as the bridge
does, and misbehaves as it is told.
"""

import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme

from bridge_project.protocol.hooks import HookInvalid, parse_hook_event
from tests.conformance.https import spki_pin
from tests.servers import free_port

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "hooks"
TOKEN = "test-hook-token-0123456789abcdefghijklmnop"

Events = list[dict[str, Any]]
# Status, headers and body; None: the connection is cut after the request was read.
Answer = tuple[int, dict[str, str], dict[str, Any]]


def fixture(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return loaded


class ScriptedBridge:
    """``events``: what was taken, once for each event_id, in order; ``requests``: (path, number of
    events) of every request; ``script``: what to do with the next requests instead of taking them;
    ``skew``: seconds that its clock is ahead."""

    def __init__(self) -> None:
        self.events: Events = []
        self.ids: set[str] = set()
        self.requests: list[tuple[str, int]] = []
        self.script: deque[Action] = deque()
        self.connections = 0
        self.token = TOKEN
        self.skew = 0.0
        self.refuse: Callable[[dict[str, Any]], bool] = lambda event: False
        self.max_bytes = 10 * 2**20
        certificate = trustme.CA().issue_cert("127.0.0.1")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self.context)
        chain = certificate.cert_chain_pems[0].bytes().decode()
        self.pin = spki_pin(ssl.PEM_cert_to_DER_cert(chain))
        self.port = free_port()  # it may stop, and start again there
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        self._server.bridge = self
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def now(self) -> float:
        return time.time() + self.skew

    def take(self, events: Events) -> list[dict[str, Any]]:
        """Validate and remember; the rejected ones come back as the batch's ``errors``."""
        errors = []
        for index, event in enumerate(events):
            rows = [{"field": "payload.x", "message": "scripted"}] if self.refuse(event) else []
            try:
                parse_hook_event(event, now=datetime.fromtimestamp(self.now(), UTC))
            except HookInvalid as invalid:
                rows = list(invalid.violations)
            if rows:
                errors.append({"index": index, "validation_errors": rows})
            elif event["event_id"] not in self.ids:
                self.ids.add(event["event_id"])
                self.events.append(event)
        return errors


Action = Callable[[ScriptedBridge, Events], Answer | None]


def answer(status: int, body: dict[str, Any] | None = None, *, retry_after: str = "") -> Action:
    headers = {"Retry-After": retry_after} if retry_after else {}
    return lambda bridge, events: (status, headers, body or {})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    bridge: ScriptedBridge

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.bridge.connections += 1
        with suppress(OSError):
            wrapped = self.bridge.context.wrap_socket(request, server_side=True)
            super().finish_request(wrapped, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # one write for an answer, or its second half waits for the client's acknowledgement
    wbufsize = -1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        told = self._answer(body)
        if told is None:
            self.close_connection = True
            return
        status, headers, answered = told
        data = json.dumps(answered).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, body: bytes) -> Answer | None:
        bridge, value, batch = self.server.bridge, json.loads(body), self.path.endswith("batch")
        events = value["events"] if batch else [value]
        bridge.requests.append((self.path, len(events)))
        if bridge.script:
            return bridge.script.popleft()(bridge, events)
        now = {"timestamp": datetime.fromtimestamp(bridge.now(), UTC).isoformat()}
        if self.headers["Authorization"] != f"Bearer {bridge.token}":
            return 401, {}, now | {"code": "HOOK_AUTH_FAILED"}
        if len(body) > bridge.max_bytes:
            return 413, {}, now | {"code": "PAYLOAD_TOO_LARGE"}
        errors = bridge.take(events)
        if errors and not batch:
            return 400, {}, now | {"received": False, **errors[0]}
        return 200, {}, now | {"received": True, "errors": errors}

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
