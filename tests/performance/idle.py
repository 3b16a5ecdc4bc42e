"""Memory and CPU time with nothing to do, and what a burst leaves."""

import asyncio
import time

from tests.performance.load import Flight, cpu_seconds, resident_mb
from tests.performance.report import Report, progress
from tests.performance.servers import bridge, connect, directory
from tests.performance.sockets import Socket

PHONES = 5
HEARTBEAT_SECONDS = 15.0  # SPEC Limits
SETTLE_SECONDS = 10.0  # its first chores are done
MEMORY_MB, CPU_PERCENT, GROWTH_MB = 120.0, 1.0, 64.0


def idle(rounds: int, seconds: float) -> Report:
    """With nobody there, with five phones that only send heartbeats, and after 64 posters."""
    columns = "state | seconds | memory MB | CPU % of a core"
    report = Report("idle", "a bridge with nothing to do", columns)

    async def beat(phone: Socket) -> None:
        while True:
            await phone.ask("heartbeat_ping", "heartbeat_pong")
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def watch(state: str) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        before, began = cpu_seconds(ours), time.monotonic()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        percent = 100 * (cpu_seconds(ours) - before) / took
        report.add(state, round(took), resident_mb(ours), percent)
        progress(f"idle: {state}")

    async def measure() -> None:
        await watch("nobody connected")
        tokens = [await asyncio.to_thread(ours.device_token) for _ in range(PHONES)]
        phones = [await connect(ours, token) for token in tokens]
        beats = [asyncio.create_task(beat(phone)) for phone in phones]
        await watch(f"{PHONES} phones")
        for one, phone in zip(beats, phones, strict=True):
            one.cancel()
            phone.close()
        before = resident_mb(ours)
        await Flight(ours, []).run(64, 2 * seconds)
        grown = resident_mb(ours) - before
        report.goal("memory that 64 posters add", grown, GROWTH_MB, "MB")

    with directory() as path, bridge(path / "bridge") as ours:
        for _ in range(rounds):
            asyncio.run(measure())
    for state, _, memory, cpu in report.rows:
        report.goal(f"memory, {state}", float(memory), MEMORY_MB, "MB")
        report.goal(f"CPU, {state}", float(cpu), CPU_PERCENT, "% of a core")
    return report
