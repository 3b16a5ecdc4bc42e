"""What an ACP agent names on a disk that does not answer holds up nothing else (D12)."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import limits
from sessions_app.agents.events import ToolFailed
from tests.agents.conftest import Open
from tests.agents.drive import APPROVED, only, text

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_file_and_a_command_there(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are refused: nobody knows where the path leads."""
    answers, where = threading.Event(), os.path.realpath

    def realpath(path: Any, **options: Any) -> str:
        answers.wait()
        return str(where(path, **options))

    (root / "there").mkdir()
    drive = await opened(APPROVED)
    for limit in ("REAL_PATH_SECONDS", "TOOL_TIMEOUT_READ_SECONDS", "TOOL_TIMEOUT_EDIT_SECONDS"):
        monkeypatch.setattr(limits, limit, 0.05)
    monkeypatch.setattr("sessions_app.agents.acp.tool_calls.os.path.realpath", realpath)
    try:
        said = await drive.turn("/write there/a.txt new")
        only(ToolFailed, said)
        assert "does not do it" in text(said)
        said = await drive.turn('/do agent.command("touch made", cwd=os.getcwd() + "/there")')
        assert "does not do it" in text(said) and not list((root / "there").iterdir())
    finally:
        answers.set()
