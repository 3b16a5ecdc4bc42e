"""The translation of what claude-agent-sdk says, where the real program cannot be made to say it
(D38, D40).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sessions_app.agents.diffs import diff_of_result
from sessions_app.agents.driver import Verdict
from sessions_app.agents.events import (
    ApprovalWithdrawn,
    Chunk,
    ToolFailed,
    ToolStarted,
    ToolStopped,
    ToolSucceeded,
    TurnEnded,
)

if TYPE_CHECKING:
    from sessions_app.agents.claude.translation import Translation

sdk: Any = pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed")


@pytest.fixture
def talk() -> Translation:
    from sessions_app.agents.claude.translation import Translation

    return Translation()


def piece(text: str, parent: str | None = None) -> Any:
    delta = {"type": "text_delta", "text": text}
    return sdk.StreamEvent("u", "s", {"type": "content_block_delta", "delta": delta}, parent)


def used(call_id: str, tool: str, **params: Any) -> Any:
    return sdk.AssistantMessage(
        [sdk.ToolUseBlock(call_id, tool, params)], "a-model", message_id="m"
    )


def gave(call_id: str, content: Any, *, failed: bool = False, result: Any = None) -> Any:
    return sdk.UserMessage([sdk.ToolResultBlock(call_id, content, failed)], tool_use_result=result)


def result(**fields: Any) -> Any:
    told = {
        "subtype": "success",
        "duration_ms": 5,
        "duration_api_ms": 5,
        "is_error": False,
        "num_turns": 1,
        "session_id": "s",
        "stop_reason": "end_turn",
    }
    return sdk.ResultMessage(**told | fields)


BACKGROUND = {"kind": "task-notification"}


def test_a_turn_of_the_agents_own_never_ends_that_of_a_prompt(talk: Translation) -> None:
    """A prompt given while something in the background is told about waits behind it."""
    assert talk.read(piece("The job is done.")) == [Chunk("The job is done.")]
    talk.begin("a")
    assert talk.read(result(origin=BACKGROUND, user_message_uuids=["another"])) == []
    assert talk.read(result(origin=BACKGROUND)) == []
    [ended] = talk.read(result(user_message_uuid="a", user_message_uuids=["a"]))
    assert isinstance(ended, TurnEnded)


@pytest.mark.parametrize(
    "answers",
    [
        {"origin": BACKGROUND, "user_message_uuids": ["another", "a"]},
        {"user_message_uuid": "a"},
        {},  # older programs do not say which prompt they answer
    ],
)
def test_what_ends_the_turn_of_a_prompt(talk: Translation, answers: dict[str, Any]) -> None:
    """Also a turn of the agent's own within which the prompt was answered; a further result in
    which nothing was said ends no turn.
    """
    talk.begin("a")
    assert len(talk.read(result(**answers))) == 1
    assert talk.read(result(origin=BACKGROUND)) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stop_reason": "max_tokens"}, TurnEnded("length")),
        ({"stop_reason": "refusal"}, TurnEnded("error", error="The model stopped: refusal.")),
        (
            {"subtype": "error_max_turns", "is_error": True},
            TurnEnded("error", error="The agent reached its limit of turns."),
        ),
        (
            {"subtype": "error_during_execution", "is_error": True, "errors": ["one", "two"]},
            TurnEnded("error", error="one; two"),
        ),
        (
            {"is_error": True, "result": "API Error: 529\x00"},
            TurnEnded("error", error="API Error: 529\ufffd"),
        ),
        (
            {"subtype": "error_new", "is_error": True},
            TurnEnded("error", error="The agent failed: error_new."),
        ),
        ({"stop_reason": None}, TurnEnded("stop")),
    ],
)
def test_how_a_turn_ends(talk: Translation, fields: dict[str, Any], expected: TurnEnded) -> None:
    talk.begin("a")
    [ended] = talk.read(result(**fields))
    assert isinstance(ended, TurnEnded)
    assert (ended.finish_reason, ended.error) == (expected.finish_reason, expected.error)


def test_what_was_open_when_it_was_interrupted_is_closed(talk: Translation) -> None:
    """Each call that was reported has a result, and an approval is withdrawn before the turn
    ends.
    """
    talk.begin("a")
    talk.read(used("1", "Bash", command="ls"))
    talk.read(used("2", "Read", file_path="f"))
    talk.read(used("3", "Bash", command="never asked about"))
    assert talk.ask("1", "Bash", {"command": "ls"}).params == {"command": "ls"}
    talk.interrupt()
    withdrawn, first, second, ended = talk.read(
        result(subtype="error_during_execution", is_error=True)
    )
    assert withdrawn == ApprovalWithdrawn("1")
    assert isinstance(first, ToolStopped) and isinstance(second, ToolStopped)
    assert (first.call.id, second.call.id) == ("1", "2")
    assert isinstance(ended, TurnEnded) and (ended.finish_reason, ended.error) == ("stop", "")
    assert talk.withdraw("1") == []


def test_only_an_interrupt_makes_a_failure_a_stop(talk: Translation) -> None:
    talk.begin("a")
    talk.interrupt()
    talk.begin("b")
    talk.read(used("1", "Read", file_path="f"))
    [failed] = talk.read(gave("1", "no such file", failed=True))
    assert isinstance(failed, ToolFailed)


def test_a_subagents_talk_is_its_own(talk: Translation) -> None:
    assert talk.read(piece("to my master", parent="1")) == []


def test_a_tool_that_nobody_knows_asks(talk: Translation) -> None:
    """Asking is the rule; what does not is listed (docs/agents.md)."""
    from sessions_app.agents.claude.translation import asks

    assert (
        asks("InventedLater")
        and asks("mcp__server__read")
        and asks("WebFetch")
        and not asks("Read")
    )
    assert talk.read(used("1", "InventedLater")) == []
    assert [type(event) for event in talk.read(gave("1", None))] == [ToolStarted, ToolSucceeded]


def test_a_result_without_text(talk: Translation) -> None:
    """What is no text is named; what no database holds is replaced."""
    talk.read(used("1", "Read", file_path="f"))
    [done] = talk.read(
        gave("1", [{"type": "image", "source": {}}, {"type": "text", "text": "a\x00b\ud800"}])
    )
    assert isinstance(done, ToolSucceeded)
    assert done.content == "[image]\na\ufffdb?"


def test_what_is_not_understood_says_nothing(talk: Translation) -> None:
    assert talk.read(object()) == []
    assert talk.read(gave("unknown", "text")) == []
    assert talk.read(sdk.UserMessage("text")) == []
    assert talk.read(sdk.SystemMessage("init", {})) == []
    assert talk.read(sdk.StreamEvent("u", "s", {})) == []
    talk.decide("unknown", Verdict("approved"))


@pytest.mark.parametrize(
    ("told", "diff"),
    [
        (
            {"filePath": "f", "type": "create", "content": "a"},
            "--- /dev/null\n+++ f\n@@ -0,0 +1,1 @@\n+a\n\\ No newline at end of file\n",
        ),
        ({"filePath": "f", "type": "create", "content": ""}, None),
        ({"filePath": "f", "structuredPatch": []}, None),
        ({"filePath": "f", "structuredPatch": [{"lines": "x"}]}, None),
        ({"structuredPatch": [{"lines": []}]}, None),
        ("text", None),
        (None, None),
    ],
)
def test_a_diff(told: object, diff: str | None) -> None:
    assert diff_of_result(told) == diff
