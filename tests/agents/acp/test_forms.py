"""What an ACP agent asks by a form is asked as a question (``elicitation/create``)."""

import json
from typing import Any

import pytest

from sessions_app.agents.driver import Verdict
from sessions_app.agents.events import (
    ApprovalAsked,
    ToolStarted,
    ToolStopped,
    ToolSucceeded,
)
from tests.agents.conftest import Open
from tests.agents.drive import REJECTED, Drive, kinds, only, text

pytestmark = pytest.mark.asyncio(loop_scope="module")

COLOURS = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green", "description": "calm"}]
# as claude-agent-acp 0.101 asks: each question with a field for other words
ASKS = {
    "question_0": {"type": "string", "title": "Colour", "oneOf": COLOURS},
    "question_0_custom": {"type": "string", "title": "Other"},
    "question_1": {"type": "array", "description": "Which ones?", "items": {"anyOf": COLOURS}},
    "question_1_custom": {"type": "string", "title": "Other"},
}


def answered(**answers: Any) -> Verdict:
    return Verdict("modified", {"answers": answers})


async def form(drive: Drive, fields: dict[str, Any], **more: Any) -> list[Any]:
    """What is said in a turn that asks by a form, and ends with its answer in words."""
    given = {"mode": "form", "message": "Choose.", "requestedSchema": {"properties": fields}}
    given |= more
    return await drive.turn(
        f"/do n = request('elicitation/create', **{given})\n"
        "answer(n); say(json.dumps(agent.waiting[n].get('result') or agent.waiting[n]))"
    )


async def questions_of(drive: Drive, fields: dict[str, Any], **more: Any) -> list[Any]:
    asked = only(ApprovalAsked, await form(drive, fields, **more)).call
    assert asked.tool == "AskUserQuestion"
    drive.said.clear()
    return list(asked.params["questions"])


async def given(drive: Drive, fields: dict[str, Any], *answers: Any, **more: Any) -> Any:
    """With which content the agent is answered when its questions are, in their order."""
    drive.answers = [REJECTED]
    asked = await questions_of(drive, fields, **more)
    texts = [one["question"] for one in asked]
    drive.answers = [Verdict("modified", {"answers": dict(zip(texts, answers, strict=True))})]
    said = text(await form(drive, fields, **more))
    drive.said.clear()
    return json.loads(said)


async def test_a_form_is_a_question(opened: Open) -> None:
    """With its choices, and what they mean; other words go where the agent wants them."""
    drive = await opened(REJECTED)
    first, second = await questions_of(drive, ASKS)
    assert first["question"] == "Choose.\nColour" and second["question"] == "Which ones?"
    assert [one["label"] for one in first["options"]] == ["Red", "Green"]
    assert first["options"][1]["description"] == "calm"
    assert not first["multiSelect"] and second["multiSelect"]
    assert first["optional"] and "closed" not in first
    for answers, content in (
        (("Green", "Red, Green"), {"question_0": "g", "question_1": ["r", "g"]}),
        (("blue", "Green, none"), {"question_0_custom": "blue", "question_1": ["g"],
                                   "question_1_custom": "none"}),
        (("", ["Red"]), {"question_1": ["r"]}),
    ):  # fmt: skip
        assert await given(drive, ASKS, *answers) == {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("field", "answer", "value"),
    [
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "No", False),
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, "seven", None),
        ({"type": "number"}, "0.5", 0.5),
        ({"type": "string"}, "any, words", "any, words"),
        ({"type": "string", "enum": ["a", "a, b"]}, "a, b", "a, b"),
        ({"type": "string", "enum": ["a"]}, "else", None),
        ({"type": "string", "oneOf": [{"const": "1", "title": "x"}, {"const": "2", "title": "x"}]},
         "x (2)", "2"),
        ({"type": "string", "oneOf": [{"const": "1", "title": ""}]}, "1", "1"),
        ({"type": "date-range", "title": "When"}, "today", "today"),
        ({"type": "string", "enum": [1, 2]}, "1", "1"),
        ("nothing known", "x", "x"),
    ],
)  # fmt: skip
async def test_each_kind_of_field(opened: Open, field: Any, answer: str, value: Any) -> None:
    """One that nobody knows is answered in words; what does not fit is not sent."""
    content = {} if value is None else {"f": value}
    drive = await opened()
    assert await given(drive, {"f": field}, answer) == {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"type": "string", "title": "API key"}, "asks for a secret"),
        ({"type": "string", "format": "password"}, "asks for a secret"),
        ({"type": "string", "format": "uri"}, "asks for a web address"),
        ({"type": "colour", "shades": 9}, '"shades": 9'),
        ({"type": "string", "title": "Name"}, ""),
    ],
)
async def test_what_a_person_must_know_of_a_field(opened: Open, field: Any, words: str) -> None:
    [asked] = await questions_of(await opened(REJECTED), {"f": field})
    assert words in asked["question"] and (words or asked["question"] == "Choose.")


async def test_a_form_without_fields(opened: Open) -> None:
    """It is a question to be agreed to, or not."""
    drive = await opened(answered(**{"Choose.": "OK"}))
    said = await form(drive, {}, requestedSchema=None)
    assert '"content": {}' in text(said)
    assert '"accept"' in text(said)
    assert only(ApprovalAsked, said).call.id == only(ToolSucceeded, said).call.id


async def test_a_form_that_is_refused_or_outlives_its_turn(opened: Open) -> None:
    drive = await opened(REJECTED)
    said = await form(drive, ASKS)
    assert '{"action": "decline"}' in text(said)
    assert kinds(said) == ["ApprovalAsked", "ToolStopped", "TurnEnded"]
    drive.answers = []
    said = await drive.turn(
        "/do request('elicitation/create', mode='form', message='x', requestedSchema={})"
    )
    assert kinds(said) == ["ApprovalAsked", "ApprovalWithdrawn", "ToolStopped", "TurnEnded"]
    said = await drive.turn("/do answer(2); say(str(agent.waiting[2]['result']))")
    assert text(said) == "{'action': 'cancel'}"


async def test_a_form_that_an_interrupt_cancels(opened: Open) -> None:
    drive = await opened()
    await drive.driver.prompt(
        "/do n = request('elicitation/create', mode='form', message='x', requestedSchema={})\n"
        "answer(n); open('answered', 'w').write(json.dumps(agent.waiting[n]['result']))"
    )
    await drive.said_one(ApprovalAsked)
    await drive.driver.interrupt()
    await drive.said_one(ToolStopped)
    await drive.until(lambda: kinds(drive.said)[-1] == "TurnEnded")
    assert (drive.directory / "answered").read_text() == '{"action": "cancel"}'


async def test_a_form_about_a_call_is_one_with_it(opened: Open) -> None:
    """As claude-agent-acp asks: the call was announced, and its result comes later."""
    drive = await opened(answered(**{"Choose.": "Red"}))
    field = {"q": {"type": "string", "enum": ["Red"]}}
    said = await drive.turn(
        "/do update('tool_call', toolCallId='c', title='Ask', kind='other', rawInput={'q': 1})\n"
        "form = {'mode': 'form', 'message': 'Choose.', 'toolCallId': 'c',"
        f" 'requestedSchema': {{'properties': {field}}}}}\n"
        "say(str(answer(request('elicitation/create', **form))))\n"
        "update('tool_call_update', toolCallId='c', status='completed')"
    )
    assert kinds(said) == ["ToolStarted", "ApprovalAsked", "ToolSucceeded", "TurnEnded"]
    assert only(ToolStarted, said).call.id == only(ApprovalAsked, said).call.id
    assert "{'q': 'Red'}" in text(said)


async def test_an_address_to_open_is_declined_and_shown(opened: Open) -> None:
    """It was not announced; an agent asks all the same."""
    drive = await opened(Verdict("approved"))
    more = {"mode": "url", "elicitationId": "1", "url": "https://x.example/", "message": "Log in"}
    said = await form(drive, {}, **more)
    assert '{"action": "decline"}' in text(said)
    call = only(ToolStarted, said).call
    assert call.description == "Log in" and call.params == {"url": "https://x.example/"}
    assert "cannot" in only(ToolStopped, said).reason
