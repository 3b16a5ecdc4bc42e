"""Commands of ``watch``: what is typed becomes the right message, and answers safe lines."""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection

from bridge_project.kernel import limits
from bridge_project.terminal import client, render
from bridge_project.terminal.client import Client, Lost
from bridge_project.terminal.commands import carry_out
from bridge_project.terminal.console import Console

Message = dict[str, Any]

START = {"agent": "", "session_id": None, "working_directory": "", "resume": False}
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


@pytest.mark.parametrize(
    ("line", "type_", "payload"),
    [
        ("say  hello there ", "message", {"content": "hello there", "role": "user"}),
        ("diff --cached 'a b' c", "git_diff", {"files": ["a b", "c"], "cached": True}),
        ('commit "A message." -x', "git_commit", {"message": "A message.", "files": ["-x"]}),
        ("commit all", "git_commit", {"message": "all", "files": None}),
        ("read a.py", "file_read", {"path": "a.py", "offset": 0, "limit": 200}),
        ("read a.py 10", "file_read", {"path": "a.py", "offset": 10, "limit": 200}),
        ("read a.py 10 5", "file_read", {"path": "a.py", "offset": 10, "limit": 5}),
        ("use other", "session_start", START | {"session_id": "other", "resume": True}),
        ("resume 2", "session_start", START | {"session_id": "s2", "resume": True}),
        ("start a '/a b'", "session_start", START | {"agent": "a", "working_directory": "/a b"}),
        ("start", "session_start", START | {"working_directory": "."}),
        ("stat", "git_status_request", {}),
    ],
)
async def test_a_command_is_a_message(line: str, type_: str, payload: Message) -> None:
    scripted = Scripted()
    await carry_out(console([], scripted), line)
    assert scripted.sent == [(type_, {"session_id": "s1"} | payload)]


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


@pytest.mark.parametrize(
    "line",
    [
        *("frobnicate", "use", "commit", "read", "read a x", "diff 'open", "say", "s"),
        *("modify 1 nonsense", "modify [1]", "approve", "approve 3", "approve x"),
    ],
)
async def test_a_wrong_command_is_told_and_sends_nothing(line: str) -> None:
    lines: list[str] = []
    scripted = Scripted()
    one = console(lines, scripted)
    one.learn(asked(1))
    one.learn(asked(2))
    await carry_out(one, line)
    assert scripted.sent == [] and len(lines) == 1 and lines[0].startswith("-- ")


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


class Mute:
    """A connection that takes everything and says nothing."""

    async def send(self, text: str) -> None: ...

    async def close(self) -> None: ...

    async def recv(self) -> str:
        await asyncio.Event().wait()
        return ""


@pytest.mark.parametrize(
    ("type_", "seconds"), [("session_start", "0.02"), ("git_status_request", "0.01")]
)
async def test_an_agent_that_is_started_may_take_longer(
    type_: str, seconds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Than the answer to anything else: the bridge gives it AGENT_START_SECONDS."""
    assert client.START_SECONDS > limits.AGENT_START_SECONDS > client.ANSWER_SECONDS
    monkeypatch.setattr(client, "START_SECONDS", 0.02)
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.01)
    connected = Client(cast(ClientConnection, Mute()))
    with pytest.raises(Lost, match=rf"no answer to {type_} within {re.escape(seconds)} s"):
        await connected.request(type_, {})
    await connected.close()


def test_only_what_others_decide_is_news() -> None:
    one = console([])
    one.learn({"type": "connection_ack", "payload": {"active_sessions": [], "device_name": "me"}})
    for name, shown in (("me", False), ("you", True)):
        data = {"tool_call_id": "c1", "device": name}
        told = {"notification_type": "approval_decided", "title": "Bash: approved", "data": data}
        assert (one.line({"type": "notification", "payload": told}) is not None) is shown


async def test_an_error_is_shown() -> None:
    lines: list[str] = []
    error = {"type": "error", "code": "GIT_ERROR", "message": "not a \x1b[31mrepository"}
    await carry_out(console(lines, Scripted(git_status_request=error)), "status")
    assert lines == ["-- GIT_ERROR: not a \N{REPLACEMENT CHARACTER}[31mrepository"]


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
