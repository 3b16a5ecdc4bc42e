"""What stops the real program of claude-code, and what is left of it: interrupts, deaths, ends and
resumes (D35, D40).
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions_app.agents.driver import (
    AgentDied,
    ApprovalAsked,
    ApprovalWithdrawn,
    Chunk,
    SessionIdentified,
    ToolFailed,
    ToolSucceeded,
    TurnEnded,
    Verdict,
)
from tests.agents.claude.model import Model, Text, Tool
from tests.agents.claude.session import (
    PATIENCE,
    Session,
    carrying,
    gone,
    only,
    pid_of,
    run_of,
    text,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPROVED = Verdict("approved")


@pytest.fixture
def hold() -> Iterator[threading.Event]:
    """Where a model waits; let go at the end in any case."""
    event = threading.Event()
    yield event
    event.set()


async def test_an_interrupt_while_it_speaks(
    model: Model, session: Session, hold: threading.Event
) -> None:
    """The turn ends with stop, what had been said stays, and the next turn is a turn like any other
    (D40).
    """
    await session.driver.prompt(model.play("slow", [Text("one two three", hold)]))
    await session.until(Chunk, lambda event: event.content == "two ")
    await session.driver.interrupt()
    ended = await session.until(TurnEnded)
    assert (ended.finish_reason, ended.error, text(session.said)) == ("stop", "", "one two ")
    assert text(await session.turn("play:hello")) == "Hello from the scripted model."


async def test_an_interrupt_while_it_asks(model: Model, session: Session) -> None:
    """The approval is withdrawn, its call has a result without success, and nothing ran."""
    await session.driver.prompt(
        model.play("asking", [Tool("Bash", {"command": "touch made"})], [Text("never")])
    )
    asked = await session.until(ApprovalAsked)
    await session.driver.interrupt()
    assert (await session.until(TurnEnded)).finish_reason == "stop"
    assert only(ApprovalWithdrawn, session.said).call_id == asked.call.id
    assert not only(ToolSucceeded, session.said).outcome.success
    assert not await session.driver.decide(asked.call.id or "", APPROVED)
    assert text(await session.turn("play:hello")) == "Hello from the scripted model."
    assert not list(session.directory.iterdir())


async def test_an_interrupt_while_a_tool_runs(model: Model, session: Session) -> None:
    """The command is ended, and its end is no failure of it."""
    await session.driver.prompt(
        model.play(
            "busy", [Tool("Bash", {"command": "touch begun; tail -f /dev/null"})], [Text("never")]
        )
    )
    asked = await session.until(ApprovalAsked)
    assert await session.driver.decide(asked.call.id or "", APPROVED)
    await _exists(session.directory / "begun")
    await session.driver.interrupt()
    assert (await session.until(TurnEnded)).finish_reason == "stop"
    assert not only(ToolSucceeded, session.said).outcome.success
    assert not [event for event in session.said if isinstance(event, ToolFailed)]


async def test_an_interrupt_stops_a_subagent_that_asks(model: Model, session: Session) -> None:
    model.play("job", [Tool("Bash", {"command": "touch made"})], [Text("never")])
    task = Tool(
        "Agent", {"description": "A job", "prompt": "play:job", "subagent_type": "general-purpose"}
    )
    await session.driver.prompt(model.play("delegate", [task], [Text("never")]))
    asked = await session.until(ApprovalAsked)
    await session.driver.interrupt()
    assert (await session.until(TurnEnded)).finish_reason == "stop"
    assert only(ApprovalWithdrawn, session.said).call_id == asked.call.id
    assert [
        event.outcome.success for event in session.said if isinstance(event, ToolSucceeded)
    ] == [
        False,
        False,
    ]
    turn = await session.turn("play:hello")
    assert text(turn) == "Hello from the scripted model."
    assert len([event for event in session.said if isinstance(event, TurnEnded)]) == 2
    assert not list(session.directory.iterdir())


async def test_a_late_decision_counts(model: Model, session: Session) -> None:
    """Nothing decides in the person's place (D38); how late was tried is in docs/agents.md."""
    await session.driver.prompt(
        model.play("patient", [Tool("Bash", {"command": "touch made"})], [Text("Thanks.")])
    )
    asked = await session.until(ApprovalAsked)
    seconds = float(os.environ.get("LATE_SECONDS", "1"))
    await asyncio.sleep(seconds)  # the passing of time is what is tested
    assert await session.driver.decide(asked.call.id or "", APPROVED)
    await session.until(TurnEnded)
    assert only(ToolSucceeded, session.said).outcome.success
    assert (session.directory / "made").exists()


async def test_nothing_is_left_after_the_end(model: Model, directory: Path) -> None:
    """Not even a command that the agent runs in a session of its own."""
    async with Session(directory) as session:
        pid = pid_of(session)
        run = run_of(pid)
        assert os.getpgid(pid) == pid != os.getpgid(0)
        await session.driver.prompt(
            model.play(
                "busy",
                [Tool("Bash", {"command": "touch begun; setsid tail -f /dev/null"})],
                [Text("never")],
            )
        )
        asked = await session.until(ApprovalAsked)
        assert await session.driver.decide(asked.call.id or "", APPROVED)
        await _exists(directory / "begun")
        assert len(carrying(run)) > 1
        began = time.monotonic()
        await session.driver.close()
        assert time.monotonic() - began < PATIENCE / 2
        assert not carrying(run)
        await session.driver.close()


async def test_a_fresh_driver_goes_on(model: Model, directory: Path) -> None:
    """The model is told what was said before; the id stays (D35)."""
    async with Session(directory) as session:
        said = await session.turn(
            model.play("remember", [Text("I shall remember the word marmalade.")])
        )
        resume_id = only(SessionIdentified, said).resume_id
    async with Session(directory, resume_id) as session:
        said = await session.turn("play:hello")
    assert not [event for event in said if isinstance(event, SessionIdentified)]
    assert text(said) == "Hello from the scripted model."
    assert "marmalade" in str(model.requests[-1].body["messages"])


async def test_a_killed_program_is_said_and_its_turn_continued(
    model: Model, directory: Path, hold: threading.Event
) -> None:
    """Died, with a reason that a person understands; nothing follows, and nothing is left. The
    prompt that it died over is in the conversation of a fresh driver, once, and is not answered by
    itself."""
    async with Session(directory) as session:
        run = run_of(pid_of(session))
        await session.driver.prompt(model.play("dying", [Text("one two three", hold)]))
        await session.until(Chunk)
        resume_id = only(SessionIdentified, session.said).resume_id
        await _saved(resume_id, "play:dying")
        os.kill(pid_of(session), signal.SIGKILL)
        died = await session.until(AgentDied)
        assert "signal 9" in died.reason
        await gone(run)
        await session.driver.prompt("play:hello")
        await session.driver.interrupt()
    assert isinstance(session.said[-1], AgentDied)
    calls = len(model.requests)
    async with Session(directory, resume_id) as session:
        said = await session.turn("play:hello")
    assert text(said) == "Hello from the scripted model."
    assert [request.play for request in model.requests[calls:]] == ["hello"]
    assert str(model.requests[-1].body["messages"]).count("play:dying") == 1


async def _saved(resume_id: str, prompt: str) -> None:
    """The program writes its conversation down a moment after it has it."""
    deadline = time.monotonic() + PATIENCE
    while not any(
        prompt in path.read_text()
        for path in Path(os.environ["CLAUDE_CONFIG_DIR"]).glob(f"projects/*/{resume_id}.jsonl")
    ):
        assert time.monotonic() < deadline, resume_id
        await asyncio.sleep(0.02)


async def _exists(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, path
        await asyncio.sleep(0.02)
