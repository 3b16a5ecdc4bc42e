"""A person sees all that an ACP agent asks for, whatever it says and does (D38, D40, D76)."""

from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import limits
from sessions_app.agents.events import ApprovalAsked, Chunk, ToolStopped, TurnEnded
from sessions_app.approvals.tool_result import INTERRUPTED
from tests.agents.conftest import Open, scripted
from tests.agents.drive import APPROVED, REJECTED, kinds, only, read_late

pytestmark = pytest.mark.asyncio(loop_scope="module")


CHANGE = {"type": "diff", "path": "b", "newText": "text"}


@pytest.mark.parametrize("named", [{"locations": [{"path": "b"}]}, {"content": [CHANGE]}])
async def test_every_file_of_an_edit_is_shown(opened: Open, named: dict[str, Any]) -> None:
    """Also one that the agent names beside the parameters; then the approval is about it."""
    drive = await opened(REJECTED)
    call = {"title": "Edit a", "kind": "edit", "rawInput": {"file_path": "a"}} | named
    said = await drive.turn(f"/do allowed(ask('c', **{call}))")
    asked = only(ApprovalAsked, said)
    assert asked.call.params["file_path"] == "a" and "'b'" in str(asked.call.params)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"content": "new\n"},
        {"old_string": "b", "new_string": "c"},
        {"new_string": "x"},
        {"edits": [{"old_string": "a", "new_string": "b"}]},
        {"diff": "@@ -1 +1 @@\n-a\n+b"},
    ],
)
async def test_a_change_that_its_parameters_do_not_say_is_shown(
    opened: Open, root: Path, given: dict[str, str]
) -> None:
    (root / "a").write_text("a\nb\n")
    drive = await opened(APPROVED)
    evil = CHANGE | {"path": "a", "oldText": "a\nb\n", "newText": "evil"}
    call = {"kind": "edit", "rawInput": {"file_path": "a"} | given, "content": [evil]}
    said = await drive.turn(f"/do allowed(ask('c', **{call}))")
    assert "evil" in str(only(ApprovalAsked, said).call.params)


async def test_what_an_interrupt_ends_is_no_failure(opened: Open) -> None:
    """Nobody is told of a call that was not shown, nor of one of a turn that is over."""
    drive = await opened()
    given = "title='Run', kind='execute', rawInput={'command': 'true'}"
    failed = "[update('tool_call_update', toolCallId=one, status='failed') for one in 'ab']"
    await drive.driver.prompt(
        f"/do update('tool_call', toolCallId='a', {given}); say('x'); agent.cancelled.wait()\n"
        f"answer(ask('b', {given})); {failed}"
    )
    await drive.said_one(Chunk)
    await drive.driver.interrupt()
    await drive.said_one(TurnEnded)
    assert kinds(drive.said) == ["ToolStarted", "ToolStopped", "TurnEnded"]
    assert only(ToolStopped, drive.said).reason == INTERRUPTED
    assert kinds(await drive.turn(f"/do {failed.replace('ab', 'a')}")) == ["TurnEnded"]


@pytest.mark.parametrize("kind", ["think", "other", "edit"])
async def test_a_command_under_another_name(opened: Open, kind: str) -> None:
    """It is shown and rated as what it is."""
    command = "sudo touch made"
    drive = await opened(REJECTED)
    call = {"title": "Think of spring", "kind": kind, "rawInput": {"command": command}}
    asked = only(ApprovalAsked, await drive.turn(f"/do allowed(ask('c', **{call}))")).call
    assert asked.risk_level == "critical" and asked.params["command"] == command
    assert kind != "think" or asked.description == f"Bash: {command}\nThink of spring"


@pytest.mark.parametrize(("kind", "given"), [("other", {"query": "a"}), ("edit", '{"path": "a"}')])
async def test_a_call_that_shows_a_change_is_an_edit(opened: Open, kind: str, given: Any) -> None:
    drive = await opened(REJECTED)
    call = {"title": "A tool", "kind": kind, "rawInput": given, "content": [CHANGE]}
    said = await drive.turn(f"/do allowed(ask('c', **{call}))")
    asked = only(ApprovalAsked, said).call
    assert (asked.tool, asked.params["more"][0]["content"]) == ("Edit", "text")


@pytest.mark.parametrize(
    "answer", ["'error': 'no'", "'error': ['no']", "'result': 'no'", "'result': None"]
)
async def test_an_odd_answer_ends_the_turn(opened: Open, answer: str) -> None:
    """D40: what the library cannot read would leave the turn running for ever."""
    drive = await opened()
    said = await drive.turn(
        f"/do print(json.dumps({{'id': agent.number, {answer}}}), flush=True); time.sleep(1000)"
    )
    assert [event.finish_reason for event in said if isinstance(event, TurnEnded)] == ["error"]
    said = await drive.turn("/do send(id=[1], method='x'); send(id=1, method=['x'])")
    assert [event.finish_reason for event in said if isinstance(event, TurnEnded)] == ["stop"]


@pytest.mark.parametrize("limit", ["AGENT_CHARS_WAITING", "AGENT_EVENTS_WAITING"])
async def test_what_nobody_reads_is_not_read_from_the_agent(
    root: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Issue, limits: it waits, with many pieces or few large ones; all comes, in order."""
    monkeypatch.setattr(limits, limit, 10)
    prompt = "/do for n in range(2000): say(f'{n} ' + 'x' * 6000)\nopen('said', 'w')"
    said = await read_late(scripted(root.parent, "plain").driver, root, prompt)
    assert said.replace("x", "").split() == [*map(str, range(2000))]
