"""What a bridge costs that has nothing to do: memory, and CPU time, with nobody there and with five
phones that only send heartbeats.
"""

from __future__ import annotations

import asyncio
import time

from tests.conformance.bridge import Bridge
from tests.performance import machine
from tests.performance.report import Report, progress
from tests.performance.servers import SESSION, bridge, connect, directory, process_of, target
from tests.performance.sockets import Socket

PHONES = 5
HEARTBEAT_SECONDS = 15.0  # SPEC Limits
SETTLE_SECONDS = 10.0  # its first chores are done
MEMORY_MB, CPU_PERCENT = 120.0, 1.0
COLUMNS = ("state", "seconds", "memory MB", "CPU % of a core")


def measure(rounds: int, seconds: float) -> Report:
    report = Report("idle", "a bridge with its defaults and nothing to do", COLUMNS)
    with directory() as path, bridge(path / "bridge") as ours:
        for _ in range(rounds):
            asyncio.run(_measure(report, ours, seconds))
    for state, _, memory, cpu in report.rows:
        report.goal(f"memory, {state}", float(memory), MEMORY_MB, "MB")
        report.goal(f"CPU, {state}", float(cpu), CPU_PERCENT, "% of a core")
    return report


async def _measure(report: Report, ours: Bridge, seconds: float) -> None:
    await asyncio.sleep(SETTLE_SECONDS)
    await _watch(report, ours, "nobody connected", seconds)
    tokens = [await asyncio.to_thread(ours.device_token) for _ in range(PHONES)]
    await asyncio.to_thread(target, ours)
    phones = [await connect(ours, token, SESSION) for token in tokens]
    beats = [asyncio.create_task(_beat(phone)) for phone in phones]
    await asyncio.sleep(SETTLE_SECONDS)
    await _watch(report, ours, f"{PHONES} phones", seconds)
    for beat in beats:
        beat.cancel()
    for phone in phones:
        phone.close()


async def _beat(phone: Socket) -> None:
    while True:
        await phone.ask("heartbeat_ping", "heartbeat_pong")
        await asyncio.sleep(HEARTBEAT_SECONDS)


async def _watch(report: Report, ours: Bridge, state: str, seconds: float) -> None:
    before, began = machine.cpu_seconds(process_of(ours)), time.monotonic()
    await asyncio.sleep(seconds)
    used, took = machine.cpu_seconds(process_of(ours)) - before, time.monotonic() - began
    report.add(state, round(took), machine.resident_mb(process_of(ours)), 100 * used / took)
    progress(f"idle: {state}")
