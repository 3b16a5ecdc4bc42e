"""How many events a second, how soon, at what cost."""

import asyncio
from statistics import median

from tests.performance.load import Flight, Outcome
from tests.performance.report import Report, progress
from tests.performance.servers import SESSION, bridge, connect, directory

POSTERS = (1, 16, 64)
COLUMNS = (
    "posters | events/s | 200 p50 ms | delivery p50 ms | p99 ms | CPU µs/event"
    " | accepted | lost, doubled, reordered, refused"
)
FIGURES = ("rate", "ack_p50", "delivery_p50", "delivery_p99", "cpu")


def events(rounds: int, seconds: float) -> Report:
    report = Report("events", "5 sockets on one session, medians", COLUMNS)
    flown: dict[int, list[Outcome]] = {posters: [] for posters in POSTERS}

    async def measure() -> None:
        sockets = [await connect(ours, ours.device_token(), SESSION) for _ in range(5)]
        for number in range(rounds):
            for posters, outcomes in flown.items():
                outcomes.append(await Flight(ours, sockets).run(posters, seconds))
            progress(f"events: round {number + 1} of {rounds}")
        for opened in sockets:
            opened.close()

    with directory() as path, bridge(path / "bridge") as ours:
        asyncio.run(measure())
    for posters, outcomes in flown.items():
        figures = [median(getattr(one, what) for one in outcomes) for what in FIGURES]
        wrong = sum(one.wrong for one in outcomes)
        report.add(posters, *figures, sum(one.accepted for one in outcomes), wrong)
        report.goal(f"{posters} posters: lost, doubled, reordered or refused", wrong, 0)
    return report
