"""A message as a line: readable, and harmless whatever it contains (D43)."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.docs import asyncapi
from bridge_project.protocol.types import HOOK_EVENTS as PAYLOADS
from bridge_project.terminal.render import Renderer, plain

GOLDEN = asyncapi.EXAMPLES
ENDLESS = "x" * 100_000


def renderer(*, colour: bool = False) -> Renderer:
    return Renderer(colour=colour, zone=UTC)


def event(name: str, payload: dict[str, Any], session: str = "s-1") -> dict[str, Any]:
    stamp = "2026-01-31T12:00:00.000Z"
    body = {
        "event": name,
        "event_type": name,
        "session_id": session,
        "timestamp": stamp,
        "payload": payload,
    }
    return {
        "type": "agent_event",
        "id": "i",
        "timestamp": "2026-01-31T12:00:09.000Z",
        "payload": body,
    }


@pytest.mark.parametrize(
    ("name", "payload", "words"),
    [
        (
            "PreToolUse",
            {
                "tool": "Bash",
                "params": {"command": "npm test"},
                "risk_level": "high",
                "requires_approval": True,
            },
            "Bash npm test [high, waits for approval]",
        ),
        (
            "PreToolUse",
            {
                "tool": "Bash",
                "params": {"command": "ls", "description": "List"},
                "risk_level": "low",
                "requires_approval": False,
            },
            "Bash ls (List) [low]",
        ),
        (
            "PreToolUse",
            {"tool": "Edit", "params": {"file_path": "/a/b.py", "new": "x"}, "risk_level": "low"},
            "Edit /a/b.py [low]",
        ),
        (
            "PreToolUse",
            {"tool": "Odd", "params": {"n": 1}, "risk_level": "low"},
            'Odd {"n": 1} [low]',
        ),
        (
            "PostToolUse",
            {
                "tool": "Bash",
                "params": {"command": "ls"},
                "success": True,
                "execution_time_ms": 12.4,
            },
            "Bash ls: done in 12 ms",
        ),
        (
            "PostToolUse",
            {"tool": "Bash", "params": {}, "success": False, "result": {"error": "no"}},
            "Bash: FAILED: no",
        ),
        ("UserPromptSubmit", {"prompt": "Fix\n  it"}, "Fix it"),
        ("Stop", {"reason": "task_completed", "message": "Done."}, "task_completed: Done."),
        ("Stop", {"reason": "error"}, "error"),
        ("SessionStart", {"working_directory": "/home/a", "initial_prompt": "Go"}, "/home/a: Go"),
        (
            "SessionEnd",
            {"exit_reason": "user_exit", "duration_seconds": 12, "message_count": 3},
            "user_exit, 12 s, 3 messages",
        ),
        ("Notification", {"level": "info", "message": "hello"}, "info: hello"),
        ("SubagentStop", {"result": "found"}, "found"),
        ("PreCompact", {"trigger": "auto"}, '{"trigger": "auto"}'),
    ],
)
def test_a_hook_event_is_told_in_a_line(name: str, payload: dict[str, Any], words: str) -> None:
    line = renderer().line(event(name, payload))
    assert line.startswith("12:00:00  ")
    assert f"  {name}" in line
    assert line.endswith(words)


def test_every_hook_event_has_words_of_its_own() -> None:
    from bridge_project.terminal import render

    assert set(render._EVENTS) == set(PAYLOADS)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_every_message_is_one_line(path: Path) -> None:
    message = json.loads(path.read_text())
    line = renderer().line(message)
    assert "\n" not in line
    assert message["type"][:17] in line or message["payload"]["event"] in line


def test_a_session_is_called_by_its_first_prompt_once_it_has_one() -> None:
    shown = renderer()
    assert "  s-1 " in shown.line(
        {
            "type": "session_started",
            "id": "i",
            "timestamp": "2026-01-31T12:00:00Z",
            "payload": {"session_id": "s-1"},
        }
    )
    assert "  project " in shown.line(
        event("SessionStart", {"working_directory": "/home/a/project"})
    )
    assert "  Fix the bug " in shown.line(
        event("UserPromptSubmit", {"prompt": "Fix the bug\nand more"})
    )
    assert "  Fix the bug " in shown.line(event("UserPromptSubmit", {"prompt": "Another"}))


def test_titles_from_the_bridge_stand() -> None:
    shown = renderer()
    shown.learn(
        {
            "type": "connection_ack",
            "payload": {"active_sessions": [{"session_id": "s-1", "agent": "a", "title": "Given"}]},
        }
    )
    assert "  Given " in shown.line(event("UserPromptSubmit", {"prompt": "Another"}))


@pytest.mark.parametrize(
    "text",
    [
        "\033[31mred",
        "\x9b31m",
        "a\rb",
        "\a",
        "\x7f",
        "\N{RIGHT-TO-LEFT OVERRIDE}txt",
        "\N{LINE SEPARATOR}x",
        "\ud800",
    ],
)
def test_what_moves_a_terminal_is_made_harmless(text: str) -> None:
    line = renderer().line(event("UserPromptSubmit", {"prompt": f"a {text} z"}, session=f"s{text}"))
    assert not [
        c
        for c in line
        if unicodedata.category(c)[0] == "C" or unicodedata.category(c) in ("Zl", "Zp")
    ]


def test_colours_are_ours_alone() -> None:
    line = renderer(colour=True).line(event("UserPromptSubmit", {"prompt": "a \033[31m z"}))
    assert "\033[36m" in line
    assert "\033[31m" not in line
    assert "\033" not in renderer().line(event("UserPromptSubmit", {"prompt": "a"}))


def test_long_texts_are_cut() -> None:
    assert len(renderer().line(event("UserPromptSubmit", {"prompt": ENDLESS}))) < 300
    assert plain("abcdef", 4) == "abc…"
    assert plain("abcd", 4) == "abcd"


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    type_=st.sampled_from(
        [
            "agent_event",
            "tool_call",
            "tool_result",
            "notification",
            "replay_buffer",
            "error",
            "new_in_the_future",
        ]
    ),
    event_name=st.sampled_from([*PAYLOADS, "Other"]),
    payload=st.dictionaries(
        st.sampled_from(
            [
                "tool",
                "params",
                "result",
                "success",
                "prompt",
                "session_id",
                "message",
                "messages",
                "execution_time_ms",
            ]
        ),
        junk,
    ),
)
def test_no_shape_breaks_it(type_: str, event_name: str, payload: dict[str, Any]) -> None:
    body = (
        {"event": event_name, "session_id": "s", "payload": payload}
        if type_ == "agent_event"
        else payload
    )
    line = renderer().line(
        {"type": type_, "id": "i", "timestamp": "2026-01-31T12:00:00Z", "payload": body}
    )
    assert not [c for c in line if unicodedata.category(c)[0] == "C"]
