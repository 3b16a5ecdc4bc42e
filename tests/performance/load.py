"""The load generator: posters in a closed loop, sockets that look for each event.

Nine events of ten are a tool called or finished; each carries a serial number to be known by.
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
from tests.conformance.raw import head
from tests.conformance.samples import PAYLOADS, hook
from tests.performance.sockets import Socket, clock

EVENT_BYTES = 700
MIX = ("UserPromptSubmit", *("PreToolUse", "PostToolUse") * 9, "Stop")
FILLED = {"UserPromptSubmit": "prompt", "PostToolUse": "result"}  # with words up to EVENT_BYTES
SERIAL, CALL = b"#SERIAL#", b"##CALL##"  # places in a request, of eight digits each
DRAIN_SECONDS = 20.0  # after the last post, at most
STILL_SECONDS = 3.0  # nothing came for this long: nothing more will


def cpu_seconds(bridge: Bridge) -> float:
    """CPU time that its process has used so far; it grows in steps of 10 ms."""
    return sum(psutil.Process(bridge.running.pid).cpu_times()[:2])


def hook_event(kind: str, session: str, call_id: str, more: dict[str, Any]) -> dict[str, Any]:
    """An event of MIX, with more fields in its payload."""
    payload = PAYLOADS[kind] | {"tool_use_id": call_id} | more
    event = hook(kind, session, payload)
    if kind in FILLED:
        payload[FILLED[kind]] = "ok " * max(0, (EVENT_BYTES - len(json.dumps(event))) // 3)
    return event


@dataclass
class Seen:
    times: dict[int, float] = field(default_factory=dict)  # serial → when
    newest: dict[int, int] = field(default_factory=dict)  # poster → its newest event
    wrong: int = 0  # doubled, or out of order


class Flight:
    """One measurement: ``run`` posts to the session `measured`, and waits for what is underway."""

    def __init__(self, bridge: Bridge, sockets: Sequence[Socket], *, pause: float = 0.0) -> None:
        self.bridge, self.sockets, self.pause = bridge, sockets, pause
        self.started: list[float] = []  # of each serial
        self.poster: list[int] = []
        self.acked: dict[int, float] = {}  # serial → when
        self.refused = 0
        self.until = 0.0
        self.rate = self.cpu = 0.0  # events a second, microseconds an event
        self.seen = [Seen() for _ in sockets]
        run = os.urandom(3).hex()
        self.mark = f"event-number-{run}-"  # of this flight alone
        self.requests = {kind: self._request(kind, f"toolu_{run}_") for kind in MIX}

    def _request(self, kind: str, call: str) -> bytes:
        """An HTTP request, with places for its serial number and that of its call's beginning."""
        marked = {"serial": self.mark + SERIAL.decode()}
        body = json.dumps(hook_event(kind, "measured", call + CALL.decode(), marked))
        return head(self.bridge, f"Content-Length: {len(body)}") + body.encode()

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
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(answer.partition(b"content-length:")[2].split()[0]))
            if answer[9:12] == b"200":
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

    async def run(self, posters: int, seconds: float) -> Flight:
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
        self.cpu = (cpu_seconds(self.bridge) - used) * 1e6 / max(1, len(self.acked))
        self.rate = len(self.acked) / (max(self.acked.values(), default=start + 1) - start)
        return self

    async def _drain(self) -> None:
        """Until every socket has every accepted event, or nothing comes any more."""
        wanted, got, still = len(self.acked) * len(self.seen), -1, clock()
        deadline = still + DRAIN_SECONDS
        while got < wanted and clock() < min(deadline, still + STILL_SECONDS):
            before, got = got, sum(len(seen.times) for seen in self.seen)
            still = clock() if got != before else still
            await asyncio.sleep(0.02)

    def ms(self, times: dict[int, float]) -> list[float]:
        """How long after it was posted each event had its time."""
        return [(at - self.started[serial]) * 1e3 for serial, at in times.items()]

    def delivery(self) -> list[float]:
        return [took for seen in self.seen for took in self.ms(seen.times)]

    def wrong(self) -> int:
        """Lost, doubled, out of order or refused."""
        lost = sum(len(self.acked.keys() - seen.times.keys()) for seen in self.seen)
        return lost + sum(seen.wrong for seen in self.seen) + self.refused


def quantile(values: Sequence[float], part: float) -> float:
    """0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0
