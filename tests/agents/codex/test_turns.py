"""Turns of codex, as a stand-in for its app-server has them, and odd ones (D40, D71, D72)."""

from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.picture_files import Picture
from bridge_project.protocol.resources import Usage
from sessions_app.agents.codex import sessions
from sessions_app.agents.codex.driver import CodexDriver
from sessions_app.agents.driver import HistoryMessage, NotOffered, Verdict
from sessions_app.agents.events import (
    AgentDied,
    AnswerEnded,
    ApprovalAsked,
    ApprovalWithdrawn,
    ModelRetried,
    PromptMoved,
    TitleChanged,
    ToolStopped,
    ToolSucceeded,
    TurnEnded,
    UsageChanged,
)
from tests.agents.codex.conftest import Open, heard
from tests.agents.drive import APPROVED, kinds, only, read_late, text

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAID = [
    {"type": "agentMessage", "id": "m", "text": "It is done."},
    {"type": "commandExecution", "id": "c"},
    {"type": "userMessage", "id": "u", "content": [{"type": "text", "text": "Do it."}]},
]


async def test_what_was_said_before(opened: Open, journal: Any) -> None:
    """Pages of it, the newest first, until there are none, or the same again."""
    page = {"data": [{"turnId": "t", "item": one} for one in SAID], "nextCursor": "more"}
    named = {"thread": {"id": "0199a213", "name": "A name"}}
    drive = await opened(
        resume_id="0199a213", **{"thread/items/list": page, "thread/resume": named}
    )
    last = [HistoryMessage("Do it.", by_agent=False), HistoryMessage("It is done.", by_agent=True)]
    assert drive.driver.history == last * 2
    assert [one.get("cursor") for one in heard(journal, "thread/items/list")] == [None, "more"]
    assert (await drive.said_one(TitleChanged)).title == "A name"


async def test_a_history_that_cannot_be_read_is_empty(opened: Open) -> None:
    drive = await opened(resume_id="0199a213", **{"thread/items/list": {"error": "not supported"}})
    assert drive.driver.history == () and text(await drive.turn("say('hello')")) == "hello"


async def test_answers_with_nothing_between_them_are_two(opened: Open) -> None:
    """One that did not come in pieces comes whole; what is said again is said once."""
    code = """say('One ', 'two.')
say('Three.')
over(command('ls'), exitCode=0)
note('item/completed', item={'type': 'agentMessage', 'id': 'm', 'text': 'Four.'})"""
    assert text(await (await opened()).turn(code)) == "One two.\n\nThree.Four."


@pytest.mark.parametrize(
    ("ends", "reason", "error"),
    [
        ({"status": "failed", "error": {"message": '{"error": {"message": "No"}}'}}, "error", "No"),
        ({"status": "failed"}, "error", "codex could not end its turn."),
        (
            {"status": "failed", "error": {"message": "No", "codexErrorInfo": "unauthorized"}},
            "error",
            "codex wants a login (No). Run `codex login`",
        ),
        ({"status": "interrupted"}, "stop", ""),
    ],
)
async def test_how_a_turn_ends(opened: Open, ends: Any, reason: str, error: str) -> None:
    drive = await opened()
    ended = only(TurnEnded, await drive.turn(f"ends.update({ends})"))
    assert ended.finish_reason == reason and ended.error.startswith(error)
    assert ended.interrupted is (ends["status"] == "interrupted")
    assert text(await drive.turn("say('and on')")) == "and on"


async def test_usage_limits_and_retries(opened: Open) -> None:
    code = """last = {'totalTokens': 30, 'inputTokens': 20, 'outputTokens': 10}
note('thread/tokenUsage/updated', tokenUsage={'total': last, 'last': last,
    'modelContextWindow': 1000})
window = lambda percent, minutes: {'usedPercent': percent, 'windowDurationMins': minutes,
    'resetsAt': 1800000000}
server.note('account/rateLimits/updated', rateLimits={'limitId': 'codex', 'limitName': None,
    'primary': window(85, 300), 'secondary': window(100, 10080)})
for number in range(3):
    note('error', error={'message': 'Reconnecting'}, willRetry=True)"""
    said = await (await opened()).turn(code)
    used, limited = (one.usage for one in said if isinstance(one, UsageChanged))
    assert used == Usage(context_tokens=30, context_window=1000)
    assert [(one.name, one.status, one.used) for one in limited.limits or ()] == [
        ("codex 5 hours", "near", 0.85),
        ("codex 7 days", "reached", 1.0),
    ]
    assert only(ModelRetried, said).why == "Reconnecting"
    assert only(TurnEnded, said).usage == {
        "input_tokens": 20,
        "output_tokens": 10,
        "total_tokens": 30,
    }


async def test_its_plan(opened: Open) -> None:
    code = """plan = [{'step': 'Look', 'status': 'completed'},
        {'step': 'Act', 'status': 'inProgress'}]
for _ in range(2):
    note('turn/plan/updated', turnId=id, explanation=None, plan=plan)"""
    said = await (await opened()).turn(code)
    call = only(ToolSucceeded, said).call
    assert call.tool == "TodoWrite" and call.params["todos"] == [
        {"content": "Look", "status": "completed"},
        {"content": "Act", "status": "in_progress"},
    ]


async def test_its_thoughts_are_the_reasoning_of_its_next_call(opened: Open) -> None:
    code = """note('item/reasoning/summaryTextDelta', itemId='r', delta='It may be there.')
item = command('ls')
may(item, reason='To see')
over(item, exitCode=0)"""
    asked = only(ApprovalAsked, await (await opened(APPROVED)).turn(code)).call
    assert asked.reasoning == "It may be there.. To see"


async def test_what_is_chosen_goes_with_the_next_turn(opened: Open, journal: Any) -> None:
    drive = await opened(**{"thread/start": {"reasoningEffort": "high"}})
    values = {one.id: one.value for one in drive.driver.offers.options}
    assert values == {"model": "small", "effort": "high"}
    await drive.driver.choose("model", "large")
    await drive.turn("say('hello')")
    await drive.driver.choose("effort", "high")
    await drive.turn("say('hello')")
    await drive.turn("say('hello')")
    with pytest.raises(NotOffered):
        await drive.driver.choose("model", "huge")
    given = [(one.get("model"), one.get("effort")) for one in heard(journal, "turn/start")]
    assert given == [("large", "low"), (None, "high"), (None, None)]


async def test_a_picture(opened: Open, journal: Any) -> None:
    drive = await opened()
    await drive.driver.prompt("say('seen')", [Picture("image/png", b"png")])
    await drive.said_one(TurnEnded)
    [turn] = heard(journal, "turn/start")
    assert turn["input"][0] == {"type": "image", "url": "data:image/png;base64,cG5n"}


# -- messages into a turn -------------------------------------------------------------------------


async def test_a_message_into_a_turn(opened: Open, journal: Any) -> None:
    drive = await opened()
    await drive.driver.prompt("wait()")
    await drive.driver.steer("and also", "m-1")
    await drive.until(lambda: drive.of(PromptMoved)[-1] == PromptMoved("given", "m-1"))
    [told] = heard(journal, "turn/steer")
    assert (told["expectedTurnId"], told["input"][0]["text"]) == ("turn-1", "and also")
    await drive.driver.interrupt()
    await drive.said_one(TurnEnded)


async def test_a_message_that_its_turn_did_not_take_follows_it(opened: Open, journal: Any) -> None:
    """It is another answer to the same prompt."""
    drive = await opened(**{"turn/steer": {"error": "no active turn to steer"}})
    await drive.driver.prompt("wait_for('steered')\nsay('first')")
    await drive.driver.steer("say('second')", "m-1")
    (drive.directory / "steered").touch()
    await drive.said_one(TurnEnded)
    assert text(drive.said) == "firstsecond" and len(drive.of(AnswerEnded)) == 1


async def test_why_a_call_is_refused_is_told_at_once(opened: Open, journal: Any) -> None:
    drive = await opened(Verdict("rejected", reason="Not on a Sunday."))
    code = "item = command('touch a')\nsay(may(item))\nover(item, 'declined')"
    said = await drive.turn(code)
    assert text(said) == "decline" and only(ToolStopped, said).reason == "Not on a Sunday."
    [told] = heard(journal, "turn/steer")
    assert "Not on a Sunday." in told["input"][0]["text"]
    changed = Verdict("modified", {"command": "touch b"})
    await drive.turn(code, changed)
    assert '"command": "touch b"' in heard(journal, "turn/steer")[1]["input"][0]["text"]


# -- what nobody expects --------------------------------------------------------------------------


async def test_it_dies_in_a_turn(opened: Open) -> None:
    """With a question that waits, and a last word."""
    drive = await opened()
    await drive.driver.prompt(
        "item = command('touch a')\n"
        "ask_begun('item/commandExecution/requestApproval', itemId=item['id'], command='touch a')\n"
        "wait_for('asked')\nsys.stderr.write('Out of memory')\nsys.stderr.flush()\nos._exit(3)"
    )
    await drive.said_one(ApprovalAsked)
    (drive.directory / "asked").touch()
    died = await drive.said_one(AgentDied)
    assert "code 3" in died.reason and "Out of memory" in died.reason
    assert len(drive.of(ApprovalWithdrawn)) == 1
    await drive.driver.interrupt()  # which has nobody to tell


@pytest.mark.parametrize("limit", ["AGENT_CHARS_WAITING", "AGENT_EVENTS_WAITING"])
async def test_a_flood_waits(
    root: Path, install: Any, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Nothing is read from it that the log has no room for; all comes, in order."""
    monkeypatch.setattr(limits, limit, 10)
    install()
    prompt = "say(*(f'{n} ' + 'x' * 6000 for n in range(300)))\nopen('said', 'w')"
    said = await read_late(CodexDriver(), root, prompt)
    assert said.replace("x", " ").split() == [*map(str, range(300))]
    assert (root / "said").exists()


ODD = """for params in (None, [], 'x', {'item': 'x'}, {'turn': []},
               {'item': {'type': 'fileChange', 'changes': 'x'}},
               {'item': {'type': ['x']}}, {'plan': [1]}, {'tokenUsage': {'last': 1}},
               {'threadSettings': 7}, {'requestId': 'x'}, {'rateLimits': {'primary': [1]}},
               {'item': {'type': 'agentMessage', 'id': 1, 'text': 2}}, {'error': 1}):
    for method in ('turn/started', 'turn/completed', 'item/started', 'item/completed', 'error',
                   'item/agentMessage/delta', 'item/fileChange/patchUpdated', 'turn/plan/updated',
                   'thread/tokenUsage/updated', 'account/rateLimits/updated', 'new/thing',
                   'serverRequest/resolved', 'item/commandExecution/terminalInteraction'):
        server.send(method=method, params=params)
        if isinstance(params, dict):
            server.note(method, **{'threadId': 'another', **params})
server.send(id=99, result=1)
server.send(id=99, error='no')
server.send(id={}, method='x')
server.send(id='a', method=7)
print('no JSON', flush=True)
say('still here')"""


async def test_what_is_not_of_the_protocol_ends_nothing(opened: Open) -> None:
    drive = await opened(APPROVED)
    assert text(await drive.turn(ODD)) == "still here"
    assert kinds(await drive.turn("say('and on')")) == ["TurnEnded"]


@pytest.mark.parametrize("answer", ["'error': 'no'", "'error': ['no']", "'result': 7"])
async def test_an_odd_answer_ends_the_turn(opened: Open, answer: str) -> None:
    """Or it is as if it had said nothing but yes."""
    drive = await opened(APPROVED)
    code = f"server.start_turn = lambda id_, params: server.send(id=id_, **{{{answer}}})"
    await drive.turn(code)
    await drive.driver.prompt("this is not run")
    if "error" in answer:
        await drive.until(lambda: len(drive.of(TurnEnded)) == 2)
        assert "no" in drive.of(TurnEnded)[-1].error
    else:
        await drive.until(lambda: len(drive.of(PromptMoved)) == 2)


async def test_a_turn_of_its_own(opened: Open) -> None:
    """One that no prompt began, as for a goal that goes on."""
    drive = await opened()
    code = """def later():
    wait_for('go')
    turn = Turn(server, 'its-own')
    turn.begin()
    turn.say('I go on')
    turn.end()
threading.Thread(target=later).start()"""
    await drive.turn(code)
    (drive.directory / "go").touch()
    await drive.until(lambda: len(drive.of(TurnEnded)) == 2)
    assert drive.of(TurnEnded)[-1].own and text(drive.said) == "I go on"
    assert kinds(await drive.turn("say('and on')")) == ["TurnEnded"]


async def test_a_command_that_runs_on(opened: Open) -> None:
    """Its call ends with the turn; what becomes of it later is not told again."""
    drive = await opened()
    code = """item = command('sleep 9', 'same')
def later():
    wait_for('go')
    over(item, exitCode=0)
    note('thread/name/updated', threadName='Over')
threading.Thread(target=later).start()"""
    said = await drive.turn(code)
    assert "no result by the end" in only(ToolStopped, said).reason
    (drive.directory / "go").touch()
    await drive.said_one(TitleChanged)
    assert kinds(drive.said) == kinds(said)
    ids = [only(ToolSucceeded, await drive.turn(SAME)).call.id for _ in range(2)]
    assert len({"same", *ids}) == 3, "a model that chooses an id again means another call"


SAME = "over(command('ls', 'same'), exitCode=0)"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"exits": "I am too old"}, "I am too old"),
        ({"thread/list": {"error": "its store is broken"}}, "codex: its store is broken."),
        ({"initialize": {"userAgent": ""}}, "does not answer as codex's app-server"),
    ],
)
async def test_what_it_cannot_list(install: Any, spec: dict[str, Any], words: str) -> None:
    install(**spec)
    with pytest.raises(BridgeError, match=words):
        await sessions.listed()


async def test_what_it_lists(install: Any) -> None:
    """Also where its pages never end."""
    install(**{"thread/list": {"nextCursor": "again"}})
    [found] = await sessions.listed()
    assert (found.own_id, found.active_at) == ("0199a213-81c0-7800-8aa1-bbab2a035a53", 2.0)
