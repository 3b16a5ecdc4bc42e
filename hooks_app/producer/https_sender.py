"""Post events within the specification's limits, and act on answers (D47)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from hooks_app.producer.forwarder import (
    BEHIND_SECONDS,
    SEND_MAX_EVENTS,
    TAKEN,
    WAITS,
    Limited,
    Result,
    Unreachable,
)
from hooks_app.producer.https import Answer, HttpsTransport
from hooks_app.producer.spool_queue import SEND_MAX_BYTES, Item, seconds_behind

EVENT, BATCH = "/api/v1/hooks/event", "/api/v1/hooks/batch"
BATCH_GAP_SECONDS = 6.5  # ten small batches a minute fit the bridge's rate; full ones go at once
# Failures that another attempt may cure, besides 3xx and 5xx: token, address, rate. Every other 4xx
# is the event's own fault.
WAIT_STATUS = frozenset({401, 403, 404, 405, 407, 408, 421, 425, 429})
WAIT_CODES = frozenset({"HOST_NOT_ALLOWED"})


class HttpsSender:
    """Send single events, and a backlog as batches."""

    def __init__(self, transport: HttpsTransport) -> None:
        self.clock_offset = 0.0
        self._transport = transport
        self._path = EVENT  # of the next request
        self._behind = ""  # from a minute on: the events that wait, the oldest one's seconds
        self._open_at = {EVENT: 0.0, BATCH: 0.0}  # monotonic: when the rate allows the next one
        self._last_batch = -BATCH_GAP_SECONDS
        # halved while batches are refused as a whole, until the culprit is alone
        self._batch_max = SEND_MAX_EVENTS

    def allowed(self, waiting: Sequence[Item]) -> int:
        """Choose the endpoint: a backlog goes as a batch. Raises Limited.

        Between two small batches the rate of single events is used up first; nobody waits for that
        gap when a person is asked.
        """
        behind = seconds_behind(waiting)
        self._behind = f"{len(waiting)} {behind:.0f}" if behind >= BEHIND_SECONDS else ""
        now = time.monotonic()
        size = sum(item.file.size for item in waiting)
        full = len(waiting) >= self._batch_max or size > SEND_MAX_BYTES
        gap_ends = 0.0 if full else self._last_batch + BATCH_GAP_SECONDS
        urgent = any(item.asks for item in waiting)
        batch_at = max(self._open_at[BATCH], 0.0 if urgent else gap_ends)
        if len(waiting) > 1 and self._batch_max > 1 and max(batch_at, gap_ends) <= now:
            self._path = BATCH
        elif self._open_at[EVENT] <= now:
            self._path = EVENT
        elif batch_at <= now:
            self._path = BATCH
        else:
            raise Limited("the rate is used up", min(batch_at, self._open_at[EVENT]) - now)
        return 1 if self._path == EVENT else self._batch_max

    def send(self, events: Sequence[bytes]) -> list[Result]:
        """Post the events to the endpoint that `allowed` chose. Raises Unreachable."""
        if len(events) == 1 and self._open_at[EVENT] <= time.monotonic():
            self._path = EVENT
        if self._path == EVENT:
            answer = self._transport.post(EVENT, events[0], self._behind)
        else:
            self._last_batch = time.monotonic()
            body = b'{"events":[' + b",".join(events) + b"]}"
            answer = self._transport.post(BATCH, body, self._behind)
        status, code = answer.status, str(answer.body.get("code"))
        if status == 200 and answer.body.get("received") is not None:
            self._batch_max = min(SEND_MAX_EVENTS, self._batch_max * 2)
            rows = _rows(answer.body, "errors")
            wrong = {
                row["index"]: _result(row) for row in rows if isinstance(row.get("index"), int)
            }
            return self._results(wrong, len(events), answer)
        if status == 429:
            wait = _retry_after(answer)
            self._open_at[self._path] = time.monotonic() + (1.0 if wait is None else wait)
            return [WAITS] * len(events)
        if status in WAIT_STATUS or not 400 <= status < 500 or code in WAIT_CODES:
            why = f"the bridge answered {status} {answer.body.get('code', '')}".rstrip()
            raise Unreachable(why, _retry_after(answer))
        if len(events) > 1:
            self._batch_max = len(events) // 2
            return [WAITS] * len(events)
        self._batch_max = min(SEND_MAX_EVENTS, self._batch_max * 2)
        return self._results({0: _result(answer.body, status)}, 1, answer)

    def _results(self, errors: dict[int, Result], count: int, answer: Answer) -> list[Result]:
        if any(result.verdict == "stale" for result in errors.values()):
            server = _server_time(answer)
            if server is None:
                self._batch_max = 1  # the error for one event tells the server's time
            else:
                self.clock_offset = server - time.time()
        return [errors.get(index, TAKEN) for index in range(count)]


def _rows(body: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = body.get(name)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _result(body: dict[str, Any], status: int = 400) -> Result:
    rows = _rows(body, "validation_errors")
    rules = {str(row.get("rule")) for row in rows} | {str(body.get("code"))}
    text = "; ".join(f"{row.get('field')}: {row.get('message')}" for row in rows)
    text = text or str(body.get("message") or f"the bridge answered {status}")
    return Result("stale" if "HOOK_STALE_TIMESTAMP" in rules else "refused", text[:500])


def _retry_after(answer: Answer) -> float | None:
    """Return seconds, at most 600."""
    value = str(answer.headers.get("retry-after", answer.body.get("retry_after")))
    return min(600.0, float(value)) if value.isdecimal() else None


def _server_time(answer: Answer) -> float | None:
    text = str(answer.body.get("timestamp")).replace("Z", "+00:00")  # Python 3.9 does not read Z
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
