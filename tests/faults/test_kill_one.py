"""kill -9 at random instants of one process: what was acknowledged is in every device's view exactly
once, in order (D26, D27, D31).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.killing import survive
from tests.faults.quick import QuickBridge

pytestmark = pytest.mark.slow


@pytest.mark.spec("delivery.crash")
def test_one_process(tmp_path: Path, instants: int, seed: str) -> None:
    """SQLite. A process that starts takes over at once what its predecessor held (D35): the five
    phones fill all five places (D23).
    """
    with QuickBridge(tmp_path) as bridge:
        survive([bridge], instants, seed)
