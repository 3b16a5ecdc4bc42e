"""What tests of agents share: agents that run, each as long as its test."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bridge_project.kernel.config import conf
from sessions_app.agents.acp.driver import AcpDriver
from sessions_app.agents.claude import program as claude
from sessions_app.agents.driver import Verdict
from tests.agents.claude_model import Model
from tests.agents.drive import Drive
from tests.agents.real.table import REAL, of_agents
from tests.conformance.agent_tools import PROGRAM

Open = Callable[..., Any]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one allowed root, empty; what lies beside it is outside."""
    root = tmp_path.resolve() / "root"
    root.mkdir()
    monkeypatch.setitem(conf.__dict__, "allowed_roots", (str(root),))
    return root


@pytest_asyncio.fixture(loop_scope="module")
async def opened(root: Path) -> AsyncIterator[Open]:
    """Starts the scripted agent in the root; it ends with the test."""
    own: list[Drive] = []

    async def open_(*answers: Verdict, mode: str = "plain", resume_id: str | None = None) -> Drive:
        own.append(scripted(root.parent, mode, *answers))
        return await own[-1].start(root, resume_id)

    yield open_
    for drive in own:
        await drive.close()


def scripted(place: Path, mode: str, *answers: Verdict) -> Drive:
    command = [sys.executable, "-IS", str(PROGRAM), mode, str(place / "journal")]
    return Drive(AcpDriver("scripted", command), *answers)


def claude_driver() -> Any:
    """A driver of claude-code; imported here, for there may be no SDK."""
    from sessions_app.agents.claude.driver import ClaudeDriver

    return ClaudeDriver()


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    """The scripted model; who asks for it is skipped where claude-code is not installed."""
    if (problem := claude.problem()) is not None:
        pytest.skip(problem)
    model = Model()
    yield model
    model.close()


@contextmanager
def surrounded(place: Path, model: Model) -> Iterator[dict[str, str]]:
    """This process has what claude-code needs to know, and nothing of another agent."""
    for name in ("home", "t"):
        (place / name).mkdir()
    surroundings = {
        "HOME": f"{place}/home",
        "CLAUDE_CONFIG_DIR": f"{place}/home/claude",
        "CLAUDE_CODE_TMPDIR": f"{place}/t",
    }
    own = REAL["claude-code"].environment
    surroundings |= {name: value.format(url=model.url) for name, value in own.items()}
    with pytest.MonkeyPatch.context() as patch:
        for name in tuple(of_agents(os.environ)):
            patch.delenv(name)
        for name, value in surroundings.items():
            patch.setenv(name, value)
        yield surroundings


@pytest.fixture(scope="module")
def surroundings(
    model: Model, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    with surrounded(tmp_path_factory.mktemp("claude").resolve(), model) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def drive(surroundings: dict[str, str]) -> AsyncIterator[Drive]:
    drive = Drive(claude_driver())
    yield drive
    await drive.close()


@pytest_asyncio.fixture(loop_scope="module")
async def session(drive: Drive, root: Path) -> Drive:
    return await drive.start(root)
