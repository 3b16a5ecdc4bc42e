"""`make bench` itself: that it sees what is wrong, and says so. What it measures is no test;
docs/performance.md has the figures.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.conformance.bridge import REPOSITORY
from tests.faults.quick import QuickBridge
from tests.performance.__main__ import PARTS
from tests.performance.load import Flight, Outcome
from tests.performance.servers import SESSION, connect, target


def test_the_generator(tmp_path: Path) -> None:
    """Every event arrives once at both sockets."""

    async def fly(bridge: QuickBridge) -> Outcome:
        tokens = [bridge.device_token() for _ in range(2)]
        where = target(bridge)
        sockets = [await connect(bridge, token, SESSION) for token in tokens]
        flown = await Flight(where, sockets).run(3, 0.3)
        for opened in sockets:
            opened.close()
        return flown

    with QuickBridge(tmp_path) as bridge:
        found = asyncio.run(fly(bridge))
    assert found.accepted > 0
    assert len(found.delivery) == 2 * found.accepted
    assert found.wrong == 0


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
