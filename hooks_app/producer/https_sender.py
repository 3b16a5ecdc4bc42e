"""Post hook events to a bridge on another machine, within its limits (D47)."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import ssl
import time
import urllib.parse
from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from hooks_app.producer.forwarder import (
    BEHIND_SECONDS,
    SEND_MAX_EVENTS,
    TAKEN,
    WAITS,
    Limited,
    Result,
    Unreachable,
)
from hooks_app.producer.spool_queue import SEND_MAX_BYTES, Item, seconds_behind
from hooks_app.producer.translate import Event

EVENT, BATCH = "/api/v1/hooks/event", "/api/v1/hooks/batch"
VERSION = "1.0.0"  # X-Hook-Version
ANSWER_SECONDS = 30.0
BATCH_GAP_SECONDS = 6.5  # ten small batches a minute fit the bridge's rate; full ones go at once
# Failures that another attempt may cure, besides 3xx and 5xx: token, address, rate. Every other 4xx
# is the event's own fault.
WAIT_STATUS = frozenset({401, 403, 404, 405, 407, 408, 421, 425, 429})


class Answer(NamedTuple):
    status: int
    retry_after: float | None  # seconds, at most 600
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


class HttpsSender:
    """Send single events, and a backlog as batches, over one kept-alive connection.

    ``url``: https://HOST[:PORT]; ``token``: its file, read for each request, for it may be
    replaced; ``pin``: the SPKI's SHA-256 in hex, compared after the handshake and before a byte of
    the request. Without a pin the certificate must satisfy the system's authorities.
    """

    def __init__(self, url: str, token: Path, pin: str = "") -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"the address must be https://HOST:PORT, not {url}")
        self._prefix = parts.path.rstrip("/")
        self._token = token
        self._pin = pin.lower().replace(":", "")
        context = ssl.create_default_context()
        if self._pin:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._connection = http.client.HTTPSConnection(
            parts.hostname, parts.port or 443, timeout=ANSWER_SECONDS, context=context
        )
        self.clock_offset = 0.0
        self._path = EVENT  # of the next request
        self._behind = ""  # from a minute on: the events that wait, the oldest one's seconds
        self._open_at = {EVENT: 0.0, BATCH: 0.0}  # monotonic: when the rate allows the next one
        self._last_batch = -BATCH_GAP_SECONDS
        # halved while batches are refused as a whole, until the culprit is alone
        self._batch_max = SEND_MAX_EVENTS

    def allowed(self, waiting: Sequence[Item]) -> int:
        """Choose the endpoint, and return how many events may go to it at once.

        A backlog goes as a batch. Raises Limited. Between two small batches the rate of single
        events is used up first; nobody waits for that gap when a person is asked.
        """
        behind = seconds_behind(waiting)
        self._behind = f"{len(waiting)} {behind:.0f}" if behind >= BEHIND_SECONDS else ""
        size = sum(item.file.size for item in waiting)
        full = len(waiting) >= self._batch_max or size > SEND_MAX_BYTES
        ready, now = dict(self._open_at), time.monotonic()
        gap_ends = 0.0 if full else self._last_batch + BATCH_GAP_SECONDS
        if not any(item.asks for item in waiting):
            ready[BATCH] = max(ready[BATCH], gap_ends)
        backlog = len(waiting) > 1 and self._batch_max > 1 and gap_ends <= now
        for path in (BATCH, EVENT) if backlog else (EVENT, BATCH):
            if ready[path] <= now:
                self._path = path
                return 1 if path == EVENT else self._batch_max
        raise Limited("the rate is used up", min(ready.values()) - now)

    def send(self, events: Sequence[Event]) -> list[Result]:
        """Post the events to the endpoint that `allowed` chose. Raises Unreachable.

        A request names one agent: the events after those of the first one wait.
        """
        source, count = events[0].source, len(events)
        events = list(takewhile(lambda event: event.source == source, events))
        return self._send(events, source) + [WAITS] * (count - len(events))

    def _send(self, events: Sequence[Event], source: str) -> list[Result]:
        if len(events) == 1 and self._open_at[EVENT] <= time.monotonic():
            self._path = EVENT
        body = events[0].body
        if self._path == BATCH:
            self._last_batch = time.monotonic()
            body = b'{"events":[' + b",".join(event.body for event in events) + b"]}"
        answer = self._post(body, source)
        status, code = answer.status, answer.body.get("code", "")
        if status == 200 and answer.body.get("received") is not None:
            self._batch_max = min(SEND_MAX_EVENTS, self._batch_max * 2)
            rows = _rows(answer.body, "errors")
            wrong = {row.get("index"): _result(row, status) for row in rows}
            return self._results(wrong, len(events), answer)
        if status == 429:
            self._open_at[self._path] = time.monotonic() + (answer.retry_after or 1.0)
            return [WAITS] * len(events)
        if status in WAIT_STATUS or not 400 <= status < 500 or code == "HOST_NOT_ALLOWED":
            raise Unreachable(f"the bridge answered {status} {code}", answer.retry_after)
        if len(events) > 1:
            self._batch_max = len(events) // 2
            return [WAITS] * len(events)
        self._batch_max = min(SEND_MAX_EVENTS, self._batch_max * 2)
        return self._results({0: _result(answer.body, status)}, 1, answer)

    def _post(self, body: bytes, source: str) -> Answer:
        """Post JSON to the chosen endpoint. Raises Unreachable without an answer."""
        if self._connection.sock is not None:
            # when the bridge has closed the idle connection; the event_id makes that harmless
            with contextlib.suppress(Unreachable):
                return self._post_once(body, source)
        return self._post_once(body, source)

    def _post_once(self, body: bytes, source: str) -> Answer:
        try:
            if self._connection.sock is None:
                self._connect()
            headers = {
                "Authorization": f"Bearer {self._token.read_text().strip()}",
                "Content-Type": "application/json",
                "X-Hook-Source": source,
                "X-Hook-Version": VERSION,
                **({"X-Hook-Behind": self._behind} if self._behind else {}),
            }
            self._connection.request("POST", self._prefix + self._path, body, headers)
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
        wait = response.getheader("Retry-After", "")
        seconds = min(600.0, float(wait)) if wait.isdecimal() else None
        return Answer(response.status, seconds, answer if isinstance(answer, dict) else {})

    def _connect(self) -> None:
        self._connection.connect()
        if self._pin:
            certificate = self._connection.sock.getpeercert(binary_form=True)
            if not certificate or not hmac.compare_digest(spki_sha256(certificate), self._pin):
                self.close()
                raise Unreachable("the certificate's key is not the pinned one")

    def close(self) -> None:
        self._connection.close()

    def _results(self, wrong: dict[Any, Result], count: int, answer: Answer) -> list[Result]:
        if any(result.verdict == "stale" for result in wrong.values()):
            try:  # Python 3.9 does not read Z
                text = str(answer.body.get("timestamp")).replace("Z", "+00:00")
                self.clock_offset = datetime.fromisoformat(text).timestamp() - time.time()
            except ValueError:
                self._batch_max = 1  # the error for one event tells the server's time
        return [wrong.get(index, TAKEN) for index in range(count)]


def _rows(body: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = body.get(name)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _result(body: dict[str, Any], status: int) -> Result:
    rows = _rows(body, "validation_errors")
    rules = {str(row.get("rule")) for row in rows} | {str(body.get("code"))}
    text = "; ".join(str(row.get("message")) for row in rows)
    text = text or str(body.get("message") or f"the bridge answered {status}")
    return Result("stale" if "HOOK_STALE_TIMESTAMP" in rules else "refused", text[:500])
