"""Whether claude-code can start here, and as what (D41)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sessions_app.agents.claude import agent


def test_it_can_start(installed: None) -> None:
    [kind] = agent.kinds()
    assert (kind.name, kind.real, kind.why_not()) == ("claude-code", True, None)
    assert kind.version().startswith("claude-agent-sdk 0.") and "(Claude Code)" in kind.version()
    assert kind.can_modify and kind.make().can_modify and kind.make().can_resume


def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why not, with the command that mends it, and no version."""
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    why = agent.why_not()
    assert why is not None and f"pip install -r {agent.REQUIREMENTS}" in why
    assert (Path(__file__).parents[3] / agent.REQUIREMENTS).is_file()
    assert agent.version() == ""


def test_without_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(agent, "_package", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    why = agent.why_not()
    assert why is not None and "no program" in why
    assert agent.version() == ""


def test_the_users_own_program_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When the SDK brought none, as on a system that its wheel has none for."""
    monkeypatch.setattr(agent, "_package", lambda: tmp_path / "sdk")
    monkeypatch.setenv("PATH", str(tmp_path))
    own = tmp_path / "claude"
    own.write_text("#!/bin/sh\necho 9.9.9\n")
    own.chmod(0o755)
    assert (agent.why_not(), agent.program()) == (None, own)
