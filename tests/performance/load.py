"""The load generator: posters in a closed loop over kept TLS connections, sockets that look for
each event; it costs about 40 µs an event.

Posted is what an agent's hooks send: nine events of ten are a tool called or finished. Each carries
a serial number in a field of its own, which is looked for in every frame a socket gets. So of each
event two times are known on one clock: from its POST to its 200, and from its POST to its arrival
at each socket; and of each socket what was lost, doubled or came out of order.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.samples import now
from tests.performance.machine import cpu_seconds
from tests.performance.sockets import HOST, Socket, clock, tls

MARK = b"event-number-"
DIGITS = 8
EVENT_BYTES = 700
MIX = ("UserPromptSubmit", *("PreToolUse", "PostToolUse") * 9, "Stop")
SERIAL, CALL = b"#SERIAL#", b"##CALL##"  # each of DIGITS
DRAIN_SECONDS = 20.0  # after the last post, at most
STILL_SECONDS = 3.0  # nothing came for this long: nothing more will


@dataclass
class Target:
    """Where to post, and as whom; ``processes`` are the servers' ids, whose CPU time is counted."""

    ports: Sequence[int]
    path: str
    authorization: str
    session: str
    processes: Sequence[int] = ()


def hook_event(
    kind: str, session: str, call_id: str, more: dict[str, Any], size: int = EVENT_BYTES
) -> dict[str, Any]:
    """An event of MIX of about that many bytes, with more fields in its payload."""
    command = f"npm test -- --filter {call_id}"
    call: dict[str, Any] = {
        "tool": "Bash",
        "params": {"command": command, "description": "Run the tests"},
        "tool_use_id": call_id,
    }
    payloads: dict[str, dict[str, Any]] = {
        "UserPromptSubmit": {"prompt": "Fix the flaky test. "},
        "PreToolUse": call | {"risk_level": "low", "requires_approval": False},
        "PostToolUse": call | {"result": {}, "success": True, "execution_time_ms": 1200},
        "Stop": {"reason": "task_completed"},
    }
    payload = payloads[kind] | more
    event = {"event": kind, "timestamp": now(), "session_id": session, "payload": payload}
    filler = "ok " * max(0, (size - len(json.dumps(event))) // 3)
    if kind == "PostToolUse":
        payload["result"] = {"stdout": filler}
    elif kind == "UserPromptSubmit":
        payload["prompt"] += filler
    return event


class _Poster(asyncio.Protocol):
    """One connection: write a request, read its answer, again."""

    def __init__(self, flight: Flight, number: int) -> None:
        self.flight, self.number, self.serial = flight, number, -1
        self.turn, self.call = 2 * number + 1, 0  # each begins with a call of its own
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def post(self) -> None:
        self.serial = self.flight.begin(self.number)
        if self.serial < 0:
            self.transport.close()
            self.finish()
        else:
            kind = MIX[self.turn % len(MIX)]
            self.turn += 1
            if kind == "PreToolUse":
                self.call = self.serial
            self.transport.write(self.flight.request(kind, self.serial, self.call))

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer = buffer = self._buffer + data if self._buffer else data
        head = buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        lower = buffer[:head].lower()
        at = lower.find(b"content-length:")
        if at < 0 or len(buffer) < head + 4 + int(lower[at + 15 : (lower + b"\r").find(b"\r", at)]):
            return
        self.flight.ended(self.serial, buffer[9:12] == b"200" or buffer[9:12] == b"201")
        self._buffer = b""
        if self.flight.pause:
            asyncio.get_running_loop().call_later(self.flight.pause, self.post)
        else:
            self.post()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.flight.errors += 1
            self.finish()


@dataclass
class _Seen:
    """What one socket has been given of a flight."""

    times: dict[int, float] = field(default_factory=dict)  # serial → when
    newest: dict[int, int] = field(default_factory=dict)  # poster → its newest event
    doubled: int = 0
    reordered: int = 0


class Flight:
    """One measurement: ``run`` posts for some seconds, waits for what is on its way, and returns
    the figures.
    """

    def __init__(
        self,
        target: Target,
        sockets: Sequence[Socket],
        *,
        pause: float = 0.0,
        size: int = EVENT_BYTES,
    ) -> None:
        self.target, self.sockets, self.pause = target, sockets, pause
        self.started: list[float] = []  # of each serial
        self.poster: list[int] = []
        self.acked: dict[int, float] = {}  # serial → when
        self.errors = 0
        self.until = 0.0
        self.seen = [_Seen() for _ in sockets]
        self.run_id = os.urandom(3).hex()
        self.mark = MARK + self.run_id.encode() + b"-"  # of this flight alone
        marked = {"serial": self.mark.decode() + SERIAL.decode()}
        self._requests = {
            kind: self._request(hook_event(kind, target.session, self._call_id, marked, size))
            for kind in MIX
        }

    @property
    def _call_id(self) -> str:
        return f"toolu_{self.run_id}_{CALL.decode()}"

    def _request(self, event: dict[str, Any]) -> bytes:
        body = json.dumps(event).encode()
        head = (
            f"POST {self.target.path} HTTP/1.1\r\nHost: {HOST}\r\n"
            f"Content-Type: application/json\r\nAuthorization: {self.target.authorization}\r\n"
        )
        return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def request(self, kind: str, serial: int, call: int) -> bytes:
        """An event as it is posted; ``call``: the serial of its call's beginning."""
        template = self._requests[kind].replace(SERIAL, b"%0*d" % (DIGITS, serial))
        return template.replace(CALL, b"%0*d" % (DIGITS, call))

    def begin(self, poster: int) -> int:
        """The next event's serial; -1 when the time is over."""
        at = clock()
        if at > self.until:
            return -1
        self.started.append(at)
        self.poster.append(poster)
        return len(self.started) - 1

    def ended(self, serial: int, good: bool) -> None:
        if good:
            self.acked[serial] = clock()
        else:
            self.errors += 1

    def receiver(self, seen: _Seen) -> Callable[[bytes, float], None]:
        def receive(text: bytes, at: float) -> None:
            found = text.find(self.mark) + len(self.mark)
            if found < len(self.mark):
                return
            serial = int(text[found : found + DIGITS])
            if serial in seen.times:
                seen.doubled += 1
                return
            seen.times[serial] = at
            poster = self.poster[serial]
            if serial < seen.newest.get(poster, -1):
                seen.reordered += 1
            seen.newest[poster] = max(serial, seen.newest.get(poster, -1))

        return receive

    async def run(self, posters: int, seconds: float) -> Outcome:
        loop = asyncio.get_running_loop()
        for socket, seen in zip(self.sockets, self.seen, strict=True):
            socket.on_text = self.receiver(seen)
        ports = [self.target.ports[number % len(self.target.ports)] for number in range(posters)]
        made = [
            (await loop.create_connection(lambda n=n: _Poster(self, n), HOST, port, ssl=tls()))[1]  # type: ignore[misc]
            for n, port in enumerate(ports)
        ]
        server, own, start = cpu_seconds(self.target.processes), time.process_time(), clock()
        self.until = start + seconds
        for poster in made:
            poster.post()
        await asyncio.wait_for(asyncio.gather(*(poster.done for poster in made)), seconds + 60)
        busy = (time.process_time() - own) / (clock() - start)
        await self._drain()
        return Outcome.of(self, start, cpu_seconds(self.target.processes) - server, busy)

    async def _drain(self) -> None:
        """Until every socket has every accepted event, or nothing comes any more."""
        deadline, still, before = clock() + DRAIN_SECONDS, clock(), -1
        while (got := sum(len(seen.times) for seen in self.seen)) < len(self.acked) * len(
            self.seen
        ) and clock() < deadline:
            if got != before:
                before, still = got, clock()
            elif clock() - still > STILL_SECONDS:
                break
            await asyncio.sleep(0.02)


def quantile(values: Sequence[float], part: float) -> float:
    """0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


@dataclass
class Outcome:
    """The figures of one flight; times in milliseconds, CPU in microseconds an event. ``busy``: of
    one core, what the generator itself took.
    """

    accepted: int
    rate: float
    ack: array[float]
    delivery: array[float]
    cpu: float
    lost: int
    doubled: int
    reordered: int
    errors: int
    busy: float

    @property
    def wrong(self) -> int:
        return self.lost + self.doubled + self.reordered + self.errors

    @property
    def ack_p50(self) -> float:
        return quantile(self.ack, 0.5)

    @property
    def delivery_p50(self) -> float:
        return quantile(self.delivery, 0.5)

    @property
    def delivery_p99(self) -> float:
        return quantile(self.delivery, 0.99)

    @staticmethod
    def of(flight: Flight, start: float, cpu: float, busy: float) -> Outcome:
        accepted = len(flight.acked)
        delivery = array(
            "d",
            (
                (at - flight.started[serial]) * 1e3
                for seen in flight.seen
                for serial, at in seen.times.items()
            ),
        )
        return Outcome(
            accepted=accepted,
            rate=accepted / (max(flight.acked.values(), default=start + 1) - start),
            ack=array(
                "d", ((at - flight.started[serial]) * 1e3 for serial, at in flight.acked.items())
            ),
            delivery=delivery,
            cpu=cpu * 1e6 / max(1, accepted),
            lost=sum(len(flight.acked.keys() - seen.times.keys()) for seen in flight.seen),
            doubled=sum(seen.doubled for seen in flight.seen),
            reordered=sum(seen.reordered for seen in flight.seen),
            errors=flight.errors,
            busy=busy,
        )
