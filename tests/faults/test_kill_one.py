"""kill -9 at random instants of one process: what was acknowledged is in every
device's view exactly once, in order (D26, D27, D31).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.killing import survive
from tests.faults.quick import QuickBridge

pytestmark = pytest.mark.slow


@pytest.mark.spec("delivery.crash")
def test_one_process(make_quick: Callable[..., QuickBridge], instants: int, seed: str) -> None:
    """SQLite. A process that starts takes over at once what its predecessor held (D35): the five
    phones fill all five places (D23).
    """
    survive([make_quick("one", start=False)], instants, seed)
