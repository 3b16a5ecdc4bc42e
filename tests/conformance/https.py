"""A small HTTPS client that trusts the pin from the pairing and nothing else."""

import functools
import hashlib
import http.client
import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from http.cookies import SimpleCookie
from typing import Any, NoReturn
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.servers import PATIENCE

LOOPBACK = "127.0.0.1"
# a TCP connection to the bridge, made within so many seconds; raises OSError
Dial = Callable[[float], socket.socket]
SIX_FIELDS = ("error", "message", "code", "request_id", "timestamp", "documentation_url")


@functools.cache
def pinned_context() -> ssl.SSLContext:
    """TLS without a trust store: `check_pin` decides."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def spki_pin(certificate: bytes) -> str:
    """SHA-256 of the public key (SPKI), hex, as the pairing's `pin` has it (D43)."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).hexdigest()


def check_pin(connection: ssl.SSLSocket, pin: str | None) -> None:
    certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    same = pin is None or spki_pin(certificate) == pin.lower()
    assert same, "the server's key is not the one of the pairing"


def presented(port: int) -> bytes:
    """The certificate that a new connection gets, as DER."""
    raw = socket.create_connection((LOOPBACK, port), PATIENCE)
    with pinned_context().wrap_socket(raw, server_hostname=LOOPBACK) as stream:
        certificate = stream.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def strict_json(text: str | bytes) -> Any:
    """JSON without NaN and Infinity; an integer too long for Python stays a string."""
    return json.loads(text, parse_constant=_no_constant, parse_int=_integer)


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) < 4000 else digits


def parse_time(value: object) -> datetime:
    """An ISO 8601 UTC timestamp (spec, Conventions), or AssertionError."""
    assert isinstance(value, str), f"no timestamp: {value!r}"
    moment = datetime.fromisoformat(value)
    assert moment.utcoffset() == timedelta(0), f"not UTC: {value}"
    return moment


def assert_now(value: object, within: float = 60) -> None:
    away = parse_time(value) - datetime.now(UTC)
    assert abs(away) < timedelta(seconds=within), f"not now: {value}"


def assert_types(payload: dict[str, Any], /, **fields: type) -> None:
    """Each of these fields is there and of exactly that type."""
    assert {name: type(payload.get(name)) for name in fields} == fields, payload


def is_uuid(value: object) -> bool:
    try:
        return str(UUID(str(value))) == str(value).lower()
    except ValueError:
        return False


@dataclass
class Response:
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes = field(repr=False)
    cookies: dict[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        return strict_json(self.body)

    def __str__(self) -> str:
        return f"{self.status} {self.body[:600]!r}"


@dataclass
class Https:
    """`request` opens one connection each, unless it is given one that `open` has made."""

    port: int
    pin: str | None = None
    _: KW_ONLY
    source: str | None = None
    plain: bool = False
    timeout: float = PATIENCE
    dial: Dial | None = None

    def stream(self) -> socket.socket:
        """A connected socket, TLS done and pin checked; raises OSError."""
        address, source = (LOOPBACK, self.port), (self.source, 0) if self.source else None
        raw = (
            self.dial(self.timeout)
            if self.dial
            else socket.create_connection(address, self.timeout, source_address=source)
        )
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.plain:
            return raw
        try:
            wrapped = pinned_context().wrap_socket(raw, server_hostname=LOOPBACK)
            check_pin(wrapped, self.pin)
        except BaseException:
            raw.close()
            raise
        return wrapped

    def open(self) -> http.client.HTTPConnection:
        """A connection for several requests; raises OSError."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=self.timeout)
        # once the bridge has closed it, the next request on it would be sent without TLS
        connection.auto_open = 0
        connection.sock = self.stream()
        return connection

    def request(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        json_body: Any = ...,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        connection: http.client.HTTPConnection | None = None,
    ) -> Response:
        """One request; `body` goes as it is, with the headers given."""
        sent = dict(headers or {})
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token}")
        if json_body is not ...:
            body = json.dumps(json_body).encode()
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        used = connection or self.open()
        try:
            used.request(method, path, body=body, headers=sent)
            answer = used.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            set_by = SimpleCookie("; ".join(answer.headers.get_all("Set-Cookie") or []))
            cookies = {name: morsel.value for name, morsel in set_by.items()}
            return Response(answer.status, found, answer.read(), cookies)
        finally:
            if connection is None:
                used.close()

    def get(self, path: str, **more: Any) -> Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> Response:
        return self.request("POST", path, **more)


def assert_error(
    response: Response, status: int | tuple[int, ...], code: str | None = None
) -> dict[str, Any]:
    """The spec's HTTP error body with all six fields (D9), and what goes with its status."""
    statuses = (status,) if isinstance(status, int) else status
    assert response.status in statuses, f"expected {status} {code}, got {response}"
    assert response.headers.get("content-type", "").startswith("application/json"), response.headers
    body = response.json()
    for name in SIX_FIELDS:
        assert isinstance(body.get(name), str) and body[name], f"error body without {name}: {body}"
    if code is not None:
        assert body["code"] == code, f"expected {code}, got {body}"
    assert_now(body["timestamp"])
    assert response.headers.get("x-request-id") == body["request_id"], response.headers
    assert body["documentation_url"].startswith(("https://", "http://")), body
    if response.status == 401:
        assert response.headers.get("www-authenticate", "").startswith("Bearer"), response.headers
    if response.status == 429:
        assert isinstance(body["retry_after"], int) and body["retry_after"] >= 0, body
        assert response.headers["retry-after"] == str(body["retry_after"])
    return dict(body)
