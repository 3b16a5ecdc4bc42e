"""A bridge with one real agent, whose home and model are our own; what is skipped is said."""

from collections.abc import Iterator

import pytest

from tests.agents.real.models import Model
from tests.agents.real.place import Place, place_of
from tests.agents.real.table import REAL, Real

HERE = "tests/agents/real/"


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.close()


def _own_group(agent: Real) -> object:
    """All tests of an agent are one worker's: they share its bridge."""
    return pytest.param(agent, id=agent.name, marks=pytest.mark.xdist_group(agent.name))


@pytest.fixture(scope="module", params=map(_own_group, REAL.values()))
def place(
    request: pytest.FixtureRequest, model: Model, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A bridge that has this agent; every test begins sessions of its own."""
    agent: Real = request.param
    with place_of(agent, model, tmp_path_factory.mktemp(agent.name)) as place:
        yield place


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each agent or file of which something was not tried, with the reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        if report.nodeid.startswith(HERE) and isinstance(report.longrepr, tuple):
            of = report.nodeid.partition("[")[2].partition("]")[0] or report.nodeid
            reason = report.longrepr[2].removeprefix("Skipped: ")
            reasons.setdefault((of, reason), []).append(report.nodeid)
    for (of, reason), tests in reasons.items():
        terminalreporter.write_line(f"NOT TESTED ({len(tests)} of {of}): {reason}")
