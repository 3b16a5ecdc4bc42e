"""What devices get of a hook event, as the pure projection says it (SPEC Hook events consumed; D13,
D37).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.protocol.hooks import HookEvent
from hooks_app.intake import projection
from hooks_app.producer.translate import translate
from sessions_app.approvals.tool_call import Call, describe
from sessions_app.approvals.tool_result import IN_BACKGROUND, readable
from sessions_app.models import Session
from tests.hooks.scripted import fixture

# by which results of the agent's own tools are known
RESULT_FIELDS = {
    *("stdout", "stderr", "isAsync", "agentId", "content", "questions", "answers", "newTodos"),
    *("plan", "isAgent", "file", "type", "filePath", "structuredPatch", "notebook_path"),
    *("new_source", "filenames", "matches", "results", "query", "message", "error"),
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


QUESTIONS = {
    "questions": [
        {
            "question": "Which colours?",
            "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
            "multiSelect": True,
        }
    ]
}
ASKED = "Which colours? (several can be chosen)\n1. Red: warm\n2. Blue"


def event(name: str, **payload: Any) -> HookEvent:
    return HookEvent(event=name, timestamp="2026-01-31T12:00:00Z", session_id="s", payload=payload)


def captured(name: str) -> HookEvent:
    """A real event, as the forwarder translates it."""
    translated = translate(fixture(name), now=0, mtime=0)
    assert translated is not None
    return event(translated["event"], **translated["payload"])


def used(**more: Any) -> HookEvent:
    return event(
        "PreToolUse",
        **{
            "tool": "Bash",
            "params": {"command": "ls"},
            "risk_level": "high",
            "requires_approval": True,
        }
        | more,
    )


def ran(result: Any, *, success: bool = True, **more: Any) -> HookEvent:
    return event(
        "PostToolUse", tool="Bash", params={"command": "ls"}, result=result, success=success, **more
    )


# -- tool calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"tool_call_id": "a", "tool_use_id": "b"}, "a"),
        ({"tool_use_id": "b"}, "b"),
        ({"tool_call_id": "", "tool_use_id": "b"}, "b"),
        ({"tool_call_id": 7}, None),
        ({"tool_call_id": "x" * 257}, None),
        ({"tool_call_id": "a\x00b"}, None),
        ({"tool_call_id": "a\nb"}, None),
        ({}, None),
    ],
)
def test_the_id_of_a_call(payload: dict[str, Any], expected: str | None) -> None:
    """D37: ``tool_call_id``, else ``tool_use_id``; what cannot be kept and sent back is none."""
    assert projection.call_of(used(**payload)).id == expected


@pytest.mark.parametrize(
    ("tool", "params", "given", "expected"),
    [
        ("Bash", {"command": "rm -rf build"}, None, "Bash: rm -rf build"),
        ("Edit", {"file_path": "/a/b", "old_string": "x"}, None, "Edit: /a/b"),
        ("Fetch", {"url": "https://example.org"}, None, "Fetch: https://example.org"),
        ("Other", {"depth": 3}, None, 'Other: {"depth": 3}'),
        ("Other", {}, None, "Other"),
        ("", {}, None, "A tool"),
        ("Bash", {"command": "ls"}, "  Lists the files ", "Lists the files"),
        ("Bash", {"command": "ls"}, "   ", "Bash: ls"),
        ("AskUserQuestion", QUESTIONS, None, ASKED),
        ("Other", QUESTIONS, "Its own words", "Its own words"),
        ("AskUserQuestion", {"questions": [7]}, None, 'AskUserQuestion: {"questions": [7]}'),
    ],
)
def test_a_description(tool: str, params: dict[str, Any], given: object, expected: str) -> None:
    """D37: what the agent says of the call, else its most telling parameter."""
    assert describe(tool, params, given) == expected


@given(st.text(), st.dictionaries(st.text(), JSON), JSON)
def test_a_description_is_never_empty(tool: str, params: dict[str, Any], given: object) -> None:
    """D37, whatever an agent sends; nor is it longer than a phone can show."""
    assert 0 < len(describe(tool, params, given)) <= 2000


@given(st.dictionaries(st.text(), JSON, min_size=1))
def test_equal_calls_are_equal_in_any_order(params: dict[str, Any]) -> None:
    """D37: a call is recognised by its tool and its parameters."""
    turned = dict(reversed(params.items()))
    assert Call(None, "T", params, "d").same == Call("x", "T", turned, "e").same
    assert Call(None, "T", params, "d").same != Call(None, "U", params, "d").same
    assert Call(None, "T", params, "d").same != Call(None, "T", params | {"one more": 1}, "d").same


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("text", "text"),
        ({"stdout": "out\n", "stderr": "", "interrupted": False}, "out"),
        ({"stdout": "out\n", "stderr": "bad\n"}, "out\nbad"),
        ({"content": "of the file"}, "of the file"),
        ({"error": "no such file", "interrupted": False}, "no such file"),
        ({"answer": 42, "exact": True}, "answer: 42\nexact: True"),
        ({"jobs": [7]}, '{"jobs":[7]}'),
        ({"success": True, "commandName": "verify"}, "Uses the skill verify."),
        ({"stdout": "", "backgroundTaskId": "b5"}, IN_BACKGROUND),
        (["ä"], '["ä"]'),
        (None, ""),
        (False, "false"),
    ],
)
def test_the_content_of_a_result(result: Any, content: str) -> None:
    """SPEC Tool result: ``content`` is text that a person can read."""
    assert projection.outcome_of(ran(result)).content == content


HELLO, MODEL = "/home/dev/project/hello.txt", "the fake model"


@pytest.mark.parametrize(
    ("name", "content", "diff"),
    [
        ("Agent", IN_BACKGROUND, None),
        ("AskUserQuestion", "Which colour? Blue", None),
        ("Bash", "hi", None),
        (
            "Edit",
            f"Edited {HELLO}",
            f"--- {HELLO}\n+++ {HELLO}\n@@ -1,1 +1,1 @@\n-hello from {MODEL}\n+goodbye from {MODEL}\n",
        ),
        ("Read", "1\thello from the fake model", None),
        (
            "Write",
            f"Wrote {HELLO}",
            f"--- /dev/null\n+++ {HELLO}\n@@ -0,0 +1,1 @@\n+hello from the fake model\n",
        ),
    ],
)
def test_a_real_result_is_for_a_person(name: str, content: str, diff: str | None) -> None:
    """As of the calls of an agent that the bridge runs (tests/agents/claude), and no JSON."""
    outcome = projection.outcome_of(captured(f"PostToolUse-{name}"))
    assert (outcome.content, outcome.diff, outcome.error) == (content, diff, None)


def test_a_long_result_is_cut() -> None:
    assert projection.outcome_of(ran("x" * 300_000)).content.endswith("[cut: 300000 bytes in all]")


def test_a_failed_tool_says_why() -> None:
    """SPEC Tool result: ``error``; the spec's PostToolUse carries success false for it."""
    event = captured("PostToolUseFailure-Bash")
    outcome, failure = projection.outcome_of(event), projection.failure_of(event)
    assert (outcome.content, outcome.error) == ("oops", "Exit code 3\noops")
    assert failure is not None and failure.message == "Exit code 3\noops"
    details = failure.details
    assert (details.exit_code, details.stderr, details.execution_time_ms) == (3, "oops", 30)
    failed = projection.outcome_of(ran({"error": "exit 1"}, success=False, execution_time_ms=12.6))
    assert (failed.success, failed.error, failed.duration_ms) == (False, "exit 1", 13)
    assert projection.outcome_of(ran(None, success=False)).error
    assert projection.outcome_of(ran("fine")).error is None
    late = projection.failure_of(ran("Command timed out after 2m", success=False))
    assert late is not None and late.code == "TOOL_TIMEOUT"


def test_an_interrupted_tool_has_not_failed() -> None:
    event = ran({"error": "Exit code 137", "interrupted": True}, success=False)
    assert projection.failure_of(event) is None
    assert projection.outcome_of(event).error == "The call was interrupted."


@given(st.dictionaries(st.sampled_from(sorted(RESULT_FIELDS)), JSON), st.text())
def test_no_result_is_too_odd(result: dict[str, Any], text: str) -> None:
    """Whatever an agent says there, it becomes text."""
    assert isinstance(readable(result, text), str)


@given(JSON)
def test_a_diff_that_is_none(patch: object) -> None:
    """Whatever else an agent calls a patch is no reason to fail."""
    assert projection.outcome_of(ran({"structuredPatch": patch})).diff is None or isinstance(
        patch, list
    )
    assert projection.outcome_of(ran({"other": patch})).diff is None


# -- notifications ---------------------------------------------------------------------------------


def test_a_cleared_conversation_is_said() -> None:
    """And one that was compacted."""
    session = Session(session_id="s")
    cleared = projection.notification_of(captured("SessionEnd-clear"), session)
    compacted = projection.notification_of(captured("SessionStart-compact-with-model"), session)
    assert cleared is not None and cleared.title == "The conversation was cleared"
    assert compacted is not None and compacted.body == "The conversation was compacted."
