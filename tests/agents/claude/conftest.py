"""A model, a home and a directory for claude-code: nothing of the user's is read, no network is used. Skipped where its SDK is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions_app.agents import claude
from tests.agents.claude.model import Model


@pytest.fixture(autouse=True)
def installed() -> None:
    if (why_not := claude.why_not()) is not None:
        pytest.skip(why_not)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.close()


@pytest.fixture
def surroundings(model: Model, tmp_path: Path) -> dict[str, str]:
    """What the program needs to know of its user, its model and the absence of a network."""
    home, temporary = tmp_path / "home", tmp_path / "t"
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


@pytest.fixture
def directory(surroundings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a session works, in a process that has these surroundings and no other agent's."""
    for name in tuple(os.environ):
        if name.startswith(("ANTHROPIC_", "CLAUDE")):
            monkeypatch.delenv(name)
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    directory = tmp_path / "work"
    directory.mkdir()
    return directory
