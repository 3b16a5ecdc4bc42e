"""Whole turns of real ACP agents, from npm, against a scripted model on loopback: qwen-code and
gemini-cli (D38, D40, D41; `make test-agents`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from sessions_app.agents.acp.agent import versions
from sessions_app.agents.acp.driver import AcpDriver
from sessions_app.agents.driver import Verdict
from sessions_app.agents.events import (
    AgentDied,
    ApprovalAsked,
    ApprovalWithdrawn,
    Chunk,
    SessionIdentified,
    ToolFailed,
    ToolStopped,
    ToolSucceeded,
    TurnEnded,
)
from tests.agents.drive import APPROVED, Drive, kinds, only, text, within
from tests.agents.real.conftest import Real

pytestmark = [pytest.mark.agents, pytest.mark.timeout(180)]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return (tmp_path / "work").resolve()


@pytest.fixture
async def drive(agent: Real, work: Path) -> AsyncIterator[Drive]:
    found = await Drive(AcpDriver(agent.name, agent.command)).start(work)
    yield found
    await found.close()


def end(drive: Drive) -> tuple[str, str]:
    return drive.of(TurnEnded)[-1].finish_reason, drive.of(TurnEnded)[-1].error


async def test_turns_with_text_approval_and_refusal(drive: Drive, agent: Real, work: Path) -> None:
    """One session as a person has it: text in chunks, a command approved, one rejected, a file
    written, parameters changed, a failing model.
    """
    assert versions[agent.name]
    said = await drive.turn("do: say Good morning from the model")
    assert len([event for event in said if isinstance(event, Chunk)]) > 1
    assert text(said) == "Good morning from the model" and end(drive) == ("stop", "")

    said = await drive.turn("do: run touch made_by_agent", APPROVED)
    assert kinds(said) == ["ApprovalAsked", "ToolSucceeded", "TurnEnded"]
    call = only(ApprovalAsked, said).call
    assert (call.tool, call.params["command"]) == ("Bash", "touch made_by_agent")
    assert only(ToolSucceeded, said).call == call
    assert (work / "made_by_agent").exists() and text(said).endswith("All done.")

    said = await drive.turn("do: run touch never", Verdict("rejected", reason="not this"))
    assert kinds(said) == ["ApprovalAsked", "ToolStopped", "TurnEnded"]
    assert only(ToolStopped, said).reason == "not this"
    assert not (work / "never").exists()

    said = await drive.turn(f"do: write {work}/hello.txt hello there", APPROVED)
    assert kinds(said) == ["ApprovalAsked", "ToolSucceeded", "TurnEnded"], (
        "the write is approved once, by the agent's own question"
    )
    assert only(ApprovalAsked, said).call.params["file_path"].endswith("hello.txt")
    assert (work / "hello.txt").read_text() == "hello there"
    assert "+hello there" in (only(ToolSucceeded, said).diff or "")

    await drive.turn("do: fail")
    assert end(drive)[0] == "error" and end(drive)[1].startswith(agent.name)
    assert text(await drive.turn("do: say still here")) == "still here"


async def test_changed_parameters_are_said_to_it(drive: Drive, work: Path) -> None:
    """docs/agents.md: rejected once; the model hears in the same turn what the call should be, and
    asks again.
    """
    drive.answers = [Verdict("modified", {"note": "do: run touch changed"}), APPROVED]
    await drive.turn("do: run touch original")
    assert len(drive.of(ApprovalAsked)) == 2 and len(drive.of(TurnEnded)) == 1
    assert len(drive.of(ToolStopped)) == len(drive.of(ToolSucceeded)) == 1
    assert sorted(path.name for path in work.iterdir()) == ["changed"]


async def test_interrupts(drive: Drive, work: Path) -> None:
    """D40: during text and during a pending approval; the next turn works."""
    turn = asyncio.create_task(drive.turn("do: count 2000"))
    await drive.until(lambda: len(drive.of(Chunk)) > 3)
    await drive.driver.interrupt()
    await within(5, turn)
    assert end(drive) == ("stop", "")

    turn = asyncio.create_task(drive.turn("do: run touch never"))
    await drive.until(lambda: bool(drive.of(ApprovalAsked)))
    await drive.driver.interrupt()
    await within(5, turn)
    assert end(drive) == ("stop", "") and drive.of(ApprovalWithdrawn) == [
        ApprovalWithdrawn(str(drive.of(ApprovalAsked)[0].call.id))
    ]
    assert list(work.iterdir()) == [] and drive.of(ToolFailed) == []
    assert text(await drive.turn("do: say and on")) == "and on"


async def test_a_session_is_continued(drive: Drive, agent: Real, work: Path) -> None:
    """D35: by its own id, in a new process, without the history being said again."""
    await drive.turn("do: say remember this")
    [identified] = drive.of(SessionIdentified)
    await drive.close()
    make_older(work.parent / "home")
    second = await Drive(AcpDriver(agent.name, agent.command)).start(work, identified.resume_id)
    said = await second.turn("do: say something new")
    assert second.of(SessionIdentified) == [identified]
    assert text(said) == "something new"
    await second.close()


def make_older(home: Path) -> None:
    """gemini-cli 0.61 names what it keeps of a session by the minute, and one that it continues in
    the same minute it overwrites before it reads it.
    """
    for path in home.glob(".gemini/tmp/*/chats/session-*"):
        path.rename(path.with_name("session-2026-01-01T00-00-" + path.name.rpartition("-")[2]))


async def test_a_killed_agent_is_dead(drive: Drive) -> None:
    """D35: whichever of its processes is killed, the wrapper or what it started."""
    assert isinstance(drive.driver, AcpDriver)
    turn = asyncio.create_task(drive.turn("do: count 2000"))
    await drive.until(lambda: bool(drive.of(Chunk)))
    leader = psutil.Process(drive.driver.pid)
    for process in [*leader.children(recursive=True), leader]:
        with contextlib.suppress(psutil.NoSuchProcess):  # one has ended with another
            process.kill()
    said = await within(10, turn)
    assert isinstance(said[-1], AgentDied) and "has stopped" in said[-1].reason
