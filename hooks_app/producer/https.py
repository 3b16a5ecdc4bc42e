"""Post to a bridge on another machine over HTTPS, and check its pin."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Callable
from typing import Any, NamedTuple

from hooks_app.producer.forwarder import Unreachable

VERSION = "1.0.0"  # X-Hook-Version
ANSWER_SECONDS = 30.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: dict[str, Any]  # {} when the body is no JSON object


def spki_sha256(certificate: bytes) -> str:
    """Return the pin of a DER certificate: the hex SHA-256 of its public key (D43)."""

    def content(at: int) -> tuple[int, int]:
        length, at = certificate[at + 1], at + 2
        if length & 0x80:
            octets = length & 0x7F
            length, at = int.from_bytes(certificate[at : at + octets], "big"), at + octets
        return at, at + length

    at = content(content(0)[0])[0]  # into Certificate, into TBSCertificate
    if certificate[at : at + 1] == b"\xa0":  # version, absent in v1
        at = content(at)[1]
    for _ in ("serialNumber", "signature", "issuer", "validity", "subject"):
        at = content(at)[1]
    return hashlib.sha256(certificate[at : content(at)[1]]).hexdigest()


class HttpsTransport:
    """Hold one kept-alive HTTPS connection to the bridge.

    ``url``: https://HOST[:PORT]; ``token``: called for each request, so that a replaced token file
    is seen; ``pin``: the SPKI's SHA-256 in hex, compared after the handshake and before a byte of
    the request. Without a pin the certificate must satisfy the system's authorities.
    """

    def __init__(self, url: str, token: Callable[[], str], pin: str = "") -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"the address must be https://HOST:PORT, not {url}")
        self._prefix = parts.path.rstrip("/")
        self._token = token
        self._pin = pin.lower().replace(":", "")
        if self._pin:
            # without the system's authorities, which take time and memory to read
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._connection = http.client.HTTPSConnection(
            parts.hostname, parts.port or 443, timeout=ANSWER_SECONDS, context=context
        )

    def post(self, path: str, body: bytes, behind: str = "") -> Answer:
        """Post JSON; ``behind``: X-Hook-Behind. Raises Unreachable without an answer."""
        more = {"X-Hook-Behind": behind} if behind else {}
        if self._connection.sock is not None:
            # when the bridge has closed the idle connection; the event_id makes that harmless
            with contextlib.suppress(Unreachable):
                return self._post(path, body, more)
        return self._post(path, body, more)

    def _post(self, path: str, body: bytes, more: dict[str, str]) -> Answer:
        try:
            if self._connection.sock is None:
                self._connect()
            headers = {
                "Authorization": "Bearer " + self._token(),
                "Content-Type": "application/json",
                "X-Hook-Source": "primary-agent",
                "X-Hook-Version": VERSION,
                **more,
            }
            self._connection.request("POST", self._prefix + path, body, headers)
            response = self._connection.getresponse()
            text = response.read(16 * 2**20)
            if response.will_close or not response.isclosed():
                self.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = {}
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, named, answer if isinstance(answer, dict) else {})

    def _connect(self) -> None:
        self._connection.connect()
        if self._pin:
            certificate = self._connection.sock.getpeercert(binary_form=True)
            if not certificate or not hmac.compare_digest(spki_sha256(certificate), self._pin):
                self.close()
                raise Unreachable("the certificate's key is not the pinned one")

    def close(self) -> None:
        self._connection.close()
