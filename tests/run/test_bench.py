"""`make bench` itself: that it sees what is wrong, and says so. What it measures is no test;
docs/performance.md has the figures.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import REPOSITORY
from tests.performance.__main__ import PARTS
from tests.performance.load import Flight, Outcome, Target
from tests.performance.report import Goal, Report
from tests.performance.servers import yardsticks
from tests.performance.sockets import Socket

POSTERS = [0, 1, 0, 1, 0, 1]  # whose each event is


def outcome(*received: Sequence[int], refused: int = 0) -> Outcome:
    """What a flight of six events makes of what its sockets got, in this order."""
    sockets: Any = [None] * len(received)
    flight = Flight(Target([1], "/", "Bearer x", "s"), sockets)
    for serial, poster in enumerate(POSTERS):
        flight.until = float("inf")
        assert flight.begin(poster) == serial
        flight.ended(serial, serial >= refused)
    for seen, serials in zip(flight.seen, received, strict=True):
        take = flight.receiver(seen)
        for serial in serials:
            take(
                b'{"prompt": "' + flight.mark + b"%08d" % serial + b' lorem"}',
                flight.started[serial] + 0.002,
            )
        take(b'{"type": "notification"}', 0.0)
    return Outcome.of(flight, flight.started[0] - 1.0, 0.006, 0.5)


@pytest.mark.parametrize(
    ("received", "lost", "doubled", "reordered"),
    [
        ([0, 1, 2, 3, 4, 5], 0, 0, 0),
        ([1, 0, 3, 2, 5, 4], 0, 0, 0),  # of two posters, neither of which waits for the other
        ([0, 1, 2, 4, 5], 1, 0, 0),
        ([], 6, 0, 0),
        ([0, 1, 2, 3, 3, 4, 5, 3], 0, 2, 0),
        ([2, 0, 1, 3, 4, 5], 0, 0, 1),
    ],
)
def test_what_is_lost_doubled_or_reordered_is_counted(
    received: list[int], lost: int, doubled: int, reordered: int
) -> None:
    found = outcome([0, 1, 2, 3, 4, 5], received)
    assert (found.lost, found.doubled, found.reordered, found.errors) == (
        lost,
        doubled,
        reordered,
        0,
    )
    assert (found.accepted, round(found.cpu)) == (6, 1000)
    assert all(1.9 < value < 2.1 for value in found.delivery)


def test_what_was_refused_is_not_lost() -> None:
    found = outcome([2, 3, 4, 5], refused=2)
    assert (found.accepted, found.errors, found.lost) == (4, 2, 0)


@pytest.mark.parametrize(
    ("measured", "least", "met"),
    [(1.0, False, True), (1.1, False, False), (1.1, True, True), (0.9, True, False)],
)
def test_a_goal_says_whether_it_is_met(measured: float, least: bool, met: bool) -> None:
    goal = Goal("something", measured, 1.0, "ms", least)
    assert goal.met is met
    report = Report("part", "about", ("what", "ms"))
    report.add("this", measured)
    report.goals.append(goal)
    assert ("MISSED" in report.text()) is not met
    assert report.as_json()["goals"][0]["met"] is met


def test_the_generator_and_a_yardstick(tmp_path: Path) -> None:
    """Over TLS, every event arrives once at both sockets."""

    async def fly() -> Outcome:
        sockets: list[Socket] = await bare.connect(2)
        return await Flight(bare.target, sockets).run(3, 0.3)

    with yardsticks(tmp_path, "bare") as [bare]:
        found = asyncio.run(fly())
    assert found.accepted > 0
    assert len(found.delivery) == 2 * found.accepted
    assert (found.lost, found.doubled, found.reordered, found.errors) == (0, 0, 0, 0)


def test_its_parts_are_documented() -> None:
    page = (REPOSITORY / "docs" / "performance.md").read_text()
    assert not [part for part in PARTS if part not in page]
    done = subprocess.run(
        [sys.executable, "-m", "tests.performance", "speed"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "no such part: speed" in done.stderr
