"""What ACP agents do with the protocol: pieces of calls, echoes, noise, histories."""

import asyncio
import json
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from sessions_app.agents.driver import HistoryMessage
from sessions_app.agents.events import (
    ApprovalAsked,
    Chunk,
    ToolFailed,
    ToolStarted,
    ToolStopped,
    ToolSucceeded,
)
from tests.agents.conftest import Open
from tests.agents.drive import APPROVED, kinds, only, text
from tests.servers import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")
# the agent of most tests here: one that greets whoever starts it before it speaks the protocol
BANNER = "banner"
CAPTURED = Path(__file__).parents[2] / "fixtures" / "acp"


async def test_noise_nonsense_and_what_has_no_end(opened: Open) -> None:
    """Empty chunks, echoes and thoughts are not said; a call without a result is closed."""
    drive = await opened(mode=BANNER)
    said = await drive.turn(NOISE)
    assert [event for event in said if isinstance(event, Chunk)] == [Chunk("said \ufffd")]
    assert text(await drive.turn(NONSENSE)) == "sense"
    said = await drive.turn(
        "/do update('tool_call', toolCallId='c1', title='Look', kind='search', status='pending')"
    )
    assert kinds(said) == ["ToolStarted", "ToolStopped", "TurnEnded"]
    assert only(ToolStopped, said).reason == "The agent reported no result of this call."


async def test_the_pieces_of_a_call_are_put_together(opened: Open) -> None:
    """One start and one result, with the parameters that came later, the thoughts and the diff."""
    said = await (await opened(mode=BANNER)).turn(ANNOUNCED)
    assert kinds(said) == ["ToolStarted", "ToolSucceeded", "TurnEnded"]
    call, done = only(ToolStarted, said).call, only(ToolSucceeded, said)
    assert (call.id, call.tool, call.params) == ("c1", "Edit", {"file_path": "a.txt"})
    assert (call.reasoning, call.description) == ("I must edit.", "Edit: a.txt")
    assert (done.content, done.diff) == ("edited", "@@ -1 +1,2 @@\n one\n+two\n")


NOISE = """/do say('')
say('echo', 'user_message_chunk')
say('thinking ', 'agent_thought_chunk')
say('said \\0')"""
ANNOUNCED = """/do say('I must ', 'agent_thought_chunk'); say('edit.', 'agent_thought_chunk')
update('tool_call', toolCallId='c1', title='Editing', kind='edit', status='pending')
update('tool_call_update', toolCallId='c1', rawInput={'file_path': 'a.txt'})
update('tool_call_update', toolCallId='c1', status='in_progress')
diff = {'type': 'diff', 'path': 'a.txt', 'oldText': 'one\\n', 'newText': 'one\\ntwo\\n'}
text = {'type': 'content', 'content': {'type': 'text', 'text': 'edited'}}
for content in ([diff, text], [text]):
    update('tool_call_update', toolCallId='c1', status='completed', content=content)"""
NONSENSE = """/do for line in (
    'no json', '[]', '"x"', '{}', '[' * 20_000,
    '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"new"}}}',
    '{"jsonrpc":"2.0","id":1,"method":"fs/everything","params":{}}',
):
    print(line, flush=True)
say('sense')"""
SAID = """/do for said in json.load(open({!r})):
    if 'sessionUpdate' in said:
        update(said.pop('sessionUpdate'), **said)
    else:
        allowed(ask(said.pop('toolCallId'), **said))"""
HOME = "/home/dev/project"
THERE = {"cwd": HOME}


@pytest.mark.parametrize(
    ("name", "shown", "params", "end"),
    [
        ("opencode-command", "Bash: exit 3", {"command": "exit 3"} | THERE, "ToolFailed"),
        ("opencode-write", f"Edit: {HOME}/new.txt", None, "ToolSucceeded"),
    ],
)
async def test_what_real_agents_say_of_a_call(
    opened: Open, root: Path, name: str, shown: str, params: dict[str, str] | None, end: str
) -> None:
    """As opencode 1.18.33 said it: in a person's terms."""
    drive = await opened(APPROVED, mode=BANNER)
    told = root.parent / "told"
    told.write_text((CAPTURED / f"{name}.json").read_text().replace(HOME, str(root)))
    said = await drive.turn(SAID.format(str(told)))
    calls = [one.call for one in said if isinstance(one, ToolStarted | ApprovalAsked)]
    assert all(call.params.keys() - {"cwd"} for call in calls)
    assert calls[-1].description.replace(str(root), HOME).startswith(shown)
    assert kinds(said)[-2] == end
    told_of = json.loads(json.dumps(calls[-1].params).replace(str(root), HOME))
    assert params is None or told_of == params
    if isinstance(failed := said[-2], ToolFailed):
        assert failed.failure.details.exit_code and "{" not in failed.failure.message


LATE_HISTORY = [
    HistoryMessage("What was asked?", by_agent=False),
    HistoryMessage("I look.", by_agent=True),
    HistoryMessage("This is what was said.", by_agent=True),
]


@pytest.mark.parametrize("waits", [True, False])
async def test_history_that_comes_late(
    opened: Open, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """As gemini's: it is not said, but kept for who asks what was said before (D60), joined."""
    monkeypatch.setattr(limits, "ACP_QUIET_SECONDS", 2 if waits else 0.01)
    drive = await opened(mode="late", resume_id="scripted-1")
    if not waits:
        await asyncio.to_thread(wait_until, lambda: drive.driver.history == LATE_HISTORY)
    said = await drive.turn("hello")
    assert "what" not in text(said) and "hello" in text(said)
    assert drive.driver.history == LATE_HISTORY
