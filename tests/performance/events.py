"""How many events a second, how soon, at what cost."""

import asyncio
from statistics import median

from tests.performance.load import Flight, quantile
from tests.performance.report import Report, progress
from tests.performance.servers import SESSION, bridge, connect, directory

POSTERS = (1, 16, 64)
COLUMNS = (
    "posters | events/s | 200 p50 ms | delivery p50 ms | p99 ms | CPU µs/event"
    " | accepted | lost, doubled, reordered, refused"
)


def events(rounds: int, seconds: float) -> Report:
    report = Report("events", "5 sockets on one session, medians", COLUMNS)
    flown: dict[int, list[Flight]] = {posters: [] for posters in POSTERS}

    async def measure() -> None:
        sockets = [await connect(ours, ours.device_token(), SESSION) for _ in range(5)]
        for number in range(rounds):
            for posters, flights in flown.items():
                flights.append(await Flight(ours, sockets).run(posters, seconds))
            progress(f"events: round {number + 1} of {rounds}")
        for opened in sockets:
            opened.close()

    with directory() as path, bridge(path / "bridge") as ours:
        asyncio.run(measure())
    for posters, flights in flown.items():
        figures = [_figures(flight) for flight in flights]
        wrong = sum(flight.wrong() for flight in flights)
        accepted = sum(len(flight.acked) for flight in flights)
        report.add(posters, *map(median, zip(*figures, strict=True)), accepted, wrong)
        report.goal(f"{posters} posters: lost, doubled, reordered or refused", wrong, 0)
    return report


def _figures(flight: Flight) -> tuple[float, ...]:
    delivery = flight.delivery()
    parts = quantile(delivery, 0.5), quantile(delivery, 0.99)
    return flight.rate, quantile(flight.ms(flight.acked), 0.5), *parts, flight.cpu
