"""What holds for every agent, of claude-code: text, decisions, interrupts, failures, resumes (D35,
D38, D40, D41). Of others: tests/conformance/test_agent_*.py.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from sessions_app.agents.driver import CannotResume, Verdict
from sessions_app.agents.events import (
    AgentDied,
    ApprovalAsked,
    ApprovalWithdrawn,
    Chunk,
    SessionIdentified,
    ToolStopped,
    ToolSucceeded,
    TurnEnded,
)
from tests.agents.claude_model import Model, Refused, Text, Tool
from tests.agents.conftest import Open, claude_driver
from tests.agents.drive import APPROVED, REJECTED, Drive, kinds, only, text, within

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Subject:
    """An agent, and the prompts by which it does what a test wants."""

    model: Model
    opened: Open
    hold: threading.Event

    async def __call__(self, *answers: Verdict, **more: Any) -> Drive:
        drive: Drive = await self.opened(*answers, make=claude_driver, **more)
        return drive

    def say(self, words: str) -> str:
        return self.model.play("words", [Text(words)])

    def run(self, line: str) -> str:
        return self.model.play("run", [Tool("Bash", {"command": line})], [Text("That was it.")])

    @property
    def stream(self) -> str:
        """Says something, and does not come to an end."""
        return self.model.play("slow", [Text("one two three", self.hold)])


@pytest.fixture
def subject(
    model: Model, surroundings: dict[str, str], opened: Open, hold: threading.Event
) -> Subject:
    return Subject(model, opened, hold)


async def test_an_answer_is_streamed(subject: Subject) -> None:
    """Piece by piece, with the usage at its end; a further turn is a turn like any other."""
    drive = await subject()
    for words in ("good morning to all", "once again it is"):
        said = await drive.turn(subject.say(words))
        assert len([event for event in said if isinstance(event, Chunk)]) > 1
        assert words in text(said)
        ended = only(TurnEnded, said)
        assert (ended.finish_reason, ended.error) == ("stop", "") and ended == said[-1]
        assert (ended.usage or {})["duration_ms"] >= 0


async def test_an_approved_call_runs_and_is_reported(subject: Subject) -> None:
    drive = await subject()
    said = await drive.turn(subject.run("touch made; echo seen"), APPROVED)
    assert kinds(said) == ["ApprovalAsked", "ToolSucceeded", "TurnEnded"]
    call, done = only(ApprovalAsked, said).call, only(ToolSucceeded, said)
    assert (call.tool, call.params["command"]) == ("Bash", "touch made; echo seen")
    assert call.description == "Bash: touch made; echo seen" and call.risk_level == "high"
    assert done.call == call and "seen" in done.content
    assert (drive.directory / "made").exists()
    assert only(TurnEnded, said).finish_reason == "stop"


@pytest.mark.parametrize("reason", ["not today", ""])
async def test_a_rejected_call_does_not_run(subject: Subject, reason: str) -> None:
    """It is no failure of the tool, and is reported once, whatever the agent says of it."""
    drive = await subject()
    said = await drive.turn(subject.run("touch made"), Verdict("rejected", reason=reason))
    assert kinds(said) == ["ApprovalAsked", "ToolStopped", "TurnEnded"]
    stopped = only(ToolStopped, said).reason
    assert stopped == reason if reason else "rejected" in stopped
    assert list(drive.directory.iterdir()) == []


async def test_changed_parameters(subject: Subject) -> None:
    """docs/agents.md: the call runs with them."""
    drive = await subject()
    changed = Verdict("modified", {"command": "touch ours"})
    said = await drive.turn(subject.run("touch theirs"), changed)
    assert kinds(said) == ["ApprovalAsked", "ToolSucceeded", "TurnEnded"]
    assert [path.name for path in drive.directory.iterdir()] == ["ours"]


async def test_a_failing_turn_leaves_the_session(subject: Subject) -> None:
    drive, refused = await subject(), subject.model.play("down", Refused(400, "for a reason"))
    ended = only(TurnEnded, await drive.turn(refused))
    assert ended.finish_reason == "error" and "for a reason" in ended.error
    assert "it goes on" in text(await drive.turn(subject.say("it goes on")))


async def test_an_interrupt_stops_the_text(subject: Subject) -> None:
    """D40: asked twice it stops once; what had been said stays."""
    drive = await subject()
    turn = asyncio.create_task(drive.turn(subject.stream))
    await drive.said_one(Chunk)
    await drive.driver.interrupt()
    await drive.driver.interrupt()
    ended = only(TurnEnded, await within(turn))
    assert (ended.finish_reason, ended.error) == ("stop", "")
    assert "it goes on" in text(await drive.turn(subject.say("it goes on")))
    assert len(drive.of(TurnEnded)) == 2


async def test_an_interrupt_takes_back_what_was_asked(subject: Subject) -> None:
    drive = await subject()
    turn = asyncio.create_task(drive.turn(subject.run("touch made")))
    call_id = str((await drive.said_one(ApprovalAsked)).call.id)
    await drive.driver.interrupt()
    said = await within(turn)
    assert only(ApprovalWithdrawn, said).call_id == call_id
    assert not await drive.driver.decide(call_id, APPROVED)
    assert only(TurnEnded, said).finish_reason == "stop"
    assert not [event for event in said if isinstance(event, ToolSucceeded)]
    assert "it goes on" in text(await drive.turn(subject.say("it goes on")))
    assert list(drive.directory.iterdir()) == []


async def test_a_decision_is_taken_once(subject: Subject) -> None:
    """However late it comes: nothing decides in the person's place (D38)."""
    drive = await subject()
    turn = asyncio.create_task(drive.turn(subject.run("touch made")))
    call_id = str((await drive.said_one(ApprovalAsked)).call.id)
    assert not await drive.driver.decide("unknown", APPROVED)
    assert await drive.driver.decide(call_id, APPROVED)
    assert not await drive.driver.decide(call_id, REJECTED)
    assert only(ToolSucceeded, await within(turn)).call.id == call_id
    assert not await drive.driver.decide(call_id, APPROVED)


async def test_a_session_is_continued(subject: Subject) -> None:
    """D35: by its own id, which stays; what was said before is not said again."""
    drive = await subject(fresh=True)
    await drive.turn(subject.say("good morning"))
    [identified] = drive.of(SessionIdentified)
    await drive.close()
    drive = await subject(resume_id=identified.resume_id)
    said = await drive.turn(subject.say("hello there"))
    assert "hello there" in text(said) and "before" not in text(said)
    assert all(event == identified for event in drive.of(SessionIdentified))


async def test_an_unknown_session_cannot_be_continued(subject: Subject) -> None:
    with pytest.raises(CannotResume):
        await subject(resume_id="0a0a0a0a-0000-4000-8000-000000000000")


async def test_closing_in_a_turn_is_quick_and_may_be_done_twice(subject: Subject) -> None:
    drive = await subject(fresh=True)
    turn = asyncio.create_task(drive.turn(subject.stream))
    await drive.said_one(Chunk)
    await within(drive.close())
    await within(drive.close())
    turn.cancel()
    assert drive.of(AgentDied) == []
