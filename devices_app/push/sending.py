"""Send one push to a push service, bounded in time and size (D56; RFC 8030, 8291)."""

import email.utils
import http.client
import io
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from urllib.parse import SplitResult

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from py_vapid.utils import b64urldecode

from bridge_project.kernel import limits, metrics
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.text import printable
from devices_app.models import PushSubscription
from devices_app.push import endpoints, vapid

GONE: Final = (404, 410)
TOO_LARGE: Final = 413
PASSES: Final = (408, 429)  # and 5xx
REASON_BYTES: Final = 2000

_context = cache(ssl.create_default_context)


@dataclass(frozen=True, slots=True)
class Push:
    """Hold a push; the first of ``contents`` that is not too large is sent.

    ``topic``: it replaces an undelivered push of the same topic.
    """

    contents: Sequence[Mapping[str, Any]]
    topic: str
    urgency: str = "high"
    ttl: int = limits.PUSH_TTL_SECONDS


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold the outcome of a push; ``problem`` is empty if the service accepted it.

    ``gone``: the subscription is no more. ``again_in``: seconds to wait for, None: not again.
    """

    problem: str = ""
    gone: bool = False
    again_in: float | None = None


def send(subscription: PushSubscription, push: Push) -> Outcome:
    """Send a push; connecting and the answer may take PUSH_ANSWER_SECONDS each.

    Raises BridgeError PUSH_ENDPOINT_REFUSED when the address may not be connected to any more, or
    sends the bridge elsewhere.
    """
    try:
        outcome = _send(subscription, push)
    except BridgeError:
        metrics.pushes.labels("refused").inc()
        raise
    failed = "gone" if outcome.gone else "failed"
    metrics.pushes.labels(failed if outcome.problem else "taken").inc()
    return outcome


def _send(subscription: PushSubscription, push: Push) -> Outcome:
    parts = endpoints.check(subscription.endpoint)
    texts = [json.dumps(one, ensure_ascii=False).encode() for one in push.contents]
    fit = [text for text in texts if len(text) <= limits.PUSH_BYTES]
    outcome = Outcome("The push is too large.")
    for text in fit:
        encrypted = http_ece.encrypt(
            text,
            private_key=ec.generate_private_key(ec.SECP256R1()),
            dh=b64urldecode(subscription.p256dh.encode("ascii")),
            auth_secret=b64urldecode(subscription.auth.encode("ascii")),
        )
        try:
            status, waits, said = _post(parts, encrypted, push)
        except (OSError, http.client.HTTPException) as error:
            reason = printable(str(error)) or type(error).__name__
            return Outcome(f"{parts.hostname} cannot be reached: {reason}", again_in=0)
        if status < 300:
            return Outcome()
        outcome = _refused(f"{parts.hostname} answered {status} {said}".strip(), status, waits)
        if status != TOO_LARGE:
            break
    return outcome


def _refused(problem: str, status: int, waits: str) -> Outcome:
    if status < 400:
        raise BridgeError("PUSH_ENDPOINT_REFUSED", f"{problem}: redirects are not followed.")
    passes = status in PASSES or status >= 500
    return Outcome(problem, status in GONE, _seconds(waits) if passes else None)


def _seconds(waits: str) -> float:
    """Read a ``Retry-After``: seconds, or a date; 0 when it is neither."""
    try:
        if waits.isdecimal():
            return float(waits[:9])
        return max(0.0, email.utils.parsedate_to_datetime(waits).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _post(parts: SplitResult, body: bytes, push: Push) -> tuple[int, str, str]:
    """Return status, ``Retry-After`` and the beginning of the service's answer."""
    headers = {
        "Host": parts.netloc,
        "Authorization": vapid.authorization(f"https://{parts.netloc}"),
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(push.ttl),
        "Topic": push.topic,
        "Urgency": push.urgency,
        "Connection": "close",
    }
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    with _connect(parts) as stream:
        ended = threading.Event()

        def end() -> None:  # a service that sends a byte now and then would hold a thread for ever
            ended.set()
            with suppress(OSError):
                socket.socket.shutdown(stream, socket.SHUT_RDWR)

        deadline = threading.Timer(limits.PUSH_ANSWER_SECONDS, end)
        deadline.start()
        try:
            stream.do_handshake()
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 443)
            connection.sock = stream
            connection.request("POST", path, body, headers)
            answer = http.client.HTTPResponse(stream, method="POST")
            answer.fp.close()
            answer.fp = io.BufferedReader(_Beginning(stream))
            answer.begin()
            if ended.is_set():  # what was cut off may read like an answer
                raise TimeoutError
            if answer.status < 200:
                raise http.client.HTTPException(f"it answered {answer.status} and no more")
            said = _reason(answer) if answer.status >= 300 else ""
        except (OSError, http.client.HTTPException):
            if ended.is_set():
                raise TimeoutError(f"no answer in {limits.PUSH_ANSWER_SECONDS:g} s") from None
            raise
        finally:
            deadline.cancel()
    return answer.status, answer.headers.get("Retry-After", "").strip(), said


class _Beginning(io.RawIOBase):
    """Read the first PUSH_ANSWER_BYTES of a stream, then its end.

    http.client alone reads on for as long as a service sends chunks of a negative length, or 100s.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream, self._left = stream, limits.PUSH_ANSWER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = memoryview(buffer)[: self._left]
        count = self._stream.recv_into(wanted) if self._left else 0
        self._left -= count
        return count


def _reason(answer: http.client.HTTPResponse) -> str:
    """Read the reason from the beginning of an answer's body; "" without one."""
    try:
        body = answer.read(REASON_BYTES)
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    return printable(" ".join(body.decode("utf-8", "replace").split()))[:100]


def _connect(parts: SplitResult) -> ssl.SSLSocket:
    """Connect to the first allowed address that answers; the name is looked up once."""
    failed: OSError = OSError("no address")
    until = time.monotonic() + limits.PUSH_ANSWER_SECONDS
    for address in endpoints.resolve(parts):
        wait = max(0.1, min(until - time.monotonic(), limits.PUSH_ANSWER_SECONDS / 2))
        try:
            stream = socket.create_connection(address, wait)
        except OSError as error:
            failed = error
            continue
        stream.settimeout(limits.PUSH_ANSWER_SECONDS)
        return _context().wrap_socket(
            stream, server_hostname=parts.hostname, do_handshake_on_connect=False
        )
    raise failed
