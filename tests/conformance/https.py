"""A small HTTPS client that trusts the pin from the pairing and nothing else."""

from __future__ import annotations

import functools
import hashlib
import http.client
import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

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
    """SHA-256 of the public key (SubjectPublicKeyInfo), hex, as the pairing's `pin` has it
    (D43).
    """
    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).hexdigest()


def check_pin(connection: ssl.SSLSocket, pin: str | None) -> None:
    certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    if pin is not None:
        assert spki_pin(certificate) == pin.lower(), (
            "the server's key is not the one of the pairing"
        )


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def strict_json(text: str | bytes) -> Any:
    """JSON as other languages read it: no NaN, no Infinity; an integer too long for Python stays a
    string.
    """
    return json.loads(
        text,
        parse_constant=_no_constant,
        parse_int=lambda digits: int(digits) if len(digits) < 4000 else digits,
    )


def parse_time(value: object) -> datetime:
    """An ISO 8601 UTC timestamp (spec, Conventions), or AssertionError."""
    assert isinstance(value, str), f"no timestamp: {value!r}"
    moment = datetime.fromisoformat(value)
    assert moment.utcoffset() == timedelta(0), f"not UTC: {value}"
    return moment


def assert_now(value: object, within: float = 60) -> None:
    assert abs((parse_time(value) - datetime.now(UTC)).total_seconds()) < within, (
        f"not now: {value}"
    )


def assert_types(payload: dict[str, Any], **fields: type) -> None:
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

    def json(self) -> Any:
        return strict_json(self.body)

    def __str__(self) -> str:
        return f"{self.status} {self.body[:600]!r}"


class Https:
    """`request` opens one connection each; `keep()` gives one that stays open, for many
    requests.
    """

    def __init__(
        self,
        port: int,
        pin: str | None = None,
        *,
        source: str | None = None,
        plain: bool = False,
        timeout: float = 30,
        dial: Dial | None = None,
    ) -> None:
        self.port, self.pin, self.source, self.plain, self.timeout, self.dial = (
            port,
            pin,
            source,
            plain,
            timeout,
            dial,
        )
        self.context = pinned_context()

    def open(self) -> http.client.HTTPConnection:
        """A connection, TLS done and pin checked; raises OSError."""
        source = (self.source, 0) if self.source else None
        raw = (
            self.dial(self.timeout)
            if self.dial
            else socket.create_connection(
                (LOOPBACK, self.port), self.timeout, source_address=source
            )
        )
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=self.timeout)
        # once the bridge has closed it, the next request on it would be sent without TLS
        connection.auto_open = 0
        if self.plain:
            connection.sock = raw
            return connection
        try:
            wrapped = self.context.wrap_socket(raw, server_hostname=LOOPBACK)
            check_pin(wrapped, self.pin)
        except BaseException:
            raw.close()
            raise
        connection.sock = wrapped
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
        """One request. `json_body` is sent as application/json; `body` goes as it is, with the
        headers given.
        """
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
            return Response(
                answer.status,
                {name.lower(): value for name, value in answer.getheaders()},
                answer.read(),
            )
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
    """The spec's HTTP error body with all six fields (D9), and what goes with its status; the body
    is returned.
    """
    statuses = (status,) if isinstance(status, int) else status
    assert response.status in statuses, f"expected {status} {code}, got {response}"
    assert response.headers.get("content-type", "").startswith("application/json"), response.headers
    body = response.json()
    for name in SIX_FIELDS:
        assert isinstance(body.get(name), str) and body[name], f"error body without {name}: {body}"
    if code is not None:
        assert body["code"] == code, f"expected {code}, got {body}"
    assert_now(body["timestamp"])
    assert response.headers.get("x-request-id") == body["request_id"], (
        "the request id is a header too"
    )
    assert body["documentation_url"].startswith("https://") or body["documentation_url"].startswith(
        "http://"
    ), body
    if response.status == 401:
        assert response.headers.get("www-authenticate", "").startswith("Bearer"), response.headers
    if response.status == 429:
        assert isinstance(body["retry_after"], int) and body["retry_after"] >= 0, body
        assert response.headers["retry-after"] == str(body["retry_after"])
    return dict(body)
