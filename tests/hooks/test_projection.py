"""What devices get of a hook event, as the pure projection says it (SPEC Tool result; D13, D37)."""

import json
from typing import Any

import pytest

from bridge_project.protocol.hooks import HookEvent
from hooks_app.intake import projection
from hooks_app.producer.translate import translate
from sessions_app.approvals.tool_call import describe
from tests.hooks.scripted import FIXTURES, fixture

COLOURS = [{"label": "Red", "description": "warm"}, {"label": "Blue"}]
QUESTIONS = {"questions": [{"question": "Which colours?", "options": COLOURS, "multiSelect": True}]}
ASKED = "Which colours? (several can be chosen)\n1. Red: warm\n2. Blue"

RESULTS = json.loads((FIXTURES.parent / "results.json").read_text())


def event(name: str, payload: dict[str, Any]) -> HookEvent:
    return HookEvent(event=name, timestamp="2026-01-31T12:00:00Z", session_id="s", payload=payload)


def captured(name: str) -> HookEvent:
    translated = translate(fixture(name), now=0, mtime=0)
    assert translated is not None
    return event(translated.fields["event"], translated.fields["payload"])


def ran(result: Any, *, success: bool = True, **more: Any) -> HookEvent:
    said = {"tool": "Bash", "params": {"command": "ls"}, "result": result, "success": success}
    return event("PostToolUse", said | more)


@pytest.mark.parametrize(
    ("tool", "params", "given", "expected"),
    [
        ("Bash", {"command": "rm -rf build"}, None, "Bash: rm -rf build"),
        ("Edit", {"file_path": "/a/b", "old_string": "x"}, None, "Edit: /a/b"),
        ("Other", {"depth": 3}, None, 'Other: {"depth": 3}'),
        ("", {}, None, "A tool"),
        ("Bash", {"command": "ls"}, "  Lists the files ", "Lists the files"),
        ("AskUserQuestion", QUESTIONS, None, ASKED),
        ("AskUserQuestion", {"questions": [7]}, None, 'AskUserQuestion: {"questions": [7]}'),
    ],
)
def test_a_description(tool: str, params: dict[str, Any], given: object, expected: str) -> None:
    """D37: what the agent says of the call, else its most telling parameter."""
    assert describe(tool, params, given) == expected


@pytest.mark.parametrize(("result", "content"), RESULTS)
def test_the_content_of_a_result(result: Any, content: str) -> None:
    """SPEC Tool result: ``content`` is text that a person can read."""
    outcome = projection.outcome_of(ran(result))
    assert (outcome.content, outcome.diff) == (content, None)


HELLO, MODEL = "/home/dev/project/hello.txt", "the fake model"
EDITED = f"-hello from {MODEL}\n+goodbye from {MODEL}\n"


@pytest.mark.parametrize(
    ("name", "diff"),
    [
        ("Bash", None),
        ("Edit", f"--- {HELLO}\n+++ {HELLO}\n@@ -1,1 +1,1 @@\n{EDITED}"),
        ("Write", f"--- /dev/null\n+++ {HELLO}\n@@ -0,0 +1,1 @@\n+hello from {MODEL}\n"),
    ],
)
def test_a_real_change_is_shown_as_a_difference(name: str, diff: str | None) -> None:
    assert projection.outcome_of(captured(f"PostToolUse-{name}")).diff == diff


def test_a_call_says_which_subagent_it_has_started() -> None:
    """D69: by the id that the hooks of that subagent's own calls have."""
    started = {"agent_id": "afdf6220138905b33"}
    event = captured("PostToolUse-Agent")
    assert projection.outcome_of(event).metadata == started | {"background": True}
    assert projection.agent_of(captured("PreToolUse-Bash-in-subagent")).id == started["agent_id"]
    assert projection.outcome_of(ran({"agentId": started["agent_id"]})).metadata == started
    assert projection.outcome_of(ran({"agentId": 7})).metadata is None


def test_a_failed_tool_says_why() -> None:
    """SPEC Tool result: ``error``; the spec's PostToolUse carries success false for it."""
    event = captured("PostToolUseFailure-Bash")
    outcome, failure = projection.outcome_of(event), projection.failure_of(event)
    told = (outcome.content, outcome.error, outcome.duration_ms)
    assert told == ("oops", "Exit code 3\noops", 30)
    assert failure is not None and failure.message == outcome.error
    details = failure.details
    assert (details.exit_code, details.stderr, details.execution_time_ms) == (3, "oops", 30)
    assert projection.outcome_of(ran(None, success=False)).error
    late = projection.failure_of(ran("Command timed out after 2m", success=False))
    assert late is not None and late.code == "TOOL_TIMEOUT"
    event = ran({"error": "Exit code 137", "interrupted": True}, success=False)
    assert projection.failure_of(event) is None
    assert projection.outcome_of(event).error == "The call was interrupted."
