"""What ACP agents do beyond the protocol, or when nobody asked them to (D68, D71, D76)."""

from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import limits
from sessions_app.agents.events import (
    ApprovalAsked,
    ApprovalWithdrawn,
    Chunk,
    ToolStarted,
    ToolStopped,
    ToolSucceeded,
    TurnEnded,
)
from tests.agents.conftest import Open, scripted
from tests.agents.drive import APPROVED, REJECTED, kinds, only, text
from tests.conformance.agent_tools import later

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    "call",
    [
        {"kind": "teleport"},
        {"status": "waiting"},
        {"kind": None, "status": 7, "title": None, "_meta": "x"},
        {"locations": [{"path": 7}, "a", {"path": "shown"}]},
        {"content": [{"type": "chart", "text": "shown"}]},
        {"content": [{"type": "content", "content": {"type": "video", "text": "shown"}}]},
        {"content": [{"type": "diff", "path": "shown"}]},
        {"content": "shown"},
    ],
)
async def test_what_the_protocol_does_not_know_fails_no_request(
    opened: Open, call: dict[str, Any]
) -> None:
    """It is left out, or shown as text; an option of an unknown kind is none."""
    drive = await opened(APPROVED)
    options = [{"optionId": "team", "name": "Ask the team", "kind": "allow_by_team"}]
    options += [{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]
    told = {"title": "Do it now"} | call
    said = await drive.turn(
        f"/do update('tool_call', toolCallId='c', **{told})\n"
        f"n = ask('c', options={options}, **{told})\n"
        "say(str(answer(n)) + str(agent.waiting[n].get('error')))\n"
        f"update('tool_call_update', toolCallId='c', **{told | {'status': 'completed'}})"
    )
    assert "'y'" in text(said) and text(said).endswith("None")
    shown = only(ApprovalAsked, said).call
    assert (
        "shown" not in str(call)
        or "shown" in f"{shown.description}{shown.params}"
        or (call.get("content") == "shown")
    )
    only(ToolSucceeded, said)


async def test_a_chunk_that_the_protocol_does_not_know(opened: Open) -> None:
    said = await (await opened()).turn(
        "/do update('agent_message_chunk', content={'type': 'song', 'text': 'la'})\n"
        "update('agent_message_chunk', content='plain'); update('agent_message_chunk')"
    )
    assert text(said) == "laplainnull"


@pytest.mark.parametrize("spelled", ["cancelled", "canceled"])
async def test_a_cancelled_call_has_ended(opened: Open, spelled: str) -> None:
    """Then and there: it runs no longer, and nobody is asked about it any more."""
    drive = await opened()
    said = await drive.turn(
        "/do update('tool_call', toolCallId='a', title='Look', kind='search', status='pending')\n"
        "n = ask('b', title='ls', kind='execute', rawInput={'command': 'ls'})\n"
        f"[update('tool_call_update', toolCallId=one, status={spelled!r}) for one in 'ab']\n"
        "say(str(answer(n)))"
    )
    stopped = [event for event in said if isinstance(event, ToolStopped)]
    assert [event.call.id for event in stopped] == ["a", "b"]
    assert all("cancelled" in event.reason for event in stopped)
    assert "'cancelled'" in text(said) and said.index(stopped[1]) < len(said) - 2
    assert only(ApprovalWithdrawn, said).call_id == "b"


async def test_a_status_that_goes_back_and_a_call_that_ends_twice(opened: Open) -> None:
    """A call ends once, whatever its agent says then."""
    said = await (await opened()).turn(
        "/do call = {'title': 'Look', 'kind': 'search', 'rawInput': {'q': 1}}\n"
        "for status in 'in_progress pending completed in_progress failed pending'.split():\n"
        "    update('tool_call_update', toolCallId='c', status=status, **call)\n"
        "update('tool_call', toolCallId='c', status='completed', **call)\n"
        "update('tool_call', toolCallId='c', status='failed', **call)"
    )
    assert kinds(said) == ["ToolStarted", "ToolSucceeded", "TurnEnded"]


LATER = later(
    "update('tool_call', toolCallId='b', kind='execute', status='completed',"
    " title='make test', rawInput={'command': 'make test'})\n"
    "say('3 tests'); say(' fail.')"
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ACP_OWN_TURN_SECONDS", 0.3)
    monkeypatch.setattr(limits, "ACP_BUSY_SECONDS", 0.3)


async def test_what_an_agent_says_unasked(opened: Open, root: Path, quick: None) -> None:
    """It is a turn of its own, with its calls, and ends when it has been silent."""
    drive = await opened()
    await drive.turn(LATER)
    (root / "go").touch()
    await drive.until(lambda: len(drive.of(TurnEnded)) == 2)
    assert kinds(drive.said)[1:] == ["ToolStarted", "ToolSucceeded", "TurnEnded"]
    assert text(drive.said).endswith("3 tests fail.") and drive.of(TurnEnded)[1].own
    assert "hello" in text(await drive.turn("hello"))


async def test_a_turn_of_its_own_that_is_interrupted(opened: Open, root: Path) -> None:
    drive = await opened()
    await drive.turn(later("say('on and on')"))
    (root / "go").touch()
    await drive.said_one(Chunk)
    await drive.driver.interrupt()
    await drive.until(lambda: len(drive.of(TurnEnded)) == 2)
    assert drive.of(TurnEnded)[1] == TurnEnded("stop", interrupted=True, own=True)


async def test_a_request_after_the_turn(opened: Open, root: Path, quick: None) -> None:
    """It is asked, and answered, as in a turn."""
    drive = await opened(APPROVED)
    call = "'c', title='ls', kind='execute', rawInput={'command': 'ls'}"
    done = "update('tool_call_update', toolCallId='c', status='completed')"
    await drive.turn(later(f"say('I go on: '); say(str(allowed(ask({call})))); {done}"))
    (root / "go").touch()
    await drive.until(lambda: len(drive.of(TurnEnded)) == 2)
    assert text(drive.said).endswith("I go on: True")
    assert kinds(drive.said)[1:] == ["ApprovalAsked", "ToolSucceeded", "TurnEnded"]


HALF, OTHER = 0xD83D, 0xDE00


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (f"say('ok ' + chr({HALF})); say(chr({OTHER}) + ' done')", "ok \U0001f600 done"),
        (
            f"say(chr({HALF})); say('thinks', 'agent_thought_chunk'); say(chr({OTHER}))",
            "\U0001f600",
        ),
        (f"say(chr({HALF}) + chr({OTHER}))", "\U0001f600"),
        (f"say('alone ' + chr({HALF}))", "alone \ufffd"),
        (f"say(chr({OTHER}) + ' alone ' + chr({HALF})); say(' x')", "\ufffd alone \ufffd x"),
    ],
)
async def test_half_of_a_character(opened: Open, code: str, said: str) -> None:
    """It waits for its other half; one that stays alone is U+FFFD."""
    assert text(await (await opened()).turn(f"/do {code}")) == said


async def test_half_of_a_character_in_a_call(opened: Open) -> None:
    """In thoughts, which come in pieces too, in parameters and in what a tool gives."""
    from sessions_app.agents.sanitize import storable_call, truncate

    said = await (await opened()).turn(
        f"/do say('so ' + chr({HALF}), 'agent_thought_chunk')\n"
        f"say(chr({OTHER}), 'agent_thought_chunk')\n"
        f"text = [{{'type': 'content', 'content': {{'type': 'text', 'text': chr({HALF})}}}}]\n"
        f"update('tool_call', toolCallId='c', title='x', rawInput={{'a': chr({HALF})}})\n"
        "update('tool_call_update', toolCallId='c', status='completed', content=text)"
    )
    call = storable_call(only(ToolStarted, said).call)
    assert (call.reasoning, call.params) == ("so \U0001f600", {"a": "\ufffd"})
    assert truncate(only(ToolSucceeded, said).content) == "\ufffd"


@pytest.mark.parametrize("words", ["Already processing", "Agent is busy", "A turn is in progress"])
async def test_a_message_that_meets_a_busy_agent(opened: Open, quick: None, words: str) -> None:
    """It is given again until it is taken, once when the agent falls silent."""
    drive = await opened()
    await drive.turn(f"/do agent.busy = [{words!r}] * 2")
    said = await drive.turn("hello")
    assert "hello" in text(said) and only(TurnEnded, said).finish_reason == "stop"


async def test_a_message_that_an_agent_never_takes(
    opened: Open, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ACP_BUSY_MAX_SECONDS", 1.0)
    drive = await opened()
    await drive.turn("/do agent.busy = ['busy'] * 1000")
    ended = only(TurnEnded, await drive.turn("hello"))
    assert ended.finish_reason == "error" and "busy with something of its own" in ended.error


async def test_an_interrupt_while_a_busy_agent_is_waited_for(opened: Open) -> None:
    drive = await opened()
    await drive.turn("/do agent.busy = ['busy'] * 1000; say('now')")
    await drive.driver.prompt("hello")
    await drive.driver.interrupt()
    await drive.until(lambda: len(drive.of(TurnEnded)) == 2)
    assert drive.of(TurnEnded)[1].finish_reason == "stop"


async def test_an_agent_that_resumes_but_does_not_load(opened: Open) -> None:
    """It is resumed by `session/resume`; what it says then is no history."""
    drive = await opened(mode="resumes", resume_id="scripted-1")
    said = await drive.turn("hello")
    assert "hello" in text(said) and not drive.driver.history


async def test_a_directory_that_vanished(root: Path) -> None:
    drive = scripted(root.parent, "plain", REJECTED)
    root.rmdir()
    with pytest.raises(OSError, match=f"The directory {root} is not there any more"):
        await drive.start(root)
    await drive.close()
