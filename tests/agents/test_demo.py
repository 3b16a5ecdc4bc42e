"""The demo driver by itself: what D41 says of it, and that it stops when it is told to (D40)."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge_project.kernel.config import conf
from sessions_app.agents.demo.driver import DemoDriver, kinds
from sessions_app.agents.driver import (
    ApprovalAsked,
    ApprovalWithdrawn,
    CannotResume,
    Chunk,
    SessionIdentified,
    Start,
    ToolFailed,
    ToolSucceeded,
    TurnEnded,
    Verdict,
)
from tests.agents.drive import APPROVED, REJECTED, Drive, carrying, eventually, text, within
from tests.agents.drive import kinds as names


@pytest.fixture
async def drive(tmp_path: Path) -> AsyncIterator[Drive]:
    found = await Drive(DemoDriver()).start(tmp_path)
    yield found
    await found.close()


@pytest.fixture
def with_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(conf.__dict__, "bridge_demo_shell", True)


def test_it_is_always_there_and_not_a_real_one() -> None:
    """D41: `demo` can always start, and is never preferred to a real agent."""
    [kind] = kinds()
    assert (kind.name, kind.why_not(), kind.real) == ("demo", None, False)
    assert isinstance(kind.make(), DemoDriver)


async def test_it_repeats_the_prompt_in_several_chunks_and_says_what_it_is(drive: Drive) -> None:
    said = await drive.turn("hello out there")
    assert len([event for event in said if isinstance(event, Chunk)]) > 1
    assert "hello out there" in text(said)
    assert "demo agent" in text(said) and "no model" in text(said)
    last = said[-1]
    assert isinstance(last, TurnEnded) and (last.finish_reason, last.error) == ("stop", "")
    assert last.usage is not None and last.usage["duration_ms"] >= 0


async def test_a_long_prompt_is_not_sent_back_whole(drive: Drive) -> None:
    said = await drive.turn("x" * 9_000_000)
    assert len(text(said)) < 30_000
    assert "9000000 characters in all" in text(said)


async def test_a_tool_is_asked_for_and_reported(drive: Drive) -> None:
    """D41: approval, result, and the end of the turn; nothing is run, and it says so."""
    drive.answers = [APPROVED]
    said = await drive.turn('/tool Edit {"file_path": "a.txt"}')
    assert names(said) == ["ApprovalAsked", "ToolSucceeded", "Chunk", "TurnEnded"]
    [asked], [done] = drive.of(ApprovalAsked), drive.of(ToolSucceeded)
    assert (asked.call.tool, asked.call.params) == ("Edit", {"file_path": "a.txt"})
    assert asked.call.description == "Edit: a.txt"
    assert done.call == asked.call
    assert done.outcome.success and "nothing was run" in done.outcome.content
    assert said[-1] == drive.of(TurnEnded)[-1] and drive.of(TurnEnded)[-1].finish_reason == "stop"


async def test_a_rejected_tool_is_not_run(drive: Drive, tmp_path: Path, with_shell: None) -> None:
    drive.answers = [Verdict("rejected", reason="not today")]
    said = await drive.turn('/tool Bash {"command": "touch made"}')
    assert names(said) == ["ApprovalAsked", "ToolSucceeded", "Chunk", "TurnEnded"]
    assert drive.of(ToolSucceeded)[0].outcome.error == "not today"
    assert not drive.of(ToolSucceeded)[0].outcome.success
    assert not (tmp_path / "made").exists()


async def test_with_a_shell_it_runs_commands_for_real(
    drive: Drive, tmp_path: Path, with_shell: None
) -> None:
    """D41: BRIDGE_DEMO_SHELL runs Bash in the session's directory."""
    drive.answers = [APPROVED]
    await drive.turn('/tool Bash {"command": "touch made; echo done"}')
    assert (tmp_path / "made").exists()
    assert drive.of(ToolSucceeded)[0].outcome.content == "done\n"


async def test_without_it_nothing_is_run(drive: Drive, tmp_path: Path) -> None:
    drive.answers = [APPROVED]
    await drive.turn('/tool Bash {"command": "touch made"}')
    assert not (tmp_path / "made").exists()


async def test_modified_parameters_are_what_runs(
    drive: Drive, tmp_path: Path, with_shell: None
) -> None:
    drive.answers = [Verdict("modified", {"command": "touch other"})]
    await drive.turn('/tool Bash {"command": "touch made"}')
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]


async def test_a_failing_command_is_a_failure_with_its_details(
    drive: Drive, with_shell: None
) -> None:
    drive.answers = [APPROVED]
    said = await drive.turn('/tool Bash {"command": "echo out; echo no >&2; exit 7"}')
    [failed] = drive.of(ToolFailed)
    assert (failed.details.exit_code, failed.details.stdout, failed.details.stderr) == (
        7,
        "out\n",
        "no\n",
    )
    assert failed.details.execution_time_ms is not None
    assert drive.of(TurnEnded)[0].finish_reason == "stop" and names(said)[-1] == "TurnEnded"


@pytest.mark.parametrize("prompt", ["/tool", "/tool Bash {", "/tool Bash [1]", "/tool  "])
async def test_a_tool_that_cannot_be_read_is_explained(drive: Drive, prompt: str) -> None:
    said = await drive.turn(prompt)
    assert names(said) == ["Chunk", "TurnEnded"]
    assert "/tool NAME" in text(said)


async def test_fail_fails_with_a_reason(drive: Drive) -> None:
    """D41: a failing turn; the session goes on."""
    await drive.turn("/fail because of this")
    assert (drive.of(TurnEnded)[0].finish_reason, drive.of(TurnEnded)[0].error) == (
        "error",
        "because of this",
    )
    assert "again" in text(await drive.turn("again"))


async def test_sleep_streams_for_its_time(drive: Drive) -> None:
    started = time.monotonic()
    said = await drive.turn("/sleep 0.5")
    assert time.monotonic() - started >= 0.5
    assert len([event for event in said if isinstance(event, Chunk)]) >= 4
    assert drive.of(TurnEnded)[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "prompt", ["/sleep", "/sleep soon", "/sleep nan", "/sleep inf", "/sleep -1"]
)
async def test_a_sleep_without_an_end_is_explained(drive: Drive, prompt: str) -> None:
    assert "/sleep takes a number" in text(await drive.turn(prompt))


async def test_an_interrupt_stops_it_while_it_streams(drive: Drive) -> None:
    """D40: `stream_end` with `stop`; asked twice it stops once."""
    turn = asyncio.create_task(drive.turn("/sleep 1000"))
    await drive.until(lambda: bool(drive.of(Chunk)))
    await drive.driver.interrupt()
    await drive.driver.interrupt()
    said = await within(5, turn)
    assert (names(said), drive.of(TurnEnded)[0].finish_reason, drive.of(TurnEnded)[0].error) == (
        ["Chunk", "TurnEnded"],
        "stop",
        "",
    )
    assert "again" in text(await drive.turn("again"))


async def test_an_interrupt_right_after_the_prompt_ends_the_turn_too(drive: Drive) -> None:
    await drive.driver.prompt("/sleep 1000")
    await drive.driver.interrupt()
    await drive.until(lambda: bool(drive.of(TurnEnded)))


async def test_an_interrupt_takes_back_what_was_asked(drive: Drive) -> None:
    turn = asyncio.create_task(drive.turn("/tool Bash {}"))
    await drive.until(lambda: bool(drive.of(ApprovalAsked)))
    await drive.driver.interrupt()
    said = await within(5, turn)
    call_id = drive.of(ApprovalAsked)[0].call.id
    assert drive.of(ApprovalWithdrawn) == [ApprovalWithdrawn(str(call_id))]
    assert names(said) == ["ApprovalAsked", "ApprovalWithdrawn", "TurnEnded"]
    assert not await drive.driver.decide(str(call_id), APPROVED)


async def test_an_interrupt_ends_a_running_command(drive: Drive, with_shell: None) -> None:
    mark = uuid.uuid4().hex
    drive.answers = [APPROVED]
    turn = asyncio.create_task(drive.turn(f'/tool Bash {{"command": "sleep 100; : {mark}"}}'))
    await eventually(lambda: bool(carrying(mark)))
    await drive.driver.interrupt()
    said = await within(5, turn)
    assert names(said) == ["ApprovalAsked", "ToolSucceeded", "TurnEnded"]
    assert drive.of(ToolSucceeded)[0].outcome.error == "The call was interrupted."
    assert carrying(mark) == []


async def test_a_decision_is_taken_once(drive: Drive) -> None:
    turn = asyncio.create_task(drive.turn("/tool Edit {}"))
    await drive.until(lambda: bool(drive.of(ApprovalAsked)))
    call_id = str(drive.of(ApprovalAsked)[0].call.id)
    assert not await drive.driver.decide("another", APPROVED)
    assert await drive.driver.decide(call_id, REJECTED)
    assert not await drive.driver.decide(call_id, APPROVED)
    await within(5, turn)
    assert not drive.of(ToolSucceeded)[0].outcome.success


async def test_it_is_resumed_by_its_own_id(tmp_path: Path) -> None:
    first = await Drive(DemoDriver()).start(tmp_path)
    await first.until(lambda: bool(first.of(SessionIdentified)))
    [identified] = first.of(SessionIdentified)
    await first.close()
    second = await Drive(DemoDriver()).start(tmp_path, identified.resume_id)
    await second.until(lambda: bool(second.of(SessionIdentified)))
    assert second.of(SessionIdentified) == [identified]
    await second.close()


async def test_it_does_not_know_the_sessions_of_others(tmp_path: Path) -> None:
    with pytest.raises(CannotResume):
        await DemoDriver().start(Start("s", tmp_path, "someone-else"))


async def test_closing_ends_the_events_with_a_turn_that_nobody_reads(tmp_path: Path) -> None:
    """A full queue must not keep a session from closing."""
    demo = DemoDriver()
    await demo.start(Start("s", tmp_path))
    for _ in range(2000):
        if demo._events._queue.full():
            break
        demo._events._queue.put_nowait(Chunk("x"))
    await demo.prompt("hello")
    await within(5, demo.close())
    await within(5, demo.close())
    assert len([event async for event in demo.events()]) == 1000


@pytest.mark.parametrize(
    "prompt",
    [
        '/tool Bash {"command": "echo a\\u0000b"}',
        '/tool Bash {"command": "echo \\ud800"}',
        "/tool Bash " + "[" * 100_000,
    ],
)
async def test_what_no_command_can_hold_ends_the_turn(
    drive: Drive, with_shell: None, prompt: str
) -> None:
    """D40: a turn ends whatever it is about; else nothing more could be said in the session."""
    drive.answers = [APPROVED]
    said = await drive.turn(prompt)
    assert isinstance(said[-1], TurnEnded) and said[-1].finish_reason == "stop"
