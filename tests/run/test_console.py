"""Make of messages and commands of ``watch`` what a terminal may be shown (D43)."""

import json
import unicodedata
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge_project.docs import asyncapi
from bridge_project.protocol.types import HOOK_EVENTS
from bridge_project.terminal import render
from bridge_project.terminal.client import Client
from bridge_project.terminal.commands import Commands, carry_out
from bridge_project.terminal.console import Console
from tests.hooks.conftest import JSON_VALUES

Message = dict[str, Any]

ASKED = {"session_id": "s1", "tool": "Bash", "params": {"command": "ls"}, "risk_level": "high"}


class Scripted:
    """A connection that gives this answer, and remembers what it was sent."""

    def __init__(self, answer: Message) -> None:
        self.answer = answer
        self.sent: list[tuple[str, Message]] = []

    async def request(self, type_: str, payload: Message) -> Message:
        self.sent.append((type_, payload))
        return {"type": "answer", "payload": self.answer}


def commands(lines: list[str], answer: Message, *messages: Message) -> tuple[Commands, Scripted]:
    """Those of somebody who was told of two sessions and of these messages."""
    console, scripted = Console(), Scripted(answer)
    listed = [{"session_id": "s1", "title": "One"}, {"session_id": "s2", "title": "Two"}]
    greeting = {"type": "connection_ack", "payload": {"active_sessions": listed}}
    for message in (greeting, *messages):
        console.learn(message)
    console.current = "s1"
    console.client = cast(Client, scripted)
    return Commands(console, lines.append), scripted


def asked(number: int, **more: Any) -> Message:
    return {"type": "approval_required", "payload": ASKED | {"tool_call_id": f"c{number}"} | more}


COLOURS = {"question": "Which?", "options": [{"label": "Red"}, {"label": "Blue"}]}
SIZES = {"question": "Sizes?", "options": [{"label": "S"}, {"label": "M"}], "multiSelect": True}


def question(*questions: Message) -> Message:
    return asked(2, tool="AskUserQuestion", params={"questions": list(questions)})


@pytest.mark.parametrize(
    ("questions", "line", "answers"),
    [
        ([COLOURS], "answer #2 1", {"Which?": "Red"}),
        ([COLOURS], "answer #2 none of these", {"Which?": "none of these"}),
        ([SIZES], "answer #2 1, 2", {"Sizes?": "S, M"}),
        ([COLOURS, SIZES], 'answer #2 "my own" 2,1', {"Which?": "my own", "Sizes?": "M, S"}),
    ],
)
async def test_a_question_is_answered(
    questions: list[Message], line: str, answers: dict[str, str]
) -> None:
    """By a modification that carries the answers; an approval that waits beside it stays."""
    lines: list[str] = []
    recorded = {"decision": "modified", "forwarded": True}
    one, scripted = commands(lines, recorded, asked(1), question(*questions))
    await carry_out(one, line)
    [(type_, payload)] = scripted.sent
    modifications = {"questions": questions, "answers": answers}
    assert (type_, payload["tool_call_id"]) == ("approval_response", "c2")
    assert (payload["decision"], payload["modifications"]) == ("modified", modifications)
    assert lines == [f"-- AskUserQuestion: {', '.join(answers.values())}"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("answer 1", "2 wait: "),
        ("answer #2 3", "the choices 1 to 2"),
        ("answer #1", "It is no question"),
        ("answer #1 2", "It is no question"),
        ("answer #7 2", "say which number"),
        ("approve 2", "It is a question"),
    ],
)
async def test_a_wrong_answer_sends_nothing(line: str, words: str) -> None:
    lines: list[str] = []
    one, scripted = commands(lines, {}, asked(1), question(COLOURS))
    await carry_out(one, line)
    assert scripted.sent == [] and words in lines[0]


async def test_what_the_bridge_still_has_is_shown_when_asked_for() -> None:
    lines: list[str] = []
    at = {"id": "i", "timestamp": "2026-01-31T12:00:00Z"}
    messages = [at | asked(1), at | {"type": "session_end", "payload": {"reason": "timeout"}}]
    found = {"session_id": "s1", "messages": messages, "complete": False}
    one, _ = commands(lines, found)
    await carry_out(one, "history")
    assert lines[0] == "(older messages are gone)"
    assert lines[1].endswith("Bash ls [high]") and lines[2].endswith("timeout")
    assert one.console.pending == {}, "the past is no news"
    assert list(one.console.sessions) == ["s1", "s2"]


AT = "2026-01-31T12:00:00.000Z"


def line(message: Message, **how: Any) -> str:
    one = Console()
    one.learn(message)
    return one.line(message, **how) or ""


def event(name: str, payload: Message, session: str = "s-1") -> Message:
    body = {"event": name, "session_id": session, "timestamp": AT, "payload": payload}
    return {"type": "agent_event", "id": "i", "timestamp": AT, "payload": body}


@pytest.mark.parametrize("message", asyncapi.messages(), ids=lambda message: message.name)
def test_every_message_is_one_line_or_none(message: asyncapi.Message) -> None:
    assert "\n" not in line(json.loads(message.example))


def test_a_long_command_is_shown_once_and_whole_where_it_is_decided() -> None:
    command = f"make {'x' * 300} && rm -r build"
    long = {"tool": "Bash", "params": {"command": command}, "description": f"Bash: {command}"}
    told = line(
        {"type": "approval_required", "timestamp": AT, "payload": long | {"risk_level": "high"}}
    )
    assert told.endswith(f"Bash {command} [high]") and told.count("make") == 1
    told = line({"type": "tool_call", "timestamp": AT, "payload": long})
    assert told.endswith("x…") and told.count("make") == 1


@given(st.text())
@example("\033[31mred \x9b31m \a\x7f\u202etxt\u2028x\ud800")
def test_what_moves_a_terminal_is_made_harmless(text: str) -> None:
    """Of a session, and of a repository."""
    counts = {"additions": 0, "deletions": 0}
    hunk = {"header": text, "lines": [{"type": "added", "content": text}]}
    file = {"path": text, "old_path": text, "status": "renamed", "hunks": [hunk], **counts}
    directory = {"path": text, "entries": [{"name": text, "type": "file", "size": 1}]}
    told = line(event("UserPromptSubmit", {"prompt": text}, session=f"s{text}"))
    for shown in [told, *render.diff({"files": [file]}), *render.entries(directory)]:
        assert not [c for c in shown if unicodedata.category(c)[0] == "C" and c != "\t"]
    told = line(event("UserPromptSubmit", {"prompt": "a \033[31m z"}), colour=True)
    assert "\033[36m" in told and "\033[31m" not in told, "colours are ours alone"


FIELDS = ("tool", "params", "result", "success", "prompt", "message", "execution_time_ms")


@given(
    name=st.sampled_from([*HOOK_EVENTS, "Other"]),
    payload=st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES),
)
def test_no_shape_of_an_event_breaks_it(name: str, payload: dict[str, Any]) -> None:
    told = line(event(name, payload)).replace("\n", "")  # what an agent says has lines
    assert not [c for c in told if unicodedata.category(c)[0] == "C"]
    assert "(None)" not in told
