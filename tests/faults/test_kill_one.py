"""kill -9 of one process: what was acknowledged is there once, in order (D26, D27, D31)."""

from pathlib import Path

import pytest

from tests.faults.killing import survive
from tests.faults.quick import QuickBridge

pytestmark = pytest.mark.slow


@pytest.mark.spec("delivery.crash")
def test_one_process(tmp_path: Path, instants: int, seed: str) -> None:
    """SQLite; the five phones fill all five places (D23), and get them back at once (D35)."""
    with QuickBridge(tmp_path) as bridge:
        survive([bridge], instants, seed)
