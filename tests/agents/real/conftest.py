"""The real agents from npm, as `make test-agents` installs them, with a home and a model of the tests' own. Skipped where they are not there, saying why."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridge_project.conf import conf
from tests.agents.conftest import nothing_left
from tests.agents.install import AGENTS, REQUIRED, missing_agents
from tests.agents.real.models import Model

__all__ = ["nothing_left"]


@dataclass(frozen=True, slots=True)
class Real:
    """An agent of the table: its program, the file of its settings below the home, and how it is told of its model."""

    name: str
    program: str
    settings: str
    auth: str
    environment: dict[str, str]  # {url} is the model's address

    @property
    def command(self) -> list[str]:
        return [os.fspath(AGENTS / "node_modules" / ".bin" / self.program), "--acp"]


REAL = [
    Real("qwen-code", "qwen", ".qwen/settings.json", "openai", {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "{url}/v1", "OPENAI_MODEL": "scripted"}),
    Real("gemini-cli", "gemini", ".gemini/settings.json", "gemini-api-key", {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": "{url}"}),
]


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.close()


@pytest.fixture(params=REAL, ids=lambda agent: agent.name)
def agent(request: pytest.FixtureRequest, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Real:
    """An agent that can be started, in a home of its own with nothing in it but how it reaches the model. Its directory is ``tmp_path / "work"``."""
    if why_not := missing_agents():
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(why_not)
    found: Real = request.param
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    settings = home / found.settings
    settings.parent.mkdir(parents=True)
    wanted: dict[str, Any] = {
        "security": {"auth": {"selectedType": found.auth}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
    }
    settings.write_text(json.dumps(wanted))
    for name, value in {**found.environment, "HOME": str(home), "NO_BROWSER": "1"}.items():
        monkeypatch.setenv(name, value.format(url=model.url))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(conf.__dict__, "allowed_roots", (str(work.resolve()),))
    assert shutil.which(found.command[0])
    return found
