"""The load generator: posters in a closed loop, sockets that look for each event.

Posted is what an agent's hooks send: nine events of ten are a tool called or finished. Each carries
a serial number, so that of each event is known when it was posted, answered and at each socket.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from tests.conformance.bridge import Bridge
from tests.conformance.https import LOOPBACK, pinned_context
from tests.conformance.samples import now
from tests.performance.sockets import Socket, clock

EVENT_BYTES = 700
MIX = ("UserPromptSubmit", *("PreToolUse", "PostToolUse") * 9, "Stop")
SERIAL, CALL = b"#SERIAL#", b"##CALL##"  # places in a request, of eight digits each
DRAIN_SECONDS = 20.0  # after the last post, at most
STILL_SECONDS = 3.0  # nothing came for this long: nothing more will


def process_of(bridge: Bridge) -> psutil.Process:
    assert bridge.process is not None
    return psutil.Process(bridge.process.pid)


def cpu_seconds(bridge: Bridge) -> float:
    """CPU time that its process has used so far; it grows in steps of 10 ms."""
    return sum(process_of(bridge).cpu_times()[:2])


def resident_mb(bridge: Bridge) -> float:
    return float(process_of(bridge).memory_info().rss / 2**20)


def hook_event(kind: str, session: str, call_id: str, more: dict[str, Any]) -> dict[str, Any]:
    """An event of MIX of about EVENT_BYTES, with more fields in its payload."""
    params = {"command": f"npm test -- --filter {call_id}", "description": "Run the tests"}
    call: dict[str, Any] = {"tool": "Bash", "params": params, "tool_use_id": call_id}
    payloads: dict[str, dict[str, Any]] = {
        "UserPromptSubmit": {"prompt": "Fix the flaky test. "},
        "PreToolUse": call | {"risk_level": "low", "requires_approval": False},
        "PostToolUse": call | {"result": {}, "success": True, "execution_time_ms": 1200},
        "Stop": {"reason": "task_completed"},
    }
    payload = payloads[kind] | more
    event = {"event": kind, "timestamp": now(), "session_id": session, "payload": payload}
    filler = "ok " * max(0, (EVENT_BYTES - len(json.dumps(event))) // 3)
    if kind == "PostToolUse":
        payload["result"] = {"stdout": filler}
    elif kind == "UserPromptSubmit":
        payload["prompt"] += filler
    return event


@dataclass
class Seen:
    """What one socket has been given of a flight."""

    times: dict[int, float] = field(default_factory=dict)  # serial → when
    newest: dict[int, int] = field(default_factory=dict)  # poster → its newest event
    wrong: int = 0  # doubled, or out of order


class Flight:
    """One measurement: ``run`` posts for some seconds to the session `measured`, waits for what is
    on its way, and returns the figures.
    """

    def __init__(self, bridge: Bridge, sockets: Sequence[Socket], *, pause: float = 0.0) -> None:
        self.bridge, self.sockets, self.pause = bridge, sockets, pause
        self.started: list[float] = []  # of each serial
        self.poster: list[int] = []
        self.acked: dict[int, float] = {}  # serial → when
        self.refused = 0
        self.until = 0.0
        self.seen = [Seen() for _ in sockets]
        run = os.urandom(3).hex()
        self.mark = f"event-number-{run}-"  # of this flight alone
        self.requests = {kind: self._request(kind, f"toolu_{run}_") for kind in MIX}

    def _request(self, kind: str, call: str) -> bytes:
        """An HTTP request, with places for its serial number and that of its call's beginning."""
        marked = {"serial": self.mark + SERIAL.decode()}
        body = json.dumps(hook_event(kind, "measured", call + CALL.decode(), marked))
        head = [
            f"POST /api/v1/hooks/event HTTP/1.1\r\nHost: {LOOPBACK}",
            f"Content-Type: application/json\r\nAuthorization: Bearer {self.bridge.hook_token}",
            f"Content-Length: {len(body)}\r\n\r\n",
        ]
        return ("\r\n".join(head) + body).encode()

    async def _post(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Write a request, read its answer, again, until the time is over."""
        turn, call = 2 * number + 1, 0  # each begins with a call of its own
        while (at := clock()) <= self.until:
            serial, kind = len(self.started), MIX[turn % len(MIX)]
            self.started.append(at)
            self.poster.append(number)
            call, turn = serial if kind == "PreToolUse" else call, turn + 1
            request = self.requests[kind].replace(SERIAL, b"%08d" % serial)
            writer.write(request.replace(CALL, b"%08d" % call))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
            if head[9:12] in (b"200", b"201"):
                self.acked[serial] = clock()
            else:
                self.refused += 1
            if self.pause:
                await asyncio.sleep(self.pause)
        writer.close()

    def receiver(self, seen: Seen) -> Callable[[bytes, float], None]:
        mark = self.mark.encode()

        def receive(text: bytes, at: float) -> None:
            found = text.find(mark) + len(mark)
            if found < len(mark):
                return
            serial = int(text[found : found + len(SERIAL)])
            poster = self.poster[serial]
            seen.wrong += serial in seen.times or serial < seen.newest.get(poster, -1)
            seen.times.setdefault(serial, at)
            seen.newest[poster] = serial

        return receive

    async def run(self, posters: int, seconds: float) -> Outcome:
        for socket, seen in zip(self.sockets, self.seen, strict=True):
            socket.on_text = self.receiver(seen)
        opened = [
            await asyncio.open_connection(LOOPBACK, self.bridge.port, ssl=pinned_context())
            for _ in range(posters)
        ]
        used, start = cpu_seconds(self.bridge), clock()
        self.until = start + seconds
        posting = (self._post(number, *streams) for number, streams in enumerate(opened))
        await asyncio.wait_for(asyncio.gather(*posting), seconds + 60)
        await self._drain()
        return Outcome(self, start, cpu_seconds(self.bridge) - used)

    async def _drain(self) -> None:
        """Until every socket has every accepted event, or nothing comes any more."""
        wanted, got, still = len(self.acked) * len(self.seen), -1, clock()
        deadline = still + DRAIN_SECONDS
        while got < wanted and clock() < min(deadline, still + STILL_SECONDS):
            before, got = got, sum(len(seen.times) for seen in self.seen)
            still = clock() if got != before else still
            await asyncio.sleep(0.02)


class Outcome:
    """A flight's figures, in ms, CPU in µs an event; ``wrong``: lost, doubled, refused …"""

    def __init__(self, flight: Flight, start: float, cpu: float) -> None:
        acked, begun, all_seen = flight.acked, flight.started, flight.seen
        self.accepted = len(acked)
        self.rate = len(acked) / (max(acked.values(), default=start + 1) - start)
        self.ack = [(at - begun[serial]) * 1e3 for serial, at in acked.items()]
        self.delivery = [
            (at - begun[serial]) * 1e3 for seen in all_seen for serial, at in seen.times.items()
        ]
        self.ack_p50 = quantile(self.ack, 0.5)
        self.delivery_p50, self.delivery_p99 = (quantile(self.delivery, q) for q in (0.5, 0.99))
        self.cpu = cpu * 1e6 / max(1, len(acked))
        lost = sum(len(acked.keys() - seen.times.keys()) for seen in all_seen)
        self.wrong = lost + sum(seen.wrong for seen in all_seen) + flight.refused


def quantile(values: Sequence[float], part: float) -> float:
    """0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0
