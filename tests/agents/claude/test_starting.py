"""How a session of the real claude-code begins, and what of its surroundings it is given (D35,
D41, D45).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge_project.kernel.config import PROJECT_DIR
from sessions_app.agents.claude import agent
from sessions_app.agents.driver import CannotResume, CannotStart, Start
from tests.agents.claude_model import Model
from tests.agents.conftest import claude_driver

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSES = r"""#!/bin/sh
read -r request
id=$(printf '%s' "$request" | sed 's/.*"request_id": "\([^"]*\)".*/\1/')
echo '{"type": "control_response", "response": {"subtype": "error", "request_id": "'"$id"'", "error": "not today"}}'
cat
"""


async def test_it_can_start(model: Model) -> None:
    kind = agent.KIND
    assert (kind.name, kind.real, kind.why_not()) == ("claude-code", True, None)
    assert kind.version().startswith("claude-agent-sdk 0.") and "(Claude Code)" in kind.version()
    assert kind.can_modify


async def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why not, with the command that mends it, and no version."""
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    why = agent.why_not()
    assert why is not None and f"pip install -r {agent.REQUIREMENTS}" in why
    assert (PROJECT_DIR / agent.REQUIREMENTS).is_file()
    assert agent.version() == ""


async def test_without_its_program_the_users_own_will_do(
    model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on a system for which the SDK's wheel has none."""
    sdk = SimpleNamespace(origin=str(tmp_path / "sdk" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: sdk)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no program" in (agent.why_not() or "") and agent.version() == ""
    own = _program(tmp_path, "#!/bin/sh\necho 9.9.9\n").rename(tmp_path / "claude")
    assert (agent.why_not(), agent.program()) == (None, own)


async def test_no_option_can_be_an_id(surroundings: dict[str, str], root: Path) -> None:
    for resume_id in ("no-uuid", "--version"):
        driver = claude_driver()
        with pytest.raises(CannotResume, match="cannot continue"):
            await driver.start(Start("a-session", root, resume_id))
        await driver.close()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho broken >&2\nexit 3\n", "broken"),
        ("#!/bin/sh\nyes\n", "no messages"),
        (REFUSES, "not today"),
        ("", "did not start"),
    ],
    ids=["exits", "noise", "refuses", "not-there"],
)
async def test_a_program_that_is_no_agent(
    surroundings: dict[str, str],
    root: Path,
    tmp_path: Path,
    script: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cannot start, and the reason is the program's own where it gave one."""
    program = _program(tmp_path, script)
    monkeypatch.setattr(agent, "program", lambda: program)
    driver = claude_driver()
    with pytest.raises(CannotStart, match=why) as failure:
        await driver.start(Start("a-session", root))
    assert not isinstance(failure.value, CannotResume)
    await driver.close()


def _program(directory: Path, script: str) -> Path:
    program = directory / "program"
    if script:
        program.write_text(script)
        program.chmod(0o755)
    return program
