"""`make bench` itself: that it sees what is wrong, and says so. What it measures is no test;
docs/performance.md has the figures.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.conformance.bridge import REPOSITORY
from tests.performance.__main__ import PARTS
from tests.performance.load import Flight, Outcome
from tests.performance.servers import yardsticks
from tests.performance.sockets import Socket


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
