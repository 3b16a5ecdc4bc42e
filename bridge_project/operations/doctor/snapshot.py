"""The first look at the bridge: where it says that it is, who holds its data directory, and what
answers there.
"""

from __future__ import annotations

import contextlib
import email.utils
import fcntl
import http.client
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from bridge_project.kernel.config import Conf
from bridge_project.network import server_address
from bridge_project.network.server_address import Address
from bridge_project.operations.doctor.findings import read_secret
from bridge_project.protocol.types import parse_timestamp
from bridge_project.terminal.client import pin_of, pinned_context

FETCH_SECONDS: Final = 2.0
HEALTH_SECONDS: Final = 4.5  # a bridge whose database is away needs more than three to say so
HEALTH: Final = "/api/v1/health"
# Answers without a token; /health without one would count as a failed authentication (D16).
PAGE: Final = "/pair"
BODY_MAX_BYTES: Final = 2**20


class Reached(NamedTuple):
    """An HTTP answer. ``certificate``: DER, empty without TLS; ``ahead``: seconds by which its
    clock is ahead of ours, None when it tells no time.
    """

    status: int
    body: dict[str, Any]
    certificate: bytes
    ahead: float | None


class WrongKey(OSError):
    """The server there has another key than the pinned one; nothing was sent to it."""

    def __init__(self, certificate: bytes) -> None:
        super().__init__("what answers there has another key than the bridge")
        self.certificate = certificate


@dataclass(frozen=True, slots=True)
class Look:
    """``local_url``: https address as this machine reaches it, empty when the bridge never ran;
    ``holder``: process id of who serves from the data directory, empty when nobody does;
    ``health``: its answer to the hook token; ``trouble``: why there is none; ``served``: the
    certificate that it showed, DER; ``statuses``: what each token is answered.
    """

    conf: Conf
    recorded: Address | None = None
    local_url: str = ""
    holder: str = ""
    health: Reached | None = None
    trouble: str = ""
    served: bytes = b""
    statuses: Mapping[str, int] = field(default_factory=dict)


def look(conf: Conf) -> Look:
    """Reads files and asks /health once with each token; the tokens go nowhere but to the recorded
    key. Raises nothing.
    """
    try:
        recorded = server_address.recorded(conf)
    except OSError:
        recorded = None
    holder = _holder(conf)
    if recorded is None:
        return Look(conf, holder=holder, trouble="it was never started with this data directory")
    parts = urlsplit(recorded.local_ws_url or recorded.ws_url)
    url = f"https://{parts.netloc}"
    try:
        health = fetch(
            url,
            HEALTH,
            token=read_secret(conf, "hook_token"),
            pin=recorded.pin,
            seconds=HEALTH_SECONDS,
        )
    except WrongKey as wrong:
        return Look(conf, recorded, url, holder, trouble=str(wrong), served=wrong.certificate)
    except OSError as error:
        return Look(conf, recorded, url, holder, trouble=words(error))
    statuses = {"hook_token": health.status}
    # one that is too slow for a second request has said enough with the first
    with contextlib.suppress(OSError):
        statuses["admin_token"] = fetch(
            url, HEALTH, token=read_secret(conf, "admin_token"), pin=recorded.pin
        ).status
    return Look(conf, recorded, url, holder, health, served=health.certificate, statuses=statuses)


def fetch(
    url: str,
    path: str,
    *,
    token: str = "",
    pin: str = "",
    headers: Mapping[str, str] | None = None,
    seconds: float = FETCH_SECONDS,
) -> Reached:
    """GET. With a pin the server's key is compared before anything is sent; without one no
    certificate is checked, so give no token then.

    Raises OSError, WrongKey among them.
    """
    parts = urlsplit(url)
    sent = dict(headers or {}) | ({"Authorization": f"Bearer {token}"} if token else {})
    connection = _connection(parts.scheme, parts.hostname or "", parts.port, seconds)
    try:
        connection.connect()
        certificate = (
            connection.sock.getpeercert(binary_form=True) or b""
            if isinstance(connection.sock, ssl.SSLSocket)
            else b""
        )
        if pin and (not certificate or pin_of(certificate) != pin):
            raise WrongKey(certificate)
        began = time.time()
        connection.request("GET", parts.path.rstrip("/") + path, headers=sent)
        response = connection.getresponse()
        body = _object(response.read(BODY_MAX_BYTES))
        server = _time(body, response.getheader("Date"))
        return Reached(
            response.status,
            body,
            certificate,
            None if server is None else _ahead(server, began, time.time()),
        )
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"what answers there is no bridge ({error.__class__.__name__})") from error
    finally:
        connection.close()


def _ahead(server: float, began: float, ended: float) -> float:
    """How far a clock that was read between two moments of ours is outside of them."""
    return max(0.0, server - ended) or min(0.0, server - began)


def words(error: OSError) -> str:
    """Why it could not be reached, for a sentence."""
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return " ".join((error.strerror or str(error)).split()) or error.__class__.__name__


def _connection(
    scheme: str, host: str, port: int | None, seconds: float
) -> http.client.HTTPConnection:
    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=seconds)
    # The pin is checked when there is an answer: one to a request without a token is no secret.
    return http.client.HTTPSConnection(host, port, timeout=seconds, context=pinned_context())


def _object(text: bytes) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _time(body: dict[str, Any], date: str | None) -> float | None:
    """The body's timestamp, which is exact, else the Date header, which is a whole second."""
    try:
        return parse_timestamp(str(body["timestamp"])).timestamp()
    except (KeyError, ValueError):
        pass
    try:
        return email.utils.parsedate_to_datetime(date or "").timestamp()
    except (ValueError, TypeError):
        return None


def _holder(conf: Conf) -> str:
    """Who holds ``serve.lock``. The system lets go of it when the process dies, so a number in the
    file alone proves nothing.
    """
    try:
        with (conf.bridge_data_dir / "serve.lock").open(encoding="ascii", errors="replace") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(20).strip() or "unknown"
    except OSError:
        pass
    return ""
