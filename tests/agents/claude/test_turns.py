"""Whole turns of the real program of claude-code against a scripted model (issue: claude-agent-sdk;
D35, D38, D41).
"""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from types import ModuleType

import pytest

from sessions_app.agents.driver import (
    ApprovalAsked,
    ApprovalWithdrawn,
    Chunk,
    SessionIdentified,
    ToolFailed,
    ToolStarted,
    ToolSucceeded,
    TurnEnded,
    Verdict,
)
from tests.agents.claude.model import Model, Refused, Text, Tool
from tests.agents.claude.session import Kept, Session, only, text

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPROVED = Verdict("approved")
TASK = Tool(
    "Agent", {"description": "A job", "prompt": "play:job", "subagent_type": "general-purpose"}
)


def claude_process() -> ModuleType:
    return importlib.import_module("sessions_app.agents.claude.process")


async def test_an_answer_is_streamed(model: Model, directory: Path) -> None:
    """Piece by piece, with the agent's own id before it and usage and cost after it."""
    async with Session(directory) as session:
        said = await session.turn("play:hello")
    assert only(SessionIdentified, said).resume_id and said[0] == only(SessionIdentified, said)
    assert text(said) == "Hello from the scripted model."
    assert len([event for event in said if isinstance(event, Chunk)]) == 5
    ended = only(TurnEnded, said)
    assert (ended.finish_reason, ended.error) == ("stop", "")
    assert (
        ended.usage is not None
        and {"input_tokens": 100, "output_tokens": 20, "num_turns": 1}.items()
        <= ended.usage.items()
    )
    assert ended.usage["total_cost_usd"] > 0


async def test_an_approved_command_runs(model: Model, session: Session) -> None:
    """It asks although it only reads; the description shows the command itself, whatever the agent
    calls it.
    """
    prompt = model.play(
        "echo",
        [Text("I will look. "), Tool("Bash", {"command": "echo seen", "description": "Harmless"})],
        [Text("That was it.")],
    )
    said = await session.turn(prompt, APPROVED)
    call = only(ApprovalAsked, said).call
    assert (call.tool, call.params["command"], call.description, call.reasoning) == (
        "Bash",
        "echo seen",
        "Bash: echo seen",
        "Harmless",
    )
    done = only(ToolSucceeded, said)
    assert (done.call.id, done.outcome.success, done.outcome.content, done.outcome.diff) == (
        call.id,
        True,
        "seen",
        None,
    )
    assert done.outcome.duration_ms is not None
    assert text(said) == "I will look. That was it."
    assert (
        "".join(
            event.content for event in said if isinstance(event, Chunk) and event.is_tool_use
        ).count("echo seen")
        == 1
    )
    before, after = said[: said.index(only(ApprovalAsked, said))], said[said.index(done) :]
    assert text(before) == "I will look. " and text(after) == "That was it."
    assert not await session.driver.decide(call.id or "", APPROVED)


async def test_a_rejected_command_does_not_run(model: Model, session: Session) -> None:
    """A denial is a result without success, no failure of the tool; the model reads the reason."""
    prompt = model.play("touch", [Tool("Bash", {"command": "touch made"})], [Text("Then not.")])
    said = await session.turn(prompt, Verdict("rejected", reason="Not on a Friday."))
    outcome = only(ToolSucceeded, said).outcome
    assert (outcome.success, outcome.error) == (False, "Not on a Friday.")
    assert not [event for event in said if isinstance(event, ToolFailed)]
    assert only(TurnEnded, said).finish_reason == "stop"
    assert not (session.directory / "made").exists()
    assert "Not on a Friday." in str(model.requests[-1].body["messages"])


async def test_a_modified_command_runs_as_modified(model: Model, session: Session) -> None:
    prompt = model.play("modify", [Tool("Bash", {"command": "touch theirs"})], [Text("Done.")])
    said = await session.turn(prompt, Verdict("modified", {"command": "touch ours"}))
    assert only(ToolSucceeded, said).outcome.success
    assert [path.name for path in session.directory.iterdir()] == ["ours"]


async def test_an_edit_has_a_diff(model: Model, session: Session) -> None:
    """Reading inside the directory asks nobody; writing and editing ask, and say what they
    changed.
    """
    file = session.directory / "a.txt"
    prompt = model.play(
        "edit",
        [Tool("Write", {"file_path": str(file), "content": "one\ntwo\n"})],
        [Tool("Read", {"file_path": str(file)})],
        [Tool("Edit", {"file_path": str(file), "old_string": "two", "new_string": "zwei"})],
        [Text("Edited.")],
    )
    said = await session.turn(prompt, APPROVED, APPROVED)
    assert [event.call.tool for event in said if isinstance(event, ApprovalAsked)] == [
        "Write",
        "Edit",
    ]
    assert only(ToolStarted, said).call.tool == "Read"
    write, read, edit = (event.outcome for event in said if isinstance(event, ToolSucceeded))
    assert write.diff == f"--- /dev/null\n+++ {file}\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    assert read.diff is None and "two" in read.content
    assert edit.diff == f"--- {file}\n+++ {file}\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n"
    assert file.read_text() == "one\nzwei\n"


async def test_reading_outside_the_directory_asks(
    model: Model, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere.txt").write_text("private")
    prompt = model.play(
        "outside", [Tool("Read", {"file_path": str(tmp_path / "elsewhere.txt")})], [Text("No.")]
    )
    said = await session.turn(prompt, Verdict("rejected"))
    assert only(ToolStarted, said).call.id == only(ApprovalAsked, said).call.id
    assert not only(ToolSucceeded, said).outcome.success
    assert "private" not in str(said)


async def test_a_failing_command(model: Model, session: Session) -> None:
    prompt = model.play(
        "fails", [Tool("Bash", {"command": "echo oops >&2; exit 3"})], [Text("It failed.")]
    )
    said = await session.turn(prompt, APPROVED)
    failed = only(ToolFailed, said)
    assert (failed.call.id, failed.code, failed.retries) == (
        only(ApprovalAsked, said).call.id,
        "TOOL_EXECUTION_FAILED",
        0,
    )
    assert (failed.details.exit_code, failed.details.stderr) == (3, "oops")
    assert only(TurnEnded, said).finish_reason == "stop"


async def test_a_command_that_takes_too_long(model: Model, session: Session) -> None:
    """The agent keeps the time of its own tools (docs/agents.md)."""
    prompt = model.play(
        "late",
        [Tool("Bash", {"command": "sleep 4; echo late", "timeout": 500})],
        [Text("Too long.")],
    )
    said = await session.turn(prompt, APPROVED)
    assert only(ToolFailed, said).code == "TOOL_TIMEOUT"


async def test_a_call_that_the_agent_itself_refuses(model: Model, session: Session) -> None:
    """Nobody is asked about what cannot run, and it is said all the same."""
    prompt = model.play("wrong", [Tool("Bash", {"nonsense": 1})], [Text("Oh.")])
    said = await session.turn(prompt)
    failed = only(ToolFailed, said)
    assert only(ToolStarted, said).call.id == failed.call.id
    assert "nonsense" in failed.message and "<tool_use_error>" not in failed.message


async def test_a_model_that_refuses(model: Model, session: Session) -> None:
    """A failing turn says why and leaves the session as it was (D35)."""
    prompt = model.play("down", Refused(400, "scripted refusal"))
    ended = only(TurnEnded, await session.turn(prompt))
    assert (ended.finish_reason, "scripted refusal" in ended.error) == ("error", True)
    assert text(await session.turn("play:hello")) == "Hello from the scripted model."


async def test_an_answer_that_is_too_long(model: Model, session: Session) -> None:
    """The agent has the model go on a few times, then gives up: finish_reason length."""
    model.play("long", [Text("and on")], stop="max_tokens")
    said = await session.turn("play:long")
    assert only(TurnEnded, said).finish_reason == "length"
    assert text(said).startswith("and on")
    assert "API Error" not in text(said)


async def test_clearing_changes_the_id(kept: Kept, session: Session) -> None:
    assert only(SessionIdentified, await session.turn("/clear")).resume_id != kept.resume_id
    again = await session.turn("play:hello")
    assert not [event for event in again if isinstance(event, SessionIdentified)]


async def test_what_no_model_says_is_said(model: Model, session: Session) -> None:
    """The answer to a /command comes in one piece, and once."""
    said = await session.turn("/context")
    assert text(said).count("Context Usage") == 1
    assert only(TurnEnded, said).finish_reason == "stop"


async def test_a_question_to_the_user(model: Model, session: Session) -> None:
    """It is answered by a modification that carries the answers."""
    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    questions = [
        {"question": "Which colour?", "header": "Colour", "multiSelect": False, "options": options}
    ]
    prompt = model.play(
        "question", [Tool("AskUserQuestion", {"questions": questions})], [Text("Thanks.")]
    )
    said = await session.turn(
        prompt, Verdict("modified", {"questions": questions, "answers": {"Which colour?": "Blue"}})
    )
    assert "Blue" in only(ToolSucceeded, said).outcome.content


async def test_a_subagent_asks_too(model: Model, session: Session) -> None:
    """Its calls are the session's; its talk is not. The turn lasts until it is done."""
    model.play(
        "job",
        [Text("secretly "), Tool("Bash", {"command": "echo from below"})],
        [Text("the report")],
    )
    prompt = model.play("delegate", [Text("I delegate. "), TASK], [Text("It is done.")])
    said = await session.turn(prompt, APPROVED)
    assert text(said) == "I delegate. It is done."
    assert [type(event) for event in said if not isinstance(event, Chunk)] == [
        ToolStarted,
        ApprovalAsked,
        ToolSucceeded,
        ToolSucceeded,
        TurnEnded,
    ]
    assert (
        only(ToolStarted, said).call.tool,
        only(ApprovalAsked, said).call.params["command"],
    ) == (
        "Agent",
        "echo from below",
    )
    below, above = (event.outcome for event in said if isinstance(event, ToolSucceeded))
    assert below.content == "from below" and "the report" in above.content


async def test_what_is_done_in_the_background_is_a_turn_of_its_own(
    model: Model, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the agent work there all the same: its second, unasked result ends that turn, and not
    the next one.
    """
    monkeypatch.setitem(claude_process().ENVIRONMENT, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "")
    model.play("job", [Text("the report")])
    prompt = model.play("delegate", [Text("I delegate. "), TASK], [Text("Off it goes.")])
    async with Session(directory) as session:
        said = await session.turn(prompt)
        assert text(said) == "I delegate. Off it goes."
        assert "internal" not in only(ToolSucceeded, said).outcome.content
        ended = await session.until(TurnEnded, after=len(said))
        assert (text(session.said[len(said) :]), ended.finish_reason) == (
            "The background job is done.",
            "stop",
        )
        assert text(await session.turn("play:hello")) == "Hello from the scripted model."


async def test_no_approval_outlives_its_turn(
    model: Model, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a job in the background still asks about when the turn ends is withdrawn, and the job is
    told no.
    """
    monkeypatch.setitem(claude_process().ENVIRONMENT, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "")
    hold = threading.Event()
    model.play("job", [Tool("Bash", {"command": "touch made"})], [Text("the report")])
    prompt = model.play("delegate", [TASK], [Text("Off it goes.", hold)])
    async with Session(directory) as session:
        await session.driver.prompt(prompt)
        asked = await session.until(ApprovalAsked)
        hold.set()
        assert (await session.until(ApprovalWithdrawn)).call_id == asked.call.id
        await session.until(TurnEnded)
        refused = await session.until(ToolSucceeded, lambda event: event.call.id == asked.call.id)
        assert not refused.outcome.success
        assert not await session.driver.decide(asked.call.id or "", APPROVED)
    assert not list(directory.iterdir())
