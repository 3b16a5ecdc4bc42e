"""Quick bridges for tests that break them, and how long the crash test shall run."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faults.quick import QuickBridge, nursery

INSTANTS = 6  # each of the two ways to run; `make soak` asks for 1,000
SECONDS_EACH = 5  # at most for one instant, on a machine that does other things too


@pytest.fixture(scope="module")
def make_quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., QuickBridge]]:
    """`make_quick(name, start=True, **settings)`: a QuickBridge, killed after the module's tests if
    it still runs.
    """
    made: list[QuickBridge] = []

    def make(name: str, *, start: bool = True, **settings: Any) -> QuickBridge:
        bridge = QuickBridge(tmp_path_factory.mktemp(name), **settings)
        made.append(bridge)
        if start:
            bridge.start()
            bridge.pin = bridge.pairing().pin
        return bridge

    yield make
    for bridge in made:
        bridge.hang_up()
        if bridge.process is not None and bridge.process.poll() is None:
            bridge.kill()
        nursery.forget(bridge.environment)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--instants",
        type=int,
        default=None,
        help=f"at how many random instants the crash test kills (default {INSTANTS})",
    )
    parser.addoption(
        "--seed",
        default=None,
        help="of the crash test's random numbers: it is printed when the test fails",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "instants" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(600 + SECONDS_EACH * _instants(config)))


def _instants(config: pytest.Config) -> int:
    return int(config.getoption("--instants", None) or INSTANTS)


@pytest.fixture
def instants(request: pytest.FixtureRequest) -> int:
    return _instants(request.config)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--seed", None) or secrets.token_hex(4))
