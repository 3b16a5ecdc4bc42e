"""Sessions are searched: 100,000 rows of 2,000 sessions."""

import asyncio
import subprocess
import sys
from statistics import median

from tests.conformance.bridge import Bridge
from tests.performance.load import quantile
from tests.performance.report import Report, progress
from tests.performance.servers import bridge, connect, directory
from tests.performance.sockets import Socket, clock

SESSIONS, ROWS = 2_000, 100_000
QUERIES = {  # what → a query of it
    "in every row": "lorem",
    "several words": "dolor lorem sit",
    "in one row": "54321",
    "one letter": "m",
    "nowhere": "heliotrope",
}
OFTEN = 10  # a round
P95_MS = 200.0
INDEX_SECONDS = 900


def search(rounds: int, seconds: float) -> Report:
    """Ask each query OFTEN times in each of ``rounds``; ``seconds`` has no meaning here."""
    about = f"session_search over {ROWS:,} rows of {SESSIONS:,} sessions"
    report = Report("search", about, "query | hits | p50 ms | p95 | max")
    with directory() as path, bridge(path / "bridge") as ours:
        ours.stop()
        command = [sys.executable, "-m", "tests.performance.fill", str(SESSIONS), str(ROWS), "said"]
        subprocess.run(command, check=True, timeout=900, **ours.surroundings)
        ours.start()
        progress(f"search: {ROWS:,} rows filled")
        asyncio.run(_search(report, ours, rounds))
    report.goal("the slowest query, p95", max(float(row[3]) for row in report.rows), P95_MS, "ms")
    return report


async def _search(report: Report, ours: Bridge, rounds: int) -> None:
    phone = await connect(ours, ours.device_token())
    began = clock()
    last = str(ROWS - 1)  # the number in the last row
    while not any(one["where"] == "prompt" for one in await _hits(phone, last)):
        assert clock() - began < INDEX_SECONDS, "the index does not follow"
        await asyncio.sleep(1)
    progress(f"search: indexed within {clock() - began:.0f} s of the start")
    for what, query in QUERIES.items():
        times, hits = [], 0
        for _ in range(rounds * OFTEN):
            asked = clock()
            hits = len(await _hits(phone, query))
            times.append((clock() - asked) * 1e3)
        report.add(what, hits, median(times), quantile(times, 0.95), max(times))
    phone.close()


async def _hits(phone: Socket, query: str) -> list[dict[str, str]]:
    answer = await phone.ask("session_search", "session_search_response", query=query)
    hits: list[dict[str, str]] = answer["payload"]["hits"]
    return hits
