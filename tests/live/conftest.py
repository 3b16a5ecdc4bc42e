"""The bridge and a paired phone as real processes and sockets, for tests that follow an event the
whole way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge, nursery


@pytest.fixture(scope="module")
def make_bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Bridge]]:
    """Start a bridge with settings of its own; stopped when the module is done."""
    started: list[Bridge] = []

    def make(name: str, **settings: Any) -> Bridge:
        bridge = QuickBridge(tmp_path_factory.mktemp(name), **settings).start()
        started.append(bridge)
        bridge.pin = bridge.pairing().pin
        return bridge

    yield make
    for bridge in started:
        if bridge.process is not None and bridge.process.poll() is None:
            bridge.stop()
        nursery.forget(bridge.environment)
