"""The ACP driver in whole turns: text, decisions, interrupts, a session that is continued (D35,
D38, D40).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessions_app.agents.driver import (
    ApprovalAsked,
    ApprovalWithdrawn,
    CannotResume,
    Chunk,
    SessionIdentified,
    ToolSucceeded,
    TurnEnded,
    Verdict,
)
from tests.agents.acp.conftest import DEMO, Open, scripted
from tests.agents.drive import APPROVED, REJECTED, Drive, kinds, text, within

pytestmark = pytest.mark.asyncio(loop_scope="module")


def finish(drive: Drive) -> tuple[str, str]:
    ended = drive.of(TurnEnded)[-1]
    return ended.finish_reason, ended.error


async def test_an_approved_call_is_run_and_reported(opened: Open) -> None:
    """docs/agents.md: the agent announces nothing before it asks."""
    drive = await opened(APPROVED, module=DEMO)
    said = await drive.turn('/tool Bash {"command": "make"}')
    assert kinds(said) == ["ApprovalAsked", "ToolSucceeded", "Chunk", "TurnEnded"]
    [asked], [done] = drive.of(ApprovalAsked), drive.of(ToolSucceeded)
    assert (asked.call.tool, asked.call.params) == ("Bash", {"command": "make"})
    assert asked.call.description == "Bash: make"
    assert (
        done.call.id == asked.call.id
        and done.outcome.success
        and "scripted" in done.outcome.content
    )
    assert finish(drive) == ("stop", "")


async def test_a_rejected_call_is_closed_though_the_agent_says_nothing(opened: Open) -> None:
    """docs/agents.md: nothing comes after a refusal, so the bridge closes the record, once."""
    drive = await opened(Verdict("rejected", reason="no"), module=DEMO)
    said = await drive.turn('/tool Bash {"command": "make"}')
    assert kinds(said) == ["ApprovalAsked", "ToolSucceeded", "Chunk", "TurnEnded"]
    assert (
        drive.of(ToolSucceeded)[0].outcome.success,
        drive.of(ToolSucceeded)[0].outcome.error,
    ) == (False, "no")
    assert "rejected" in text(said)


async def test_changed_parameters_are_rejected_once_and_then_said(opened: Open) -> None:
    """docs/agents.md: ACP knows no "modified". The wish is a prompt of the same turn."""
    drive = await opened(Verdict("modified", {"command": "make test"}), module=DEMO)
    said = await drive.turn('/tool Bash {"command": "make"}')
    assert kinds(said) == ["ApprovalAsked", "ToolSucceeded", "Chunk", "TurnEnded"]
    assert not drive.of(ToolSucceeded)[0].outcome.success and "parameters" in (
        drive.of(ToolSucceeded)[0].outcome.error or ""
    )
    assert '"command": "make test"' in text(said)  # the demo repeats the prompt that it was given
    assert len(drive.of(TurnEnded)) == 1


async def test_a_failing_turn_leaves_the_session(opened: Open) -> None:
    drive = await opened(module=DEMO)
    await drive.turn("/fail for a reason")
    assert finish(drive)[0] == "error" and "for a reason" in finish(drive)[1]
    assert "hello" in text(await drive.turn("hello"))


async def test_an_interrupt_stops_the_text(opened: Open) -> None:
    """D40."""
    drive = await opened(module=DEMO)
    turn = asyncio.create_task(drive.turn("/sleep 1000"))
    await drive.until(lambda: bool(drive.of(Chunk)))
    await drive.driver.interrupt()
    await drive.driver.interrupt()
    await within(5, turn)
    assert finish(drive) == ("stop", "")
    assert "again" in text(await drive.turn("again"))


async def test_an_interrupt_right_after_the_prompt_stops_it(opened: Open) -> None:
    """The cancel must not overtake the prompt."""
    drive = await opened(module=DEMO)
    await drive.driver.prompt("/sleep 1000")
    await drive.driver.interrupt()
    await within(5, drive.until(lambda: bool(drive.of(TurnEnded))))
    assert finish(drive) == ("stop", "")


async def test_an_interrupt_takes_back_what_was_asked(opened: Open) -> None:
    drive = await opened(module=DEMO)
    turn = asyncio.create_task(drive.turn('/tool Bash {"command": "make"}'))
    await drive.until(lambda: bool(drive.of(ApprovalAsked)))
    await drive.driver.interrupt()
    said = await within(5, turn)
    call_id = str(drive.of(ApprovalAsked)[0].call.id)
    assert drive.of(ApprovalWithdrawn) == [ApprovalWithdrawn(call_id)]
    assert not await drive.driver.decide(call_id, APPROVED)
    assert finish(drive) == ("stop", "")
    assert [
        event for event in said if isinstance(event, ToolSucceeded) and event.outcome.success
    ] == []


async def test_a_late_decision_still_counts_and_counts_once(opened: Open) -> None:
    drive = await opened(module=DEMO)
    turn = asyncio.create_task(drive.turn('/tool Bash {"command": "make"}'))
    await drive.until(lambda: bool(drive.of(ApprovalAsked)))
    call_id = str(drive.of(ApprovalAsked)[0].call.id)
    assert not await drive.driver.decide("unknown", APPROVED)
    assert await drive.driver.decide(call_id, APPROVED)
    assert not await drive.driver.decide(call_id, REJECTED)
    await within(5, turn)
    assert drive.of(ToolSucceeded)[0].outcome.success


async def test_a_session_of_the_demo_agent_is_continued_without_its_history(opened: Open) -> None:
    """docs/agents.md: what the agent tells of the past is not said again."""
    first = await opened(module=DEMO, fresh=True)
    await first.until(lambda: bool(first.of(SessionIdentified)))
    resume_id = first.of(SessionIdentified)[0].resume_id
    assert resume_id.startswith("demo-")
    said = await first.turn("good morning")
    assert kinds(said) == ["Chunk", "TurnEnded"]
    assert len(said) > 2 and "good morning" in text(said)
    assert finish(first) == ("stop", "")
    assert "again" in text(await first.turn("once again"))
    await first.close()
    second = await opened(module=DEMO, resume_id=resume_id)
    await second.until(lambda: bool(second.of(SessionIdentified)))
    assert second.of(SessionIdentified) == [SessionIdentified(resume_id)]
    assert "said before" not in text(await second.turn("hello"))


async def test_history_that_comes_after_the_answer_is_not_said_either(opened: Open) -> None:
    """gemini tells its history when it has already answered."""
    drive = await opened(mode="late-history", resume_id="demo-1")
    said = await drive.turn("hello")
    assert "old" not in text(said) and "hello" in text(said)


@pytest.mark.parametrize("mode", ["no-load", "forgets"])
async def test_a_session_that_cannot_be_continued(root: Path, tmp_path: Path, mode: str) -> None:
    """D35: SESS_NOT_RESUMABLE, with the reason."""
    with pytest.raises(CannotResume, match=r"cannot continue|does not know"):
        await scripted(tmp_path / "journal", mode).start(root, "scripted-1")
