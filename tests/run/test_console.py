"""Commands of ``watch``: what is typed becomes the right message, and answers safe lines."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.terminal import render
from bridge_project.terminal.client import Client, Lost
from bridge_project.terminal.commands import carry_out
from bridge_project.terminal.console import Console

Message = dict[str, Any]

ASKED = {
    "session_id": "s1",
    "tool_call_id": "c1",
    "tool": "Bash",
    "params": {"command": "ls"},
    "description": "Bash: ls",
    "risk_level": "high",
}


class Scripted:
    """A connection that answers as it was told to, and remembers what it was sent."""

    def __init__(self, **answers: Message) -> None:
        self.answers = answers
        self.sent: list[tuple[str, Message]] = []

    async def request(self, type_: str, payload: Message) -> Message:
        await self.send(type_, payload)
        if type_ not in self.answers:
            raise Lost("the connection broke (1006)")
        answer = self.answers[type_]
        return {"type": answer.pop("type", "answer"), "payload": answer}

    async def send(self, type_: str, payload: Message) -> None:
        self.sent.append((type_, payload))


def console(lines: list[str], scripted: Scripted | None = None) -> Console:
    made = Console(lines.append)
    listed = [{"session_id": "s1", "title": "One"}, {"session_id": "s2", "title": "Two"}]
    made.learn({"type": "connection_ack", "payload": {"active_sessions": listed}})
    made.current = "s1"
    made.client = cast(Client, scripted) if scripted else None
    return made


def asked(number: int = 1, **more: Any) -> Message:
    return {"type": "approval_required", "payload": ASKED | {"tool_call_id": f"c{number}"} | more}


@pytest.mark.parametrize(
    "message",
    [
        {
            "type": "notification",
            "payload": {
                "session_id": "s1",
                "notification_type": "approval_decided",
                "data": {"tool_call_id": "c1", "decision": "approved"},
            },
        },
        {"type": "tool_result", "payload": {"session_id": "s1", "tool_call_id": "c1"}},
        {"type": "session_end", "payload": {"session_id": "s1", "reason": "completed"}},
        {"type": "connection_ack", "payload": {"active_sessions": []}},
    ],
)
def test_what_was_decided_elsewhere_waits_no_longer(message: Message) -> None:
    one = console([])
    one.learn(asked())
    one.learn(asked(2, session_id="s2", decision="approved"))
    assert len(one.pending) == 1
    one.learn(message)
    assert one.pending == {}


async def test_nothing_to_talk_to() -> None:
    """No connection, a connection that breaks, no session chosen: said, and the console goes on."""
    lines: list[str] = []
    one = console(lines)
    await carry_out(one, "status")
    one.client = cast(Client, Scripted())
    await carry_out(one, "status")
    one.current = None
    await carry_out(one, "status")
    await carry_out(one, "   ")
    for line, words in zip(lines, ("no connection", "broke", "use N"), strict=True):
        assert words in line


COLOURS = {"question": "Which?", "options": [{"label": "Red"}, {"label": "Blue"}]}
SIZES = {"question": "Sizes?", "options": [{"label": "S"}, {"label": "M"}], "multiSelect": True}


def question(number: int, *questions: Message) -> Message:
    return asked(number, tool="AskUserQuestion", params={"questions": list(questions)})


@pytest.mark.parametrize(
    ("questions", "line", "answers"),
    [
        ([COLOURS], "answer 2", {"Which?": "Blue"}),
        ([COLOURS], "answer #2 1", {"Which?": "Red"}),
        ([COLOURS], "answer none of these", {"Which?": "none of these"}),
        ([SIZES], "answer 1, 2", {"Sizes?": "S, M"}),
        ([COLOURS, SIZES], 'answer "my own" 2,1', {"Which?": "my own", "Sizes?": "M, S"}),
    ],
)
async def test_a_question_is_answered(
    questions: list[Message], line: str, answers: dict[str, str]
) -> None:
    """By a modification that carries the answers; an approval that waits beside it stays."""
    scripted = Scripted(approval_response={"decision": "modified", "forwarded": True})
    lines: list[str] = []
    one = console(lines, scripted)
    one.learn(asked(1))
    one.learn(question(2, *questions))
    await carry_out(one, line)
    [(type_, payload)] = scripted.sent
    modifications = {"questions": questions, "answers": answers}
    assert (type_, payload["tool_call_id"]) == ("approval_response", "c2")
    assert (payload["decision"], payload["modifications"]) == ("modified", modifications)
    assert lines == [f"-- AskUserQuestion: {', '.join(answers.values())}"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("answer 3", "the choices 1 to 2"),
        ("answer 1 2", "takes one choice"),
        ("answer #1 2", "0 to answer"),
        ("answer #7 2", "say which number"),
        ("approve 2", "It is a question"),
    ],
)
async def test_a_wrong_answer_sends_nothing(line: str, words: str) -> None:
    scripted, lines = Scripted(), list[str]()
    one = console(lines, scripted)
    one.learn(asked(1))
    one.learn(question(2, COLOURS))
    await carry_out(one, line)
    assert scripted.sent == [] and words in lines[0]


def test_only_what_others_decide_is_news() -> None:
    one = console([])
    one.learn({"type": "connection_ack", "payload": {"active_sessions": [], "device_name": "me"}})
    for name, shown in (("me", False), ("you", True)):
        data = {"tool_call_id": "c1", "device": name}
        told = {"notification_type": "approval_decided", "title": "Bash: approved", "data": data}
        assert (one.line({"type": "notification", "payload": told}) is not None) is shown


async def test_what_the_bridge_still_has_is_shown_when_asked_for() -> None:
    lines: list[str] = []
    at = {"id": "i", "timestamp": "2026-01-31T12:00:00Z"}
    messages = [at | asked(), at | {"type": "session_end", "payload": {"reason": "timeout"}}]
    found = {"session_id": "s1", "messages": messages, "complete": False}
    one = console(lines, Scripted(replay_request=found))
    await carry_out(one, "history")
    assert lines[0] == "(older messages are gone)"
    assert lines[1].endswith("Bash ls [high]") and lines[2].endswith("timeout")
    assert one.pending == {} and list(one.sessions) == ["s1", "s2"], "the past is no news"


@given(st.text())
def test_nothing_shown_moves_the_cursor(text: str) -> None:
    hunk = {"header": text, "lines": [{"type": "added", "content": text}]}
    file = {"path": text, "old_path": text, "status": "renamed", "hunks": [hunk]}
    for line in [
        *render.diff({"files": [file | {"additions": 0, "deletions": 0}]}),
        *render.entries({"path": text, "entries": [{"name": text, "type": "file", "size": 1}]}),
    ]:
        assert not any((ord(c) < 32 and c != "\t") or c == "\x7f" for c in line)
