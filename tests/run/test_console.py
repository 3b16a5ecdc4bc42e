"""What `watch` makes of messages is what a terminal may be shown (D43)."""

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge_project.docs import asyncapi
from bridge_project.protocol.types import HOOK_EVENTS
from bridge_project.terminal import render
from bridge_project.terminal.console import Console
from tests.hooks.conftest import JSON_VALUES

Message = dict[str, Any]

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
