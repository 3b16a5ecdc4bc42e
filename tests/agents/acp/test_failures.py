"""ACP agents that cannot start, that die, and that are ended; and those of the settings (D35,
D41).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.config import PROJECT_DIR, conf
from sessions_app.agents.acp import agent, driver
from sessions_app.agents.driver import CannotResume, CannotStart, Start
from sessions_app.agents.events import AgentDied
from tests.agents.conftest import AGENT, scripted
from tests.agents.drive import Drive, carrying, command, eventually, kinds, text

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_agent_that_exits_in_a_turn_is_dead(root: Path, tmp_path: Path) -> None:
    """D35: the reason is said, after everything that the agent had said."""
    drive = await scripted(tmp_path / "journal").start(root)
    said = await drive.turn("/exit 7")
    assert (kinds(said), text(said)) == (["AgentDied"], "so far ")
    assert (
        "ended with code 7" in drive.of(AgentDied)[0].reason
        and "it went wrong" in drive.of(AgentDied)[0].reason
    )
    await drive.close()


async def test_an_agent_that_is_killed_between_turns_is_dead(root: Path, tmp_path: Path) -> None:
    drive = await scripted(tmp_path / "journal").start(root)
    os.kill(drive.driver.pid, 9)  # type: ignore[attr-defined]
    await drive.until(lambda: bool(drive.of(AgentDied)))
    assert "signal 9" in drive.of(AgentDied)[0].reason
    await drive.close()


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("exits", "I need a newer machine"),
        ("garbage", "no messages of the Agent Client Protocol"),
        ("long", "message of more than"),
        ("refuses", "wants a login"),
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


async def test_a_command_that_is_not_there_says_so(root: Path) -> None:
    with pytest.raises(CannotStart, match=r"no-such-agent is not installed.*BRIDGE_ACP_AGENTS"):
        await driver.AcpDriver("it", ["no-such-agent", "--acp"]).start(Start("s", root))


async def test_a_hang_at_start_is_ended_when_it_is_given_up(root: Path, tmp_path: Path) -> None:
    """The supervisor has the time limit; what it leaves is nothing."""
    drive = scripted(tmp_path / "journal", "hangs")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(drive.driver.start(Start("s", root)), 1.5)
    await drive.close()


async def test_closing_ends_what_the_agent_started(root: Path, tmp_path: Path) -> None:
    drive = await scripted(tmp_path / "journal").start(root)
    await drive.turn("/spawn")
    await eventually(lambda: len(carrying(f"sleep 1000; : {tmp_path / 'journal'}")) >= 2)
    await drive.close()
    assert carrying(str(tmp_path / "journal")) == []


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


async def test_the_agents_of_the_settings(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """D41: each is listed, with why it cannot start here, and its version once it has been
    started.
    """
    monkeypatch.setitem(
        conf.__dict__, "acp_agents", {"here": command(AGENT), "there": ["no-such-program", "--acp"]}
    )
    here, there = agent.kinds()
    assert (here.name, here.why_not(), here.version(), here.real) == ("here", None, "", True)
    assert there.name == "there"
    why_not = there.why_not() or ""
    assert "no-such-program" in why_not and "BRIDGE_ACP_AGENTS" in why_not
    drive = await Drive(here.make()).start(root)
    await drive.close()
    assert here.version() == "1"
