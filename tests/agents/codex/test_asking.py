"""Codex asks about everything, or it does not start (D59, D75)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents import started
from sessions_app.agents.driver import (
    NOT_ASKED,
    CannotResume,
    CannotStart,
    OpenElsewhere,
    Verdict,
    WillNotAsk,
)
from sessions_app.agents.driver import (
    REJECTED as WORDS,
)
from sessions_app.agents.events import (
    ApprovalAsked,
    ApprovalWithdrawn,
    RanAnyway,
    RanOther,
    StoppedAsking,
    TitleChanged,
    ToolFailed,
    ToolStarted,
    ToolStopped,
    ToolSucceeded,
    TurnEnded,
)
from tests.agents.codex.conftest import Open, heard
from tests.agents.drive import APPROVED, REJECTED, kinds, only, text
from tests.servers import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

OTHERS: list[dict[str, Any]] = [
    {"approvalPolicy": "on-request"},
    {"approvalPolicy": "never"},
    {"approvalPolicy": {"granular": {"sandbox_approval": True}}},
    {"approvalPolicy": None},
    {"approvalsReviewer": "auto_review"},
    {"sandbox": {"type": "workspaceWrite", "writableRoots": [], "networkAccess": False}},
    {"sandbox": {"type": "readOnly", "networkAccess": True}},
    {"sandbox": None},
]


@pytest.mark.parametrize("method", ["thread/start", "thread/resume"])
@pytest.mark.parametrize("other", OTHERS, ids=map(str, OTHERS))
async def test_another_policy_does_not_start(
    opened: Open, method: str, other: dict[str, Any]
) -> None:
    resume_id = "0199a213-81c0-7800-8aa1-bbab2a035a53" if method == "thread/resume" else None
    with pytest.raises(WillNotAsk, match="would not ask about everything"):
        await opened(resume_id=resume_id, **{method: other})
    assert started.last["codex"].asks is False


async def test_each_thread_and_turn_is_told_to_ask(opened: Open, journal: Path) -> None:
    drive = await opened()
    await drive.turn("say('hello')")
    [begun], [turn] = heard(journal, "thread/start"), heard(journal, "turn/start")
    assert (begun["approvalPolicy"], begun["sandbox"]) == ("untrusted", "read-only")
    assert turn["approvalPolicy"] == "untrusted" and turn["sandboxPolicy"]["type"] == "readOnly"
    assert begun["approvalsReviewer"] == turn["approvalsReviewer"] == "user"
    assert begun["config"] == {"web_search": "disabled"}


SETTINGS = "ASKS | {'approvalPolicy': 'never', 'sandboxPolicy': ASKS['sandbox']}"
LEAVES = [
    f"note('thread/settings/updated', threadSettings={SETTINGS})",
    "note('item/autoApprovalReview/started', reviewId='r')",
]


@pytest.mark.parametrize("leaves", LEAVES, ids=["settings", "reviewer"])
async def test_one_that_asks_no_more_is_interrupted(
    opened: Open, journal: Path, leaves: str
) -> None:
    said = await (await opened()).turn(f"{leaves}\nwait()\nsay('not reached')")
    assert only(StoppedAsking, said).interrupted and text(said) == ""
    assert len(heard(journal, "turn/interrupt")) == 1


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"initialize": {"userAgent": "x"}}, "does not answer as its app-server"),
        ({"initialize": {"error": "no such method"}}, "no such method"),
        ({"thread/start": {"error": "unknown variant `untrusted`"}}, "unknown variant"),
        ({"thread/start": {"thread": {}}}, "does not answer as its app-server"),
        ({"exits": "I need a newer machine"}, "I need a newer machine"),
        ({"babbles": True}, "not that of codex's app-server"),
        ({"account/read": {"requiresOpenaiAuth": True}}, "Run `codex login` in a terminal"),
    ],
)
async def test_what_cannot_start_says_why(opened: Open, spec: dict[str, Any], words: str) -> None:
    """Another version, another program, or one that nobody has logged in."""
    with pytest.raises(CannotStart, match=words):
        await opened(**spec)


async def test_a_session_that_another_program_has_open(opened: Open) -> None:
    with pytest.raises(OpenElsewhere, match="daemon stop"):
        busy = {"error": "thread x already has an active writer"}
        await opened(resume_id="x" * 8, **{"thread/resume": busy})
    with pytest.raises(CannotResume, match="no rollout"):
        await opened(resume_id="x" * 8, **{"thread/resume": {"error": "no rollout found"}})


# -- approvals ------------------------------------------------------------------------------------


async def test_commands_at_once_are_decided_apart(opened: Open) -> None:
    """The answers come in another order than the questions."""
    drive = await opened()
    await drive.driver.prompt(
        """one, two = command('touch one'), command('touch two')
about = lambda item: {name: item[name] for name in ('command', 'cwd')} | {
    'itemId': item['id'], 'kind': 'command', 'startedAtMs': 1}
numbers = [ask_begun('item/commandExecution/requestApproval', **about(one)) for one in (one, two)]
say(' '.join(answer_to(number)['result']['decision'] for number in numbers))"""
    )
    await drive.until(lambda: len(drive.of(ApprovalAsked)) == 2)
    first, second = (one.call for one in drive.of(ApprovalAsked))
    assert (first.params["command"], second.params["command"]) == ("touch one", "touch two")
    drive.driver.approvals.decide(second.id, REJECTED)
    drive.driver.approvals.decide(first.id, APPROVED)
    await drive.said_one(TurnEnded)
    assert text(drive.said) == "accept decline"


ASKS_ONE = "item = command('touch a')\nmay(item, reason='May I?')\n"


@pytest.mark.parametrize(
    ("verdict", "code", "end"),
    [
        (APPROVED, "over(item, exitCode=0)", ToolSucceeded),
        (APPROVED, "over(item, 'failed', exitCode=3, aggregatedOutput='no')", ToolFailed),
        (REJECTED, "over(item, 'declined')", ToolStopped),
        (APPROVED, "", ToolStopped),
    ],
)
async def test_a_call_has_one_end(opened: Open, verdict: Verdict, code: str, end: Any) -> None:
    said = await (await opened(verdict)).turn(ASKS_ONE + code)
    assert kinds(said) == ["ToolStarted", "ApprovalAsked", end.__name__, "TurnEnded"]
    asked = only(ApprovalAsked, said).call
    assert (asked.tool, asked.reasoning, asked.risk_level) == ("Bash", "May I?", "medium")


async def test_what_was_not_shown_or_was_refused_is_told(opened: Open) -> None:
    other = """over(item, command="/bin/bash -lc 'rm b'", exitCode=0)"""
    drive = await opened(APPROVED)
    assert "rm b" in only(RanOther, await drive.turn(ASKS_ONE + other)).ran
    said = await drive.turn(ASKS_ONE + "over(item, exitCode=0)", REJECTED)
    assert only(RanAnyway, said).call.id == only(ToolStopped, said).call.id


async def test_a_question_that_codex_takes_back(opened: Open) -> None:
    drive = await opened()
    await drive.driver.prompt(
        """item = command('touch a')
about = {'itemId': item['id'], 'kind': 'command', 'startedAtMs': 1, 'command': 'touch a'}
number = ask_begun('item/commandExecution/requestApproval', **about)
wait_for('asked')
note_resolved(number)
wait()"""
    )
    asked = await drive.said_one(ApprovalAsked)
    (drive.directory / "asked").touch()
    assert (await drive.said_one(ApprovalWithdrawn)).call_id == asked.call.id
    assert not drive.driver.approvals.decide(asked.call.id, APPROVED)


ADD = "{'path': HERE + '/a', 'kind': {'type': 'add'}, 'diff': 'text\\n'}"


async def test_a_change_shows_its_files(opened: Open, root: Path) -> None:
    code = f"""item = change({ADD},
    {{'path': '/etc/b', 'kind': {{'type': 'update', 'move_path': '/etc/c'}},
      'diff': '@@ -1,2 +1,2 @@\\n one\\n-two\\n+2\\n@@ -9 +9 @@\\n-x\\n+y\\n'
              '\\n\\nMoved to: /etc/c'}},
    {{'path': HERE + '/d', 'kind': {{'type': 'delete'}}, 'diff': 'gone\\n'}})
may(item)
over(item)"""
    said = await (await opened(APPROVED)).turn(code)
    asked, result = only(ApprovalAsked, said).call, only(ToolSucceeded, said)
    edits = [("one\ntwo\n", "one\n2\n"), ("x\n", "y\n")]
    shown = [{"old_string": old, "new_string": new} for old, new in edits]
    assert asked.tool == "Delete" and asked.params == {
        "file_path": f"{root}/a",
        "content": "text\n",
        "more": [
            {"file_path": "/etc/b", "edits": shown, "moved_to": "/etc/c"},
            {"file_path": f"{root}/d", "old_string": "gone\n", "new_string": ""},
        ],
    }
    assert asked.description.endswith("Outside the allowed roots: /etc/b, /etc/c")
    assert result.diff is not None and "+text" in result.diff and "-gone" in result.diff
    assert "Moved" not in result.diff


async def test_a_change_that_is_altered_while_it_waits_is_refused(opened: Open) -> None:
    drive = await opened()
    await drive.driver.prompt(
        f"""item = change({ADD})
number = ask_begun('item/fileChange/requestApproval', itemId=item['id'], startedAtMs=1)
wait_for('asked')
evil = {ADD} | {{'diff': 'evil'}}
note('item/fileChange/patchUpdated', itemId=item['id'], changes=[evil])
note('thread/name/updated', threadName='Altered')
say(answer_to(number)['result']['decision'])"""
    )
    asked = await drive.said_one(ApprovalAsked)
    (drive.directory / "asked").touch()
    await drive.said_one(TitleChanged)
    drive.driver.approvals.decide(asked.call.id, APPROVED)
    await drive.said_one(TurnEnded)
    assert "decline" in text(drive.said)
    assert "changed the call" in only(ToolStopped, drive.said).reason


async def test_a_change_that_nobody_has_seen_is_refused(opened: Open) -> None:
    code = "say(may({'type': 'fileChange', 'id': 'unknown'}))"
    said = await (await opened(APPROVED)).turn(code)
    assert text(said) == "decline" and not [one for one in said if isinstance(one, ApprovalAsked)]


async def test_too_large_a_call_is_refused(opened: Open) -> None:
    code = "item = command('x' * 5_000_000)\nsay(may(item))\nover(item, 'declined')"
    said = await (await opened(APPROVED)).turn(code)
    assert text(said) == "decline" and only(ToolStopped, said).reason == NOT_ASKED


SERVERS_TOOL = """meta = {'codex_approval_kind': 'mcp_tool_call', 'tool_name': 'poke',
    'tool_params': {'what': 'it'}, 'persist': ['session', 'always']}
item = item('mcpToolCall', server='x', tool='poke', arguments={'what': 'it'})
answer = ask('mcpServer/elicitation/request', serverName='x', mode='form', _meta=meta,
    message='Allow?', requestedSchema={'type': 'object', 'properties': {}})
say(json.dumps(answer))
"""


async def test_the_tool_of_a_server_asks(opened: Open) -> None:
    """It is allowed once: nothing is kept for the session, or for good."""
    end = "over(item, result={'content': [{'type': 'text', 'text': 'poked'}]})"
    drive = await opened(APPROVED)
    said = await drive.turn(SERVERS_TOOL + end)
    assert only(ApprovalAsked, said).call.tool == "mcp__x__poke"
    assert only(ToolSucceeded, said).content == "poked"
    assert text(said) == '{"action": "accept", "content": {}, "_meta": null}'
    failed = "over(item, 'failed', error={'message': 'user rejected MCP tool call'})"
    said = await drive.turn(SERVERS_TOOL + failed, REJECTED)
    assert only(ToolStopped, said).reason == WORDS and '"decline"' in text(said)


async def test_what_else_a_server_asks_is_declined(opened: Open) -> None:
    code = """say(ask('mcpServer/elicitation/request', serverName='x', mode='url', _meta=None,
        message='Log in', url='https://evil.example', elicitationId='e')['action'])"""
    said = await (await opened(APPROVED)).turn(code)
    assert text(said) == "decline" and kinds(said) == ["ToolStarted", "ToolStopped", "TurnEnded"]
    assert only(ToolStarted, said).call.params["url"] == "https://evil.example"


async def test_more_rights_are_granted_for_a_turn(opened: Open) -> None:
    code = """say(json.dumps(ask('item/permissions/requestApproval', itemId='i', startedAtMs=1,
        environmentId=None, cwd=HERE, reason='To fetch', permissions={'network': {'enabled': True},
        'fileSystem': None})))"""
    drive = await opened(APPROVED)
    granted = '{"permissions": {"network": {"enabled": true}}, "scope": "turn"}'
    said = await drive.turn(code)
    assert text(said) == granted and only(ApprovalAsked, said).call.risk_level == "high"
    assert text(await drive.turn(code, REJECTED)) == '{"permissions": {}, "scope": "turn"}'


async def test_questions_are_answered_by_their_ids(opened: Open) -> None:
    code = """answers = ask('item/tool/requestUserInput', itemId='q', isBlocking=True,
        autoResolutionMs=None, questions=[
        {'id': 'c', 'header': 'Colour', 'question': 'Which?', 'isOther': False, 'isSecret': False,
         'options': [{'label': 'Red', 'description': 'r'}, {'label': 'Blue', 'description': 'b'}]},
        {'id': 'p', 'header': 'Key', 'question': 'The key?', 'isOther': True, 'isSecret': True,
         'options': None}])
say(json.dumps(answers))"""
    drive = await opened()
    await drive.driver.prompt(code)
    asked = (await drive.said_one(ApprovalAsked)).call
    colour, key = asked.params["questions"]
    assert colour["closed"] and "closed" not in key and "It asks for a secret" in key["question"]
    given = {colour["question"]: "Blue", key["question"]: ["1", "2"]}
    drive.driver.approvals.decide(asked.id, Verdict("modified", {"answers": given}))
    await drive.said_one(TurnEnded)
    assert (
        text(drive.said)
        == '{"answers": {"c": {"answers": ["Blue"]}, "p": {"answers": ["1", "2"]}}}'
    )
    assert text(await drive.turn(code, REJECTED)) == '{"answers": {}}'


@pytest.mark.parametrize("method", ["item/tool/call", "attestation/generate", "sudo/run"])
async def test_what_nobody_answers_is_answered_with_an_error(opened: Open, method: str) -> None:
    said = await (await opened(APPROVED)).turn(f"say(ask({method!r})['error']['message'])")
    assert text(said) == f"The bridge does not answer {method}."


async def test_a_subagent_asks_under_its_own_name(opened: Open) -> None:
    """Its talk is its own, and its turn's end is not that of the session's."""
    code = """sub = child()
sub.begin()
sub.say('a secret')
item = sub.command('touch a')
say(sub.may(item))
sub.over(item, exitCode=0)
sub.end()
say('after')"""
    said = await (await opened(APPROVED)).turn(code)
    call = only(ApprovalAsked, said).call
    assert call.agent.id == "0199a213-81c0-7800-8aa1-bbab2a03ffff"
    assert (
        text(said) == "accept\n\nafter" and len([e for e in said if isinstance(e, TurnEnded)]) == 1
    )


LATE = """sub = child()
sub.begin()
item = sub.command('touch a')
def late():
    try:
        say(sub.may(item))
        sub.over(item, exitCode=0)
        sub.end()
    except Interrupted:
        sub.end(status='interrupted')
threading.Thread(target=late).start()"""


async def test_a_turn_lasts_until_its_subagents_are_done(opened: Open) -> None:
    """Else the question would end with it; a message meanwhile is given at once."""
    drive = await opened()
    await drive.driver.prompt(LATE)
    asked = await drive.said_one(ApprovalAsked)
    journal = drive.directory.parent / "journal"
    await asyncio.to_thread(wait_until, lambda: '"turn/completed"' in journal.read_text())
    await drive.driver.steer("note('thread/name/updated', threadName='Steered')", "m-1")
    await drive.said_one(TitleChanged)
    assert not drive.of(TurnEnded)
    drive.driver.approvals.decide(asked.call.id, APPROVED)
    await drive.said_one(TurnEnded)
    assert drive.of(ToolSucceeded) and text(drive.said) == "accept"
    drive.said.clear()
    await drive.driver.prompt(LATE)
    await drive.said_one(ApprovalAsked)
    await drive.driver.interrupt()
    assert (await drive.said_one(TurnEnded)).finish_reason == "stop"


@pytest.mark.parametrize("asks", [True, False])
async def test_what_is_typed_into_a_command_is_shown_once(opened: Open, asks: bool) -> None:
    code = "item = command('bash')\nmay(item)\n"
    if asks:
        code += """ask('item/commandExecution/requestApproval', kind='writeStdin', approvalId='a',
    itemId=item['id'], startedAtMs=1, command="write_stdin --session-id 1 'rm x'", cwd=HERE)
"""
    code += """for words in ('rm x', ''):
    note('item/commandExecution/terminalInteraction', itemId=item['id'], processId='1', stdin=words)
over(item, exitCode=0)"""
    said = await (await opened(APPROVED)).turn(code)
    asked = [one.call for one in said if isinstance(one, ApprovalAsked)]
    ended = [one.call for one in said if isinstance(one, ToolSucceeded)]
    assert [call.tool for call in asked] == (["Bash", "TerminalInput"] if asks else ["Bash"])
    assert [call.tool for call in ended] == ["TerminalInput", "Bash"]
    assert "rm x" in str(ended[0].params)


@pytest.mark.parametrize("code", [ASKS_ONE, "may(change(" + ADD + "))", SERVERS_TOOL])
async def test_an_interrupt_ends_what_waits(opened: Open, code: str) -> None:
    drive = await opened()
    await drive.driver.prompt(code)
    await drive.said_one(ApprovalAsked)
    await drive.driver.interrupt()
    ended = await drive.said_one(TurnEnded)
    assert ended.finish_reason == "stop" and len(drive.of(ApprovalWithdrawn)) == 1
    assert len(drive.of(ToolStopped)) == 1
    assert text(await drive.turn("say('and on')")) == "and on"
