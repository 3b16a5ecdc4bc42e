"""What is special to the demo agent (D41)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge_project.kernel.config import conf
from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.events import ToolSucceeded, TurnEnded
from tests.agents.drive import APPROVED, Drive, only, text


@pytest.fixture
async def drive(tmp_path: Path) -> AsyncIterator[Drive]:
    found = await Drive(DemoDriver()).start(tmp_path)
    yield found
    await found.close()


@pytest.fixture
def with_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(conf.__dict__, "bridge_demo_shell", True)


async def test_a_long_prompt_is_not_sent_back_whole(drive: Drive) -> None:
    said = text(await drive.turn("x" * 9_000_000))
    assert len(said) < 30_000 and "9000000 characters in all" in said


async def test_without_a_shell_nothing_is_run_and_it_says_so(drive: Drive, tmp_path: Path) -> None:
    said = await drive.turn('/tool Bash {"command": "touch made"}', APPROVED)
    assert "nothing was run" in only(ToolSucceeded, said).content
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("command", ["echo a\\u0000b", "echo \\ud800"])
async def test_what_no_command_can_hold_ends_the_turn(
    drive: Drive, with_shell: None, command: str
) -> None:
    """D40: a turn ends whatever it is about; else nothing more could be said in the session."""
    said = await drive.turn(f'/tool Bash {{"command": "{command}"}}', APPROVED)
    assert only(TurnEnded, said).finish_reason == "stop"
