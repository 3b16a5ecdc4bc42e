"""A push service on loopback, and browsers that decrypt (RFC 8291) and check who sent (8292)."""

import base64
import json
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import http_ece
import trustme
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.servers import wait_until

HOST = "localhost"
OTHER_HOST = "push.example"  # of its certificate too

Answer = Callable[[BaseHTTPRequestHandler, "Received"], None]


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class Received:
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    at: float = field(default_factory=time.time)


def status(code: int, body: str = "", **headers: str) -> Answer:
    """Answer with a status; `retry_after` is the header Retry-After."""

    def answer(handler: BaseHTTPRequestHandler, received: Received) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-").title(), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    return answer


def drip(handler: BaseHTTPRequestHandler, received: Received) -> None:
    """Answer a byte a second, and never to the end."""
    handler.wfile.write(b"HTTP/1.1 201 ")
    while True:
        handler.wfile.write(b"C")
        handler.wfile.flush()
        time.sleep(1)


class Raw:
    """Answer with these bytes, then with `again` while the bridge reads, at most a gigabyte."""

    def __init__(self, first: bytes, again: bytes = b"") -> None:
        self.first, self.again, self.written = first, again, 0
        self.over = threading.Event()

    def __call__(self, handler: BaseHTTPRequestHandler, received: Received) -> None:
        try:
            handler.wfile.write(self.first)
            while self.again and self.written < 2**30:
                self.written += handler.wfile.write(self.again)
        finally:
            self.over.set()


class PushService:
    """`answers` of a path are given in turn, the last one again and again; without any 201."""

    def __init__(self, directory: Path | None = None) -> None:
        """``directory``: for its authority's certificate; without one it speaks plain HTTP."""
        self.requests: list[Received] = []
        self.answers: dict[str, list[Answer]] = {}
        context: ssl.SSLContext | None = None
        if directory is not None:
            authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert(HOST, OTHER_HOST).configure_cert(context)
            self.authority = directory / "push.crt"
            authority.cert_pem.write_to_path(self.authority)
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                named = {name.lower(): value for name, value in self.headers.items()}
                received = Received(self.path, named, body)
                service.requests.append(received)
                answers = service.answers.get(self.path) or [status(201)]
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                answer(self, received)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: Any) -> None:
                pass  # the bridge has ended the connection

        self.server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = int(self.server.server_address[1])
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def origin(self) -> str:
        return f"https://{HOST}:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        return {"BRIDGE_PUSH_HOSTS": HOST, "SSL_CERT_FILE": str(self.authority)}

    def browser(self) -> "Browser":
        return Browser(self)


@contextmanager
def running(directory: Path | None = None) -> Iterator[PushService]:
    service = PushService(directory)
    yield service
    service.server.shutdown()
    service.server.server_close()


class Browser:
    """One that is subscribed: it has the keys, and reads what comes."""

    def __init__(self, service: PushService) -> None:
        self.service = service
        self.path = f"/push/{secrets.token_urlsafe(16)}"
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.secret = secrets.token_bytes(16)

    @property
    def subscription(self) -> dict[str, Any]:
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        keys = {"p256dh": encode(point), "auth": encode(self.secret)}
        endpoint = self.service.origin + self.path
        return {"endpoint": endpoint, "expirationTime": None, "keys": keys}

    @property
    def requests(self) -> list[Received]:
        return [one for one in self.service.requests if one.path == self.path]

    def answer(self, *answers: Answer) -> None:
        self.service.answers[self.path] = list(answers)

    def wait(self, count: int = 1) -> list[dict[str, Any]]:
        """Wait for that many pushes; what all say that have come."""
        wait_until(lambda: len(self.requests) >= count, f"push {count} of {self.path}")
        return self.read()

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(self.decrypt(one.body)) for one in self.requests]

    def decrypt(self, body: bytes) -> bytes:
        """RFC 8291: one record, as push services take it."""
        assert len(body) <= 4096
        return bytes(http_ece.decrypt(body, private_key=self.key, auth_secret=self.secret))


def check_sender(received: Received, public_key: str, origin: str) -> dict[str, Any]:
    """RFC 8292: signed for this service by the key that the browser subscribed with; the claims."""
    scheme, _, rest = received.headers["authorization"].partition(" ")
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    assert scheme == "vapid"
    assert parts["k"] == public_key
    signed, _, signature = parts["t"].rpartition(".")
    header, claims = (json.loads(decode(part)) for part in signed.split("."))
    assert header == {"typ": "JWT", "alg": "ES256"}
    raw = decode(signature)
    assert len(raw) == 64
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode(public_key))
    der = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    key.verify(der, signed.encode(), ec.ECDSA(hashes.SHA256()))
    assert claims["aud"] == origin
    assert 0 < claims["exp"] - time.time() <= 24 * 3600
    return dict(claims)
