"""Memory and CPU time with nothing to do, and what a burst leaves."""

import asyncio
import time

from tests.performance.load import Flight, cpu_seconds
from tests.performance.report import Report, progress
from tests.performance.servers import bridge, connect, directory
from tests.performance.sockets import Socket

PHONES, MB = 5, 2**20
HEARTBEAT_SECONDS = 15.0  # SPEC Limits
SETTLE_SECONDS = 10.0  # its first chores are done
MEMORY_MB, CPU_PERCENT, GROWTH_MB = 120.0, 1.0, 64.0


def idle(rounds: int, seconds: float) -> Report:
    """With nobody there, with five phones that only send heartbeats, and after 64 posters."""
    report = Report("idle", "a bridge with nothing to do", "state | memory MB | CPU % of a core")

    async def beat(phone: Socket) -> None:
        while True:
            await phone.ask("heartbeat_ping", "heartbeat_pong")
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def watch(state: str) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        before, began = cpu_seconds(ours), time.monotonic()
        await asyncio.sleep(seconds)
        percent = 100 * (cpu_seconds(ours) - before) / (time.monotonic() - began)
        report.add(state, ours.memory() / MB, percent)
        report.goal(f"memory, {state}", ours.memory() / MB, MEMORY_MB, "MB")
        report.goal(f"CPU, {state}", percent, CPU_PERCENT, "% of a core")
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
        before = ours.memory()
        await Flight(ours, []).run(64, 2 * seconds)
        report.goal("memory that 64 posters add", (ours.memory() - before) / MB, GROWTH_MB, "MB")

    with directory() as path, bridge(path / "bridge") as ours:
        for _ in range(rounds):
            asyncio.run(measure())
    return report
