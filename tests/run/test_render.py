"""A message as a line: readable, and harmless whatever it contains (D43)."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.docs import asyncapi
from bridge_project.protocol.types import HOOK_EVENTS
from bridge_project.terminal.console import Console
from bridge_project.terminal.render import plain

AT = "2026-01-31T12:00:00.000Z"


def shown(console: Console, message: dict[str, Any], **how: Any) -> str | None:
    console.learn(message)
    return console.line(message, zone=UTC, **how)


def line(message: dict[str, Any], **how: Any) -> str:
    return shown(Console(print), message, **how) or ""


def event(name: str, payload: dict[str, Any], session: str = "s-1") -> dict[str, Any]:
    body = {"event": name, "session_id": session, "timestamp": AT, "payload": payload}
    later = "2026-01-31T12:00:09.000Z"
    return {"type": "agent_event", "id": "i", "timestamp": later, "payload": body}


BASH = {"tool": "Bash", "params": {"command": "ls"}}


@pytest.mark.parametrize("message", asyncapi.messages(), ids=lambda message: message.name)
def test_every_message_is_one_line_or_none(message: asyncapi.Message) -> None:
    assert "\n" not in line(json.loads(message.example))


def test_an_answer_is_one_message_without_the_input_of_tools() -> None:
    console = Console(print)
    ids = {"session_id": "s-1", "message_id": "m"}

    def stream(type_: str, **payload: Any) -> str | None:
        return shown(console, {"type": type_, "timestamp": AT, "payload": ids | payload})

    assert stream("stream_start") is None
    assert stream("stream_chunk", content="One\ntw", is_tool_use=False) is None
    assert stream("stream_chunk", content='{"command": ', is_tool_use=True) is None
    assert stream("stream_chunk", content="o\x1b[31m", is_tool_use=False) is None
    said = stream("stream_end", finish_reason="stop") or ""
    assert said.splitlines()[0].endswith("answer   One")
    assert said.splitlines()[1].strip() == "two\N{REPLACEMENT CHARACTER}[31m"
    assert stream("stream_end", finish_reason="tool_call") is None, "there is nothing to show"
    assert (stream("stream_end", finish_reason="error") or "").endswith("(error)")


def test_a_session_is_called_and_does_what_the_bridge_says() -> None:
    """D6, D54."""
    console = Console(print)
    one = {"session_id": "s-1", "title": "project", "session_status": "active", "turn": "idle"}
    console.learn({"type": "connection_ack", "payload": {"active_sessions": [one]}})
    assert console.called("s-1") == "s-1  project"
    later = one | {"title": "Fix it", "turn": "waiting", "doing": {"summary": "Bash: rm\x1b x"}}
    assert shown(console, {"type": "session_update", "payload": {"session": later}}) is None
    assert console.called("s-1") == "s-1  Fix it  (waiting) Bash: rm\N{REPLACEMENT CHARACTER} x"
    assert "  Fix it " in (shown(console, event("UserPromptSubmit", {"prompt": "x"})) or "")
    paused = one | {"session_status": "paused"}
    console.learn({"type": "session_update", "payload": {"session": paused}})
    assert console.called("s-1") == "s-1  project  (paused: `resume` has it go on)"
    over = later | {"session_status": "closed"}
    console.learn({"type": "session_update", "payload": {"session": over}})
    assert console.sessions == {}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"source": "agent_sdk"}, "Bash ls [high]"),
        ({"source": "hooks"}, "Bash ls [high, asks at the machine]"),
        ({"source": "hooks", "decision": "rejected"}, "Bash ls [high, rejected already]"),
    ],
)
def test_a_question_says_where_it_is_asked(more: dict[str, str], words: str) -> None:
    payload = BASH | {"session_id": "s-1", "tool_call_id": "c", "risk_level": "high"} | more
    assert line({"type": "approval_required", "timestamp": AT, "payload": payload}).endswith(words)


def test_a_long_command_is_shown_once_and_whole_where_it_is_decided() -> None:
    command = f"make {'x' * 300} && rm -r build"
    long = {"tool": "Bash", "params": {"command": command}, "description": f"Bash: {command}"}
    asked = {"type": "approval_required", "timestamp": AT, "payload": long | {"risk_level": "high"}}
    assert line(asked).endswith(f"Bash {command} [high]") and line(asked).count("make") == 1
    called = line({"type": "tool_call", "timestamp": AT, "payload": long})
    assert called.endswith("x…") and called.count("make") == 1


HARMFUL = ("\033[31mred", "\x9b31m", "a\rb", "\a", "\x7f", "\u202etxt", "\u2028x", "\ud800")


@pytest.mark.parametrize("text", HARMFUL)
def test_what_moves_a_terminal_is_made_harmless(text: str) -> None:
    told = line(event("UserPromptSubmit", {"prompt": f"a {text} z"}, session=f"s{text}"))
    assert not [c for c in told if unicodedata.category(c)[0] == "C"]
    assert "\u2028" not in told


def test_colours_are_ours_alone() -> None:
    told = line(event("UserPromptSubmit", {"prompt": "a \033[31m z"}), colour=True)
    assert "\033[36m" in told and "\033[31m" not in told


def test_long_texts_are_cut() -> None:
    assert len(line(event("UserPromptSubmit", {"prompt": "x" * 100_000}))) < 300
    assert (plain("abcdef", 4), plain("abcd", 4)) == ("abc…", "abcd")


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
FIELDS = ("tool", "params", "result", "success", "prompt", "message", "execution_time_ms")


@given(
    name=st.sampled_from([*HOOK_EVENTS, "Other"]),
    payload=st.dictionaries(st.sampled_from(FIELDS), junk),
)
def test_no_shape_of_an_event_breaks_it(name: str, payload: dict[str, Any]) -> None:
    told = line(event(name, payload)).replace("\n", "")  # what an agent says has lines
    assert not [c for c in told if unicodedata.category(c)[0] == "C"]
    assert "(None)" not in told
