"""Turns of claude-code: its real program against a scripted model (D35, D38, D40, D41)."""

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from sessions_app.agents.driver import Verdict
from sessions_app.agents.events import (
    ApprovalAsked,
    ApprovalWithdrawn,
    Chunk,
    PromptMoved,
    SessionIdentified,
    ToolFailed,
    ToolStarted,
    ToolStopped,
    ToolSucceeded,
    TurnEnded,
)
from sessions_app.approvals.tool_call import MAIN_AGENT
from tests.agents.claude_model import Model, Refused, Text, Tool
from tests.agents.drive import APPROVED, Drive, kinds, only, text
from tests.servers import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = "Hello from the scripted model."
TASK = Tool(
    "Agent", {"description": "A job", "prompt": "play:job", "subagent_type": "general-purpose"}
)


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> None:
    from sessions_app.agents.claude import process  # there may be no SDK

    monkeypatch.setitem(process.ENVIRONMENT, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "")


async def test_a_command_that_only_reads_asks_too(model: Model, session: Drive) -> None:
    """The description shows the command itself, whatever the agent calls it."""
    harmless = Tool("Bash", {"command": "echo seen", "description": "Harmless"})
    prompt = model.play("echo", [Text("I will look. "), harmless], [Text("That was it.")])
    said = await session.turn(prompt, APPROVED)
    call, done = only(ApprovalAsked, said).call, only(ToolSucceeded, said)
    assert (call.description, call.reasoning) == ("Bash: echo seen", "Harmless")
    assert (done.content, done.diff) == ("seen", None) and done.duration_ms is not None
    before, after = said[: said.index(only(ApprovalAsked, said))], said[said.index(done) :]
    assert text(before) == "I will look. " and text(after) == "That was it."
    inputs = [one.content for one in said if isinstance(one, Chunk) and one.is_tool_use]
    assert "".join(inputs).count("echo seen") == 1


async def test_a_rejected_call_does_not_run(model: Model, session: Drive, tmp_path: Path) -> None:
    """It is no failure of the tool; the model reads why. Reading outside the directory asks too."""
    (tmp_path / "elsewhere.txt").write_text("private")
    outside = Tool("Read", {"file_path": str(tmp_path / "elsewhere.txt")})
    touch = Tool("Bash", {"command": "touch made"})
    prompt = model.play("touch", [touch], [outside], [Text("Then not.")])
    said = await session.turn(prompt, Verdict("rejected", reason="Not on a Friday."))
    asks = ["ApprovalAsked", "ToolStopped"]
    assert kinds(said) == [*asks, "ToolStarted", *asks, "TurnEnded"]
    assert [one.reason for one in said if isinstance(one, ToolStopped)] == ["Not on a Friday."] * 2
    told = str(model.requests[-1]["messages"])
    assert told.count("Not on a Friday.") == 2 and "private" not in told
    assert list(session.directory.iterdir()) == []


async def test_a_message_that_steers_the_turn(model: Model, session: Drive) -> None:
    """It comes after the tool that runs; one end answers both."""
    prompt = model.play("door", [Tool("Bash", {"command": "echo seen"})], [Text("Both seen.")])
    session.answers = []
    await session.driver.prompt(prompt)
    asked = await session.said_one(ApprovalAsked)
    await session.driver.steer("And the hinges?", "second")
    session.driver.approvals.decide(asked.call.id or "", APPROVED)
    await session.until(lambda: bool(session.of(TurnEnded)))
    assert "And the hinges?" in str(model.requests[-1]["messages"])
    assert [(one.error, one.own) for one in session.of(TurnEnded)] == [("", False)]
    assert PromptMoved("given", "second") in session.said


async def test_an_edit_has_a_diff(model: Model, session: Drive) -> None:
    """Reading inside the directory asks nobody; writing and editing ask."""
    file = session.directory / "a.txt"
    prompt = model.play(
        "edit",
        [Tool("Write", {"file_path": str(file), "content": "one\ntwo\n"})],
        [Tool("Read", {"file_path": str(file)})],
        [Tool("Edit", {"file_path": str(file), "old_string": "two", "new_string": "zwei"})],
        [Text("Edited.")],
    )
    said = await session.turn(prompt, APPROVED)
    asked = [event.call.tool for event in said if isinstance(event, ApprovalAsked)]
    assert asked == ["Write", "Edit"] and only(ToolStarted, said).call.tool == "Read"
    write, read, edit = (event for event in said if isinstance(event, ToolSucceeded))
    assert write.diff == f"--- /dev/null\n+++ {file}\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    assert read.diff is None and "two" in read.content
    assert edit.diff == f"--- {file}\n+++ {file}\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n"
    assert file.read_text() == "one\nzwei\n"


async def test_without_a_log_in_it_says_where_to_log_in(model: Model, session: Drive) -> None:
    """The agent's own words, "Please run /login", cannot be followed on a phone."""
    refused = Refused(401, "invalid x-api-key", "authentication_error")
    ended = only(TurnEnded, await session.turn(model.play("stranger", refused)))
    assert ended.finish_reason == "error"
    named = re.search(r"Run `(.*) /login` in a terminal on the bridge's machine", ended.error)
    assert named is not None and shutil.which(named[1]) is not None, ended


async def test_a_command_that_fails_and_one_that_takes_too_long(
    model: Model, session: Drive
) -> None:
    """The agent keeps the time of its own tools (docs/agents.md)."""
    failing = Tool("Bash", {"command": "echo oops >&2; exit 3"})
    late = Tool("Bash", {"command": "sleep 4; echo late", "timeout": 500})
    prompt = model.play("fails", [failing], [late], [Text("Both failed.")])
    said = await session.turn(prompt, APPROVED)
    failed, too_long = (event for event in said if isinstance(event, ToolFailed))
    asked = [event.call.id for event in said if isinstance(event, ApprovalAsked)]
    assert asked == [failed.call.id, too_long.call.id]
    assert (failed.failure.code, failed.failure.retries) == ("TOOL_EXECUTION_FAILED", 0)
    assert (failed.failure.details.exit_code, failed.failure.details.stderr) == (3, "oops")
    assert too_long.failure.code == "TOOL_TIMEOUT"
    assert only(TurnEnded, said).finish_reason == "stop"


async def test_clearing_changes_the_id(session: Drive) -> None:
    said = await session.turn("/clear")
    assert only(SessionIdentified, said).resume_id
    assert text(said).startswith("The conversation was cleared")
    again = await session.turn("play:hello")
    assert not [event for event in again if isinstance(event, SessionIdentified)]


async def test_a_question_to_the_user(model: Model, session: Drive) -> None:
    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    question = {"question": "Which colour?", "header": "Colour", "multiSelect": False}
    asked = {"questions": [question | {"options": options}]}
    answer = Verdict("modified", {**asked, "answers": {"Which colour?": "Blue"}})
    prompt = model.play("question", [Tool("AskUserQuestion", asked)], [Text("Thanks.")])
    said = await session.turn(prompt, answer)
    assert only(ApprovalAsked, said).call.description == "Which colour?\n1. Red: r\n2. Blue: b"
    assert only(ToolSucceeded, said).content == "Which colour? Blue"
    assert '"Which colour?"="Blue"' in str(model.requests[-1]["messages"])


async def test_a_subagent_asks_too(model: Model, session: Drive) -> None:
    """Its calls are the session's; its talk is not. The turn lasts until it is done."""
    below = Tool("Bash", {"command": "echo from below"})
    model.play("job", [Text("secretly "), below], [Text("the report")])
    prompt = model.play("delegate", [Text("I delegate. "), TASK], [Text("It is done.")])
    said = await session.turn(prompt, APPROVED)
    assert text(said) == "I delegate. It is done."
    passed = ["ToolStarted", "ApprovalAsked", "ToolSucceeded", "ToolSucceeded", "TurnEnded"]
    assert kinds(said) == passed
    begun, asked = only(ToolStarted, said).call, only(ApprovalAsked, said).call
    assert (begun.tool, begun.agent) == ("Agent", MAIN_AGENT)
    assert asked.params["command"] == "echo from below"
    assert asked.agent == (begun.id, "general-purpose")
    first, second = (event.content for event in said if isinstance(event, ToolSucceeded))
    assert (first, second) == ("from below", "the report"), "no word that is meant for the model"


async def test_tasks(model: Model, session: Drive) -> None:
    """The web client reads the list from these calls, and a task's number from its result."""
    new = {"subject": "Find it", "description": "Find the bug"}
    change = {"taskId": "1", "status": "in_progress"}
    prompt = model.play(
        "tasks", [Tool("TaskCreate", new)], [Tool("TaskUpdate", change)], [Text("Noted.")]
    )
    said = await session.turn(prompt)
    passed = [one for one in said if isinstance(one, ToolSucceeded)]
    assert [one.content for one in passed] == [
        "Task #1 created successfully: Find it",
        "Updated task #1 status",
    ]
    assert [one.call.params for one in passed] == [new, change]


async def test_an_interrupt_stops_a_subagent_that_asks(model: Model, session: Drive) -> None:
    model.play("job", [Tool("Bash", {"command": "touch made"})], [Text("never")])
    session.answers = []
    await session.driver.prompt(model.play("delegate", [TASK], [Text("never")]))
    asked = await session.said_one(ApprovalAsked)
    await session.driver.interrupt()
    assert (await session.said_one(TurnEnded)).finish_reason == "stop"
    assert only(ApprovalWithdrawn, session.said).call_id == asked.call.id
    assert len(session.of(ToolStopped)) == 2 and not session.of(ToolSucceeded)
    assert text(await session.turn("play:hello")) == HELLO
    assert len(session.of(TurnEnded)) == 2 and not list(session.directory.iterdir())


async def test_what_is_done_in_the_background_is_a_turn_of_its_own(
    model: Model, background: None, session: Drive
) -> None:
    """Its second, unasked result ends that turn, and not the next one."""
    model.play("job", [Text("the report")])
    prompt = model.play("delegate", [Text("I delegate. "), TASK], [Text("Off it goes.")])
    said = await session.turn(prompt)
    assert text(said) == "I delegate. Off it goes."
    assert "internal" not in only(ToolSucceeded, said).content
    await session.until(lambda: len(session.of(TurnEnded)) == 2)
    assert text(session.said[len(said) :]) == "The background job is done."
    assert session.of(TurnEnded)[1].finish_reason == "stop"
    assert text(await session.turn("play:hello")) == HELLO


async def test_an_interrupt_while_a_tool_runs(model: Model, session: Drive) -> None:
    endless = Tool("Bash", {"command": "touch begun; tail -f /dev/null"})
    session.answers = [APPROVED]
    await session.driver.prompt(model.play("busy", [endless], [Text("never")]))
    await asyncio.to_thread(wait_until, (session.directory / "begun").exists)
    await session.driver.interrupt()
    assert (await session.said_one(TurnEnded)).finish_reason == "stop"
    assert len(session.of(ToolStopped)) == 1 and not session.of(ToolFailed)
