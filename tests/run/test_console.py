"""Commands of ``watch``: what is typed becomes the right message, and the answer lines that are
safe to show.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection

from bridge_project.kernel import limits
from bridge_project.terminal import client, listing
from bridge_project.terminal.client import Client, Lost
from bridge_project.terminal.console import COMMANDS, Console

Message = dict[str, Any]

STATUS = {
    "session_id": "s1",
    "branch": "main",
    "ahead": 1,
    "behind": 0,
    "is_clean": False,
    "changes": [{"path": "a", "status": "modified", "additions": 1, "deletions": 2}],
}
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
    made.learn(
        {
            "type": "connection_ack",
            "payload": {
                "active_sessions": [
                    {"session_id": "s1", "title": "One"},
                    {"session_id": "s2", "title": "Two"},
                ]
            },
        }
    )
    made.current = "s1"
    made.client = cast(Client, scripted) if scripted else None
    return made


@pytest.mark.parametrize(
    ("line", "type_", "payload"),
    [
        (
            "say  hello there ",
            "message",
            {"session_id": "s1", "content": "hello there", "role": "user"},
        ),
        ("interrupt", "session_interrupt", {"session_id": "s1"}),
        ("end", "session_end", {"session_id": "s1", "reason": "user_request"}),
        ("status", "git_status_request", {"session_id": "s1"}),
        ("diff", "git_diff", {"session_id": "s1", "files": None, "cached": False}),
        (
            "diff --cached 'a b' c",
            "git_diff",
            {"session_id": "s1", "files": ["a b", "c"], "cached": True},
        ),
        (
            'commit "A message." -x',
            "git_commit",
            {"session_id": "s1", "message": "A message.", "files": ["-x"]},
        ),
        ("commit all", "git_commit", {"session_id": "s1", "message": "all", "files": None}),
        ("ls", "file_list", {"session_id": "s1", "path": "."}),
        ("ls src", "file_list", {"session_id": "s1", "path": "src"}),
        ("read a.py", "file_read", {"session_id": "s1", "path": "a.py", "offset": 0, "limit": 200}),
        (
            "read a.py 10",
            "file_read",
            {"session_id": "s1", "path": "a.py", "offset": 10, "limit": 200},
        ),
        (
            "read a.py 10 5",
            "file_read",
            {"session_id": "s1", "path": "a.py", "offset": 10, "limit": 5},
        ),
        (
            "use 2",
            "session_start",
            {"agent": "", "session_id": "s2", "working_directory": "", "resume": False},
        ),
        (
            "use other",
            "session_start",
            {"agent": "", "session_id": "other", "working_directory": "", "resume": True},
        ),
        (
            "resume",
            "session_start",
            {"agent": "", "session_id": "s1", "working_directory": "", "resume": True},
        ),
        (
            "resume 2",
            "session_start",
            {"agent": "", "session_id": "s2", "working_directory": "", "resume": True},
        ),
        (
            "resume other",
            "session_start",
            {"agent": "", "session_id": "other", "working_directory": "", "resume": True},
        ),
        (
            "start demo /src",
            "session_start",
            {"agent": "demo", "session_id": None, "working_directory": "/src", "resume": False},
        ),
        (
            "start demo '/a b'",
            "session_start",
            {"agent": "demo", "session_id": None, "working_directory": "/a b", "resume": False},
        ),
        (
            "start",
            "session_start",
            {"agent": "", "session_id": None, "working_directory": ".", "resume": False},
        ),
        ("stat", "git_status_request", {"session_id": "s1"}),
    ],
)
async def test_a_command_is_a_message(line: str, type_: str, payload: Message) -> None:
    scripted = Scripted()
    await console([], scripted).do(line)
    assert scripted.sent == [(type_, payload)]


@pytest.mark.parametrize(
    ("line", "decision", "modifications"),
    [
        ("approve", "approved", None),
        ("reject 1", "rejected", None),
        ('modify {"command": "pwd"}', "modified", {"command": "pwd"}),
        ('modify 1 {"a": 1}', "modified", {"a": 1}),
    ],
)
async def test_deciding(line: str, decision: str, modifications: Message | None) -> None:
    """D38; what was decided waits no longer, and that no agent takes it is said."""
    lines: list[str] = []
    recorded = {
        "type": "approval_recorded",
        "session_id": "s1",
        "tool_call_id": "c1",
        "decision": decision,
        "forwarded": False,
    }
    scripted = Scripted(approval_response=recorded)
    one = console(lines, scripted)
    one.learn({"type": "approval_required", "payload": ASKED})
    await one.do("approvals")
    assert "Bash: ls" in lines[0] and "[high]" in lines[0]
    await one.do(line)
    sent = {
        "session_id": "s1",
        "tool_call_id": "c1",
        "decision": decision,
        "modifications": modifications,
    }
    assert scripted.sent == [("approval_response", sent)]
    assert one.pending == {} and "machine" in lines[-1]


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
        {"type": "session_end", "payload": {"session_id": "s1", "reason": "completed"}},
        {"type": "connection_ack", "payload": {"active_sessions": []}},
    ],
)
def test_what_was_decided_elsewhere_waits_no_longer(message: Message) -> None:
    one = console([])
    one.learn({"type": "approval_required", "payload": ASKED})
    assert len(one.pending) == 1
    one.learn(message)
    assert one.pending == {}


@pytest.mark.parametrize(
    "line",
    [
        "frobnicate",
        "use",
        "commit",
        "modify 1 nonsense",
        "modify [1]",
        "approve",
        "approve 7",
        "read",
        "read a x",
        "diff 'open",
        "say",
        "s",
    ],
)
async def test_a_wrong_command_is_told_and_sends_nothing(line: str) -> None:
    lines: list[str] = []
    scripted = Scripted()
    await console(lines, scripted).do(line)
    assert scripted.sent == [] and len(lines) == 1 and lines[0].startswith("-- ")


async def test_nothing_to_talk_to() -> None:
    """No connection, a connection that breaks, no session chosen: said, and the console goes on."""
    lines: list[str] = []
    one = console(lines)
    await one.do("status")
    one.client = cast(Client, Scripted())
    await one.do("status")
    one.current = None
    await one.do("status")
    await one.do("   ")
    assert (
        len(lines) == 3
        and "no connection" in lines[0]
        and "broke" in lines[1]
        and "use N" in lines[2]
    )


class Mute:
    """A connection that takes everything and says nothing."""

    async def send(self, text: str) -> None: ...

    async def close(self) -> None: ...

    async def __aiter__(self) -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""


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


async def test_an_error_is_shown() -> None:
    lines: list[str] = []
    scripted = Scripted(
        git_status_request={
            "type": "error",
            "code": "GIT_ERROR",
            "message": "not a \x1b[31mrepository",
        }
    )
    await console(lines, scripted).do("status")
    assert lines == ["-- GIT_ERROR: not a \N{REPLACEMENT CHARACTER}[31mrepository"]


async def test_answers_are_shown() -> None:
    lines: list[str] = []
    hunk = {"header": "@@ -1 +1 @@", "old_start": 1, "old_lines": 1, "new_start": 1, "new_lines": 1}
    hunk["lines"] = [
        {"type": "removed", "content": "a\tb"},
        {"type": "added", "content": "c"},
        {"type": "context", "content": "d"},
    ]
    file = {
        "path": "n",
        "old_path": "o",
        "new_path": "n",
        "status": "renamed",
        "additions": 1,
        "deletions": 1,
        "hunks": [hunk],
    }
    commit = {
        "hash": "0123456789abcdef",
        "summary": "Sum.",
        "files_changed": 1,
        "additions": 2,
        "deletions": 0,
    }
    scripted = Scripted(
        git_status_request=dict(STATUS),
        git_diff={"session_id": "s1", "files": [file]},
        git_commit={**STATUS, "commit": commit},
        file_list={
            "path": "/r",
            "entries": [
                {"name": "d", "type": "directory"},
                {"name": "f", "type": "file", "size": 3},
            ],
        },
        file_read={"path": "/r/f", "content": "x\ny\n", "size": 4, "lines": 2, "encoding": "utf-8"},
    )
    one = console(lines, scripted)
    for line in ("sessions", "status", "diff", "commit m", "ls", "read f 1", "help"):
        await one.do(line)
    text = "\n".join(lines)
    for wanted in (
        "* 1  s1  One",
        "main, ahead 1",
        "+1     -2     a",
        "(was o)",
        "-a\tb",
        "+c",
        " d",
        "0123456789ab  Sum.",
        "d/",
        "     2  x",
    ):
        assert wanted in text, wanted
    assert all(command.usage in text for command in COMMANDS.values())


@given(st.text())
def test_nothing_shown_moves_the_cursor(text: str) -> None:
    shown = listing.clean(text)
    assert not any((ord(c) < 32 and c != "\t") or c == "\x7f" for c in shown)
    diff = {
        "files": [
            {
                "path": text,
                "old_path": text,
                "status": "renamed",
                "additions": 0,
                "deletions": 0,
                "hunks": [{"header": text, "lines": [{"type": "added", "content": text}]}],
            }
        ]
    }
    for line in [
        *listing.diff(diff),
        *listing.entries({"path": text, "entries": [{"name": text, "type": "file", "size": 1}]}),
        *listing.approvals([json.loads(json.dumps(ASKED)) | {"description": text}]),
    ]:
        assert "\x1b" not in line and "\r" not in line and "\n" not in line
