"""How long the crash test shall run, and what a clock that is off asks of the harness."""

import secrets

import pytest

from tests.conformance import phone
from tests.conformance.https import parse_time

SECONDS_EACH = 5  # at most for one instant, on a machine that does other things too


def pytest_addoption(parser: pytest.Parser) -> None:
    # each of the two ways to run; `make soak` asks for 1,000
    parser.addoption("--instants", type=int, default=6, help="of the crash test: so many kills")
    parser.addoption("--seed", help="of the crash test: printed when it fails")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seconds = 600 + SECONDS_EACH * config.getoption("--instants", 6)
    for item in items:
        if "instants" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(seconds))


@pytest.fixture
def instants(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--instants", 6))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--seed", None) or secrets.token_hex(4))


@pytest.fixture
def other_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness holds every pong against our clock; here it only has to be a time."""
    monkeypatch.setattr(phone, "assert_now", parse_time)
