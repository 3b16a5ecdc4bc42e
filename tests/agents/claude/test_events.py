"""What claude-agent-sdk says, where the real program cannot be made to say it (D38, D40)."""

from typing import Any

import pytest

from sessions_app.agents.events import ToolStarted, ToolSucceeded, TurnEnded

sdk: Any = pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed")
translation: Any = pytest.importorskip("sessions_app.agents.claude.translation")


@pytest.fixture
def talk() -> Any:
    return translation.Translation()


def used(call_id: str, tool: str, **params: Any) -> Any:
    return sdk.AssistantMessage(
        [sdk.ToolUseBlock(call_id, tool, params)], "a-model", message_id="m"
    )


def gave(call_id: str, content: Any) -> Any:
    return sdk.UserMessage([sdk.ToolResultBlock(call_id, content, False)])


def result(**fields: Any) -> Any:
    told = {"subtype": "success", "is_error": False, "session_id": "s", "stop_reason": "end_turn"}
    told |= {"duration_ms": 5, "duration_api_ms": 5, "num_turns": 1}
    return sdk.ResultMessage(**told | fields)


@pytest.mark.parametrize(
    ("fields", "reason", "error"),
    [
        ({"stop_reason": None}, "stop", ""),
        ({"stop_reason": "max_tokens"}, "length", ""),
        ({"stop_reason": "refusal"}, "error", "The model stopped: refusal."),
        ({"subtype": "error_during_execution", "errors": ["1", "2"]}, "error", "1; 2"),
        ({"subtype": "error_new"}, "error", "The agent failed: error_new."),
        ({"result": "API Error: 529\x00", "is_error": True}, "error", "API Error: 529\ufffd"),
    ],
)
def test_how_a_turn_ends(talk: Any, fields: dict[str, Any], reason: str, error: str) -> None:
    talk.begin("a")
    [ended] = talk.read(result(**{"is_error": "subtype" in fields} | fields))
    assert isinstance(ended, TurnEnded)
    assert (ended.finish_reason, ended.error) == (reason, error)


def test_a_job_of_the_background_ends_no_turn_that_waits(talk: Any) -> None:
    """Its result says so, or names another prompt; else it ends what the agent said by itself."""
    job = {"origin": {"kind": "task-notification"}}
    talk.begin("a")
    assert talk.read(used("c", "Read", file_path="/a")) != []
    for fields in (job, {"user_message_uuid": "b"}, {"user_message_uuids": ["b", "c"]}):
        assert talk.read(result(**fields)) == []
    [ended] = talk.read(result(**job, user_message_uuids=["b", "a"]))
    assert isinstance(ended, TurnEnded)
    assert talk.read(result(**job)) == []
    assert talk.read(used("d", "Read", file_path="/a")) != []
    assert [type(event) for event in talk.read(result(**job))] == [TurnEnded]


def test_a_tool_that_nobody_knows_asks(talk: Any) -> None:
    """Asking is the rule; what does not is listed (docs/agents.md)."""
    assert translation.UNASKED.isdisjoint({"InventedLater", "mcp__server__read", "WebFetch"})
    assert "Read" in translation.UNASKED
    assert talk.read(used("1", "InventedLater")) == []
    assert [type(event) for event in talk.read(gave("1", None))] == [ToolStarted, ToolSucceeded]


def test_a_result_without_text(talk: Any) -> None:
    """What is no text is named; what no database holds is replaced."""
    talk.read(used("1", "Read", file_path="f"))
    content = [{"type": "image", "source": {}}, {"type": "text", "text": "a\x00b\ud800"}]
    [done] = talk.read(gave("1", content))
    assert isinstance(done, ToolSucceeded)
    assert done.content == "[image]\na\ufffdb\ufffd"
