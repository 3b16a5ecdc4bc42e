"""How a session of the real claude-code begins, and how it cannot (D35, D41, D45)."""

import sys
import uuid
from pathlib import Path

import pytest

from bridge_project.kernel.place import PROJECT_DIR
from sessions_app.agents.claude import program as claude
from sessions_app.agents.driver import CannotResume, CannotStart
from tests.agents.conftest import claude_driver

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSES = r"""#!/bin/sh
read -r request
id=$(printf '%s' "$request" | sed 's/.*"request_id": "\([^"]*\)".*/\1/')
echo '{"type": "control_response", "response": {"subtype": "error", "request_id": "'"$id"'", "error": "not today"}}'
cat
"""


async def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    why = claude.problem()
    assert why is not None and f"pip install -r {claude.REQUIREMENTS}" in why
    assert (PROJECT_DIR / claude.REQUIREMENTS).is_file()
    assert claude.asked().version == ""


async def test_what_cannot_be_resumed(surroundings: dict[str, str], root: Path) -> None:
    for resume_id in ("no-uuid", "--version", str(uuid.uuid4())):
        driver = claude_driver()
        with pytest.raises(CannotResume):
            await driver.start(root, resume_id)
        await driver.close()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho broken >&2\nexit 3\n", "broken"),
        ("#!/bin/sh\nyes\n", "is not claude-code"),
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
    program = tmp_path / "program"
    if script:
        program.write_text(script)
        program.chmod(0o755)
    monkeypatch.setattr(claude, "program", lambda: program)
    driver = claude_driver()
    with pytest.raises(CannotStart, match=why) as failure:
        await driver.start(root)
    assert not isinstance(failure.value, CannotResume)
    await driver.close()
