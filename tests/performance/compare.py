"""The same load on several servers in turns, round after round: a row for each, and their ratios."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from tests.performance.load import Flight, Outcome, Target
from tests.performance.report import Report, progress
from tests.performance.sockets import Socket

POSTERS = (1, 16, 64)
COLUMNS = (
    *("posters", "server", "events/s", "200 p50 ms", "delivery p50 ms", "p99 ms", "CPU µs/event"),
    *("accepted", "lost", "doubled", "reordered", "refused", "generator"),
)
Fleet = dict[str, tuple[Target, list[Socket]]]


async def compare(
    report: Report,
    fleet: Fleet,
    rounds: int,
    seconds: float,
    *,
    ours: Sequence[str],
    ratios: Sequence[tuple[str, str]],
) -> None:
    """Fill the report, whose columns are COLUMNS. Of what ``ours`` were sent nothing may be lost."""
    flown: dict[tuple[int, str], list[Outcome]] = defaultdict(list)
    for number in range(rounds):
        for posters in POSTERS:
            for name, (where, sockets) in fleet.items():
                flown[posters, name].append(await Flight(where, sockets).run(posters, seconds))
        progress(f"{report.name}: round {number + 1} of {rounds}")
    for _, sockets in fleet.values():
        for opened in sockets:
            opened.close()
    for (posters, name), outcomes in flown.items():
        counts = ("accepted", "lost", "doubled", "reordered", "errors")
        report.add(
            posters,
            name,
            *(_of(outcomes, what) for what in ("rate", "ack_p50", "delivery_p50", "delivery_p99")),
            _of(outcomes, "cpu"),
            *(sum(getattr(one, what) for one in outcomes) for what in counts),
            f"{_of(outcomes, 'busy'):.0%}",
        )
    for posters in POSTERS:
        wrong = sum(one.wrong for name in ours for one in flown[posters, name])
        report.goal(f"{posters} posters: lost, doubled, reordered or refused", wrong, 0)
        for one, other in ratios:
            rate, delivery, cpu = (
                _of(flown[posters, one], what) / (_of(flown[posters, other], what) or 1.0)
                for what in ("rate", "delivery_p50", "cpu")
            )
            report.notes.append(
                f"  {posters} posters, {one} to {other}: events a second {rate:.2f}, delivery p50"
                f" {delivery:.2f}, CPU an event {cpu:.2f}"
            )
    report.notes.append(
        "  generator: what it took of its core; near 100 % it is the generator that was measured"
    )


def _of(outcomes: list[Outcome], what: str) -> float:
    return float(median(getattr(one, what) for one in outcomes))
