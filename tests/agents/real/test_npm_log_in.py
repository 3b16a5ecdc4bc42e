"""Agents that nobody has logged in say how (`make test-agents`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sessions_app.agents.acp.driver import AcpDriver
from sessions_app.agents.driver import CannotStart
from tests.agents.drive import Drive
from tests.agents.real.conftest import ASKING, CODEX_PROGRAM, settle
from tests.agents.real.models import Model

pytestmark = [pytest.mark.agents, pytest.mark.timeout(180)]
NO_KEYS = ("OPENAI_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")


@pytest.mark.parametrize(
    ("name", "command", "way", "needs"),
    [
        ("qwen-code", "qwen", "Use OpenAI API key (", ()),
        ("gemini-cli", "gemini", "Log in with Google (", ()),
        ("codex-acp", "codex login", "Use CODEX_API_KEY (", (CODEX_PROGRAM,)),
    ],
)
async def test_without_credentials_it_says_how_to_log_in(
    name: str,
    command: str,
    way: str,
    needs: tuple[str, ...],
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command that logs it in comes first, then the ways that the agent itself names."""
    known = next(one for one in ASKING if one.name == name)
    for key in NO_KEYS:
        monkeypatch.delenv(key, raising=False)
    bare = replace(known, settings=".none/at-all", written="", environment={}, needs=needs)
    monkeypatch.setattr("tests.agents.drive.SECONDS", 120.0)  # on a busy machine
    agent = settle(bare, model, tmp_path, monkeypatch)
    drive = Drive(AcpDriver("an-agent", agent.command))
    with pytest.raises(CannotStart) as refused:
        await drive.start((tmp_path / "work").resolve())
    said = str(refused.value)
    assert said.startswith("an-agent wants a login (")
    assert said.index(f"Run `{command}` in a terminal") < said.index(way)
