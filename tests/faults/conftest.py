"""How long the crash test shall run."""

from __future__ import annotations

import secrets

import pytest

INSTANTS = 6  # each of the two ways to run; `make soak` asks for 1,000
SECONDS_EACH = 5  # at most for one instant, on a machine that does other things too


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
