"""A million rows in the log beside a thousand: events stored, pages replayed, sessions read."""

import asyncio
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from statistics import median

from tests.conformance.bridge import Bridge
from tests.conformance.samples import prompt
from tests.performance.load import Flight, quantile
from tests.performance.report import Report, progress
from tests.performance.returning import Return
from tests.performance.servers import bridge, connect, directory
from tests.performance.sockets import clock

SMALL, LARGE = 1_000, 1_000_000
SESSIONS = 100  # in both; of the large one each has the most that a session keeps
PAGE = 500  # rows that a phone has missed
POSTERS = 64  # beside a single one
LISTS = 10  # GET /sessions a round
COLUMNS = (
    "rows | 200 p50 ms | CPU µs/event | 64 posters 200 p50 ms | CPU µs/event"
    " | first of a missed page ms | whole page ms | GET /sessions p50 ms | memory MB"
)
GOALS = {  # by column: the large log to the small one
    1: ("an event stored, with a million rows and with a thousand", 1.3),
    2: ("its CPU time", 1.3),
    3: (f"an event of {POSTERS} posters stored", 1.3),
    4: ("its CPU time", 1.3),
    6: ("a replayed page", 2.0),
    7: ("GET /sessions", 1.3),
}
Times = dict[str, list[float]]  # milliseconds


def scale(rounds: int, seconds: float) -> Report:
    about = f"a log of {LARGE:,} rows in {SESSIONS} sessions beside one of {SMALL:,}"
    report = Report("scale", f"{about}, interleaved rounds, medians", COLUMNS)
    with ExitStack() as stack:
        path = stack.enter_context(directory())
        sides: list[tuple[Bridge, Times]] = []
        for rows in (SMALL, LARGE):
            ours = stack.enter_context(bridge(path / str(rows)))
            ours.stop()
            command = [sys.executable, "-m", "tests.performance.fill", str(SESSIONS), str(rows)]
            subprocess.run(command, check=True, timeout=1800, **ours.surroundings)
            ours.start()
            sides.append((ours, defaultdict(list)))
            progress(f"scale: {rows:,} rows filled")
        for number in range(rounds):
            for side in sides if number % 2 else sides[::-1]:
                asyncio.run(_round(*side, seconds))
            progress(f"scale: round {number + 1} of {rounds}")
        for rows, (ours, times) in zip((SMALL, LARGE), sides, strict=True):
            report.add(rows, *map(median, times.values()), ours.memory() / 2**20)
    small, large = report.rows
    for column, (what, limit) in GOALS.items():
        report.goal(what, float(large[column]) / float(small[column]), limit, "times")
    return report


async def _round(ours: Bridge, times: Times, seconds: float) -> None:
    """Of one bridge; ``times`` get their names in the order of the columns."""
    for posters in (1, POSTERS):
        flown = await Flight(ours, []).run(posters, seconds)
        times[f"stored by {posters}"].append(quantile(flown.ms(flown.acked), 0.5))
        times[f"CPU by {posters}"].append(flown.cpu)
    await _replay(ours, times)
    https = ours.https()
    connection = https.open()
    for _ in range(LISTS):
        began = clock()
        answer = https.get("/api/v1/sessions", token=ours.admin_token, connection=connection)
        times["list"].append((clock() - began) * 1e3)
        assert answer.json()["total"] == SESSIONS + 1, answer
    connection.close()


async def _replay(ours: Bridge, times: Times) -> None:
    """A phone is away while PAGE events come, turn by turn to the filled sessions, and returns."""
    token = ours.device_token()
    (await connect(ours, token)).close()
    missed = [prompt(f"filled-{number % SESSIONS}", f"missed-{number}") for number in range(PAGE)]
    ours.post_batch(missed)
    found = Return(PAGE, b'"missed-')
    await found.run(ours, token)
    times["first"].append(found.ms(found.first))
    times["page"].append(found.ms(found.last))
