"""ACP agents that cannot start for what is wrong with their words (D35). The others:
tests/conformance/test_agent_bad_input.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.config import PROJECT_DIR
from sessions_app.agents.acp import driver
from sessions_app.agents.driver import CannotResume, CannotStart
from tests.agents.conftest import scripted
from tests.agents.drive import Drive

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("long", "message of more than"),
        ("version", "version 99"),
    ],
)
async def test_an_agent_that_cannot_start_says_why(
    root: Path, tmp_path: Path, mode: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D35: in words that a person can act on."""
    monkeypatch.setattr(limits, "AGENT_MESSAGE_BYTES", 1_000_000)
    drive = (
        Drive(driver.AcpDriver("scripted", ["sh", "-c", "tr '\\0' x </dev/zero"]))
        if mode == "long"
        else scripted(tmp_path / "journal", mode)
    )
    with pytest.raises(CannotStart, match=words) as refused:
        await drive.start(root)
    assert str(refused.value).startswith("scripted ") and not isinstance(
        refused.value, CannotResume
    )


async def test_a_bridge_without_such_agents_does_not_load_the_library() -> None:
    """It takes half a second and some memory."""
    script = "import sys; from sessions_app.agents.acp import agent as acp; print(acp.kinds(), 'acp' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=PROJECT_DIR,
        capture_output=True,
        text=True,
        env={**os.environ, "BRIDGE_ACP_AGENTS": ""},
    )
    assert done.stdout == "[] False\n", done.stderr
