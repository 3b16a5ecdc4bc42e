"""Output of a terminal, as it is shown where nothing has colours."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.kernel.terminal_output import shown_output
from bridge_project.terminal.render import line
from sessions_app import notifications
from sessions_app.admin import readable

CASES = json.loads((Path(__file__).parents[1] / "fixtures/terminal_output.json").read_text())
PIECES = [
    "\x1b",
    "\x1b[",
    "\x1b]0;",
    "\x1b]8;;",
    "\x07",
    "\x1b\\",
    "\x1bP",
    "\r",
    "\b",
    "\n",
    "\x9b",
]
PIECES += ["31m", "2K", "1A", "9C", "3D", "J", "a", "bc", "\u202e", "\0", ";"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_a_terminal_shows(case: dict[str, str]) -> None:
    assert shown_output(case["written"]) == case["shown"]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_no_control_is_left(text: str) -> None:
    shown = shown_output(text)
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert shown_output(shown) == shown


@pytest.mark.parametrize(
    "piece", ["\x1b[31mx", "\x1b]0;", "\x1bP", "x\x1b[2K", "x\n\x1b[1A", "x\r"]
)
def test_much_of_it_takes_its_time_once(piece: str) -> None:
    assert len(shown_output(piece * 100_000)) < 1_000_000


def told(type: str, **payload: Any) -> str:
    return str(line({"type": type, "timestamp": "2026-01-01T00:00:00Z", "payload": payload}, ""))


def test_it_is_the_same_wherever_output_is_shown() -> None:
    """But in what somebody decides: there each control character has a sign."""
    written, command = "\x1b[1A\x1b[32m 10%\r100%\x1b[0m", "rm x\b\x1b[2Kls"
    result = {"success": True, "content": written}
    assert told("tool_result", tool="Bash", result=result).endswith("Bash: ok 100%")
    call = told("tool_call", tool="Bash", params={"command": command})
    assert call.endswith("Bash rm x\ufffd\ufffd[2Kls")
    assert notifications.make("error", written, written).body == "100%"
    asked = notifications.make("approval_required", "", command, tool_call_id="t")
    assert asked.body == "rm x\ufffd\ufffd[2Kls"
    assert readable(json.dumps({"command": command})) == asked.body
    assert readable(json.dumps(result), shown_output) == "success: true\ncontent: 100%"
