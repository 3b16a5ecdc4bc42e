"""Memory and CPU time: with nothing to do, and of one more socket."""

import asyncio
import time

from tests.performance.load import Flight, cpu_seconds, resident_mb
from tests.performance.report import Report, progress
from tests.performance.servers import SESSION, bridge, connect, directory
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


SOCKETS = (5, 50, 500)
PAUSE = 0.05  # between a 200 and the next event: 20 a second
P99_MS, SOCKET_KB = 250.0, 60.0


def fanout(rounds: int, seconds: float) -> Report:
    """What one more socket costs: each number of them for ``seconds``, ``rounds`` times."""
    columns = (
        "sockets | events/s | delivery p50 ms | p99 ms | CPU µs/event and socket"
        " | memory KB/socket | lost, doubled, reordered"
    )
    report = Report("fanout", "sockets on one session, 20 events a second", columns)

    async def measure() -> None:
        sockets = list[Socket]()
        names = [("--name", f"phone-{number}") for number in range(max(SOCKETS) + 1)]
        tokens = [pairing.token for pairing in ours.mint_many(*names)]
        first = await connect(ours, tokens.pop(), SESSION)
        await Flight(ours, [first], pause=PAUSE).run(1, seconds)  # costs of the first of all
        first.close()
        for count in SOCKETS:
            # of the new ones: between two counts the rows that are kept at hand become more
            new, before = count - len(sockets), resident_mb(ours)
            while len(sockets) < count:
                sockets.append(await connect(ours, tokens[len(sockets)], SESSION))
            memory = (resident_mb(ours) - before) * 1024 / new
            for _ in range(rounds):
                flown = await Flight(ours, sockets, pause=PAUSE).run(1, seconds)
                times = flown.delivery_p50, flown.delivery_p99
                report.add(count, flown.rate, *times, flown.cpu / count, memory, flown.wrong)
                report.goal(f"{count}: lost, doubled, reordered", flown.wrong, 0)
                if count == max(SOCKETS):
                    report.goal(f"{count}: delivery p99", flown.delivery_p99, P99_MS, "ms")
            progress(f"fanout: {count} sockets")
        report.goal(f"{max(SOCKETS)}: memory a socket", memory, SOCKET_KB, "KB")
        for opened in sockets:
            opened.close()

    room = str(2 * max(SOCKETS))
    with directory() as path, bridge(path / "bridge", BRIDGE_MAX_WEBSOCKETS=room) as ours:
        asyncio.run(measure())
    return report
