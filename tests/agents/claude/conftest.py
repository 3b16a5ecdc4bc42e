"""A model, a home and a directory for claude-code: nothing of the user's is read, no network is
used. Skipped where its SDK is not installed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from sessions_app.agents.claude import agent
from tests.agents.claude.model import Model
from tests.agents.claude.session import Kept, Session


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    if (why_not := agent.why_not()) is not None:
        pytest.skip(why_not)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.close()


def surroundings_in(place: Path, model: Model) -> dict[str, str]:
    """What the program needs to know of its user, its model and the absence of a network."""
    home, temporary = place / "home", place / "t"
    home.mkdir()
    temporary.mkdir()
    return {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "CLAUDE_CODE_TMPDIR": str(temporary),
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "not-a-key",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }


def surround(patch: pytest.MonkeyPatch, surroundings: dict[str, str]) -> None:
    """This process has these surroundings, and no other agent's."""
    for name in tuple(os.environ):
        if name.startswith(("ANTHROPIC_", "CLAUDE")):
            patch.delenv(name)
    for name, value in surroundings.items():
        patch.setenv(name, value)


@pytest.fixture
def surroundings(model: Model, tmp_path: Path) -> dict[str, str]:
    return surroundings_in(tmp_path, model)


@pytest.fixture
def directory(
    surroundings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Where a session works, in a process that has these surroundings and no other agent's."""
    surround(monkeypatch, surroundings)
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept(model: Model, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kept]:
    """A session that is kept from test to test of a module: a start of the program takes a second
    of the processor.
    """
    place = tmp_path_factory.mktemp("kept")
    (place / "work").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        surround(patch, surroundings_in(place, model))
        kept = Kept(place / "work")
        yield kept
        await kept.drop()


@pytest_asyncio.fixture(loop_scope="module")
async def session(request: pytest.FixtureRequest, kept: Kept) -> AsyncIterator[Session]:
    """The session that is kept, between two turns and in an empty directory; after a test that
    failed it is another one.
    """
    failed = request.session.testsfailed
    yield await kept.session()
    if request.session.testsfailed > failed:
        await kept.drop()
