"""Fixtures that tests of every room may ask for, and which files are begun first."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.servers import end_common, postgres_server, redis_server

__all__ = ["postgres_server", "redis_server"]

# How long an example takes says how busy the machine is, no more. `make soak` asks for more of
# them.
settings.register_profile(
    "bridge",
    max_examples=int(os.environ.get("SOAK_EXAMPLES") or 25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("bridge")

# The tests may be run by an agent that a bridge has started, whose hooks report nothing.
os.environ.pop("AGENT_BRIDGE_SESSION", None)

HERE = Path(__file__).parent
# The files that take longest: begun last, one of them would run alone while the other workers have
# nothing left to do.
LONG = (
    "sessions/test_on_postgresql.py",
    "conformance/test_openapi.py",
    "faults/test_stores.py",
    "faults/test_kill_one.py",
    "faults/test_kill_two.py",
    "run/test_clone.py",
    "faults/test_state_machine.py",
    "faults/test_disk_full.py",
    "faults/test_network.py",
    "faults/test_clock_year.py",
    "attack/test_failed_migration.py",
    "attack/test_database_taken.py",
    "conformance/test_agent_life.py",
    "conformance/test_agent_owners.py",
    "conformance/test_agent_killed.py",
    "conformance/test_agent_bad_input.py",
    "conformance/test_agent_cycles.py",
    "conformance/test_approval_race.py",
    "conformance/test_approval_restart.py",
    "run/test_watch_commands.py",
)
RANK = {HERE / name: number for number, name in enumerate(LONG)}


RUN_PLACE = pytest.StashKey[Path]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: RANK.get(item.path, len(LONG)))


def pytest_configure(config: pytest.Config) -> None:
    """Give a run, and each of its workers, the directory of the servers that they share."""
    if (given := getattr(config, "workerinput", None)) is not None:
        config.stash[RUN_PLACE] = Path(given["run_place"])
    else:
        place = Path(tempfile.mkdtemp(prefix="bridge-run-"))
        place.chmod(0o755)  # PostgreSQL's user must get through it
        config.stash[RUN_PLACE] = place


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["run_place"] = str(node.config.stash[RUN_PLACE])


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        end_common(config.stash[RUN_PLACE])


@pytest.fixture(scope="session")
def run_place(request: pytest.FixtureRequest) -> Path:
    """A directory that all workers of this run share."""
    return request.config.stash[RUN_PLACE]


@pytest.fixture
def phone(bridge: Bridge) -> Iterator[Phone]:
    """A fresh device's phone on the bridge of the file's tests, connected and ready."""
    with bridge.phones() as (phone,):
        yield phone
