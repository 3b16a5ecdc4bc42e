"""Everything that a real agent was seen to send, through the installed command, the spool and the
forwarder to a TLS server (D47).
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from bridge_project.protocol.types import parse_timestamp
from hooks_app.producer.forwarder import Forwarder
from tests.hooks.conftest import Hook, waiting
from tests.hooks.scripted import FIXTURES, ScriptedBridge, fixture

NAMES = sorted(path.stem for path in FIXTURES.glob("*.json") if path.stem != "_index")
# kept as they are wherever they come
COMMON = {
    "transcript_path",
    "cwd",
    "prompt_id",
    "permission_mode",
    "effort",
    "agent_id",
    "agent_type",
}


def pre(tool: str, risk: str, *, asks: bool = False) -> tuple[str, dict[str, Any]]:
    extra = {"permission_request": True} if asks else {}
    return "PreToolUse", {"tool": tool, "risk_level": risk, "requires_approval": asks, **extra}


def post(tool: str, took: int, *, success: bool = True, **more: Any) -> tuple[str, dict[str, Any]]:
    return "PostToolUse", {"tool": tool, "success": success, "execution_time_ms": took, **more}


BACKGROUND = [
    {
        "id": "afdf6220138905b33",
        "type": "subagent",
        "status": "running",
        "description": "Sub job",
        "agent_type": "general-purpose",
    }
]
IDLE = {"background_tasks": [], "session_crons": [], "stop_hook_active": False}
SUMMARY = "The user asked for scripted things; all done."
SUBAGENTS = "/home/dev/.claude/projects/-home-dev-project/{}/subagents/agent-{}.jsonl"

# Fixture → the event, and what its payload must say; None: the bridge has no use for it.
EXPECTED: dict[str, tuple[str, dict[str, Any]] | None] = {
    "MessageDisplay": None,
    "Notification-idle_prompt": (
        "Notification",
        {
            "message": "Claude is waiting for your input",
            "level": "info",
            "notification_type": "idle_prompt",
        },
    ),
    "Notification-permission_prompt": (
        "Notification",
        {
            "message": "Claude needs your permission",
            "level": "warning",
            "notification_type": "permission_prompt",
        },
    ),
    "PermissionRequest-AskUserQuestion": pre("AskUserQuestion", "low", asks=True),
    "PermissionRequest-Bash": pre("Bash", "high", asks=True),
    "PermissionRequest-Edit": pre("Edit", "medium", asks=True),
    "PermissionRequest-Write": pre("Write", "medium", asks=True),
    "PostCompact": None,
    "PostModelSwitch-sdk": None,
    "PostToolBatch": None,
    "PostToolBatch-in-subagent": None,
    "PostToolUse-Agent": post("Agent", 20),
    "PostToolUse-AskUserQuestion": post("AskUserQuestion", 1),
    "PostToolUse-Bash": post("Bash", 33),
    "PostToolUse-Bash-in-subagent": post(
        "Bash", 18, agent_id="afdf6220138905b33", agent_type="general-purpose"
    ),
    "PostToolUse-Edit": post("Edit", 5),
    "PostToolUse-Read": post("Read", 2),
    "PostToolUse-Write": post("Write", 7),
    "PostToolUseFailure-Bash": post(
        "Bash", 30, success=False, result={"error": "Exit code 3\noops", "interrupted": False}
    ),
    "PreCompact": ("PreCompact", {"trigger": "manual", "custom_instructions": "keep the names"}),
    "PreModelSwitch-sdk": None,
    "PreToolUse-Agent": pre("Agent", "medium"),
    "PreToolUse-AskUserQuestion": pre("AskUserQuestion", "low"),
    "PreToolUse-Bash": pre("Bash", "low"),
    "PreToolUse-Bash-in-subagent": pre("Bash", "low"),
    "PreToolUse-Edit": pre("Edit", "medium"),
    "PreToolUse-Read": pre("Read", "low"),
    "PreToolUse-Write": pre("Write", "medium"),
    "SessionEnd-clear": ("SessionEnd", {"exit_reason": "user_exit", "reason": "clear"}),
    "SessionEnd-other": ("SessionEnd", {"exit_reason": "completion", "reason": "other"}),
    "SessionEnd-prompt_input_exit": (
        "SessionEnd",
        {"exit_reason": "user_exit", "reason": "prompt_input_exit"},
    ),
    "SessionStart-clear": (
        "SessionStart",
        {"working_directory": "/home/dev/project", "environment": {"source": "clear"}},
    ),
    "SessionStart-compact-with-model": (
        "Notification",
        {"level": "info", "notification_type": "context_compacted", "model": "claude-opus-5-5"},
    ),
    "SessionStart-resume": (
        "SessionStart",
        {
            "working_directory": "/home/dev/project",
            "environment": {"source": "resume"},
            "context_tokens": 1240,
        },
    ),
    "SessionStart-startup": (
        "SessionStart",
        {"working_directory": "/home/dev/project", "environment": {"source": "startup"}},
    ),
    "SessionStart-startup-with-model": (
        "SessionStart",
        {"environment": {"source": "startup", "model": "claude-opus-5-5"}},
    ),
    "Stop": (
        "Stop",
        {"reason": "task_completed", "message": "Done: the command printed hi.", "context": IDLE},
    ),
    "Stop-background-running": (
        "Stop",
        {"reason": "task_completed", "context": {**IDLE, "background_tasks": BACKGROUND}},
    ),
    "StopFailure": (
        "Stop",
        {"reason": "error", "message": "API Error: 400 scripted bad request", "error": "unknown"},
    ),
    "SubagentStart": None,
    "SubagentStop-in-subagent": (
        "SubagentStop",
        {
            "result": "sub agent: result 42.",
            "context": {
                **IDLE,
                "background_tasks": BACKGROUND,
                "agent_id": "afdf6220138905b33",
                "agent_type": "general-purpose",
                "agent_transcript_path": SUBAGENTS.format(
                    "222b738b-a6d1-42cc-a086-e24ec9e10c1b", "afdf6220138905b33"
                ),
            },
        },
    ),
    "SubagentStop-in-subagent-compact-agent": ("SubagentStop", {"result": SUMMARY}),
    "UserPromptSubmit": ("UserPromptSubmit", {"prompt": "SCN:bash go"}),
    "UserPromptSubmit-task-notification": (
        "UserPromptSubmit",
        {
            "prompt": 'Agent "Sub job" finished: sub agent: result 42.',
            "context": {"synthetic": True},
        },
    ),
}


def test_the_table_covers_every_fixture() -> None:
    assert sorted(EXPECTED) == NAMES
    assert len(NAMES) == 44


@pytest.mark.parametrize("name", NAMES)
def test_a_real_event_arrives_translated(
    name: str, spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, hook: Hook
) -> None:
    raw = fixture(name)
    hook((FIXTURES / f"{name}.json").read_bytes())
    written = (spool / waiting(spool)[0]).stat().st_mtime
    forwarder.run_once()
    assert waiting(spool) == []
    expected = EXPECTED[name]
    if expected is None:
        assert bridge.requests == []
        return
    [event] = bridge.events  # the scripted bridge has validated it
    payload = event["payload"]
    assert (event["event"], event["session_id"]) == (expected[0], raw["session_id"])
    assert payload == payload | expected[1]
    assert str(uuid.UUID(event["event_id"])) == event["event_id"]
    assert parse_timestamp(event["timestamp"]).timestamp() == pytest.approx(written, abs=0.001)
    assert "occurred_at" not in event
    assert {key: payload[key] for key in COMMON & raw.keys()} == {
        key: raw[key] for key in COMMON & raw.keys()
    }
    if "tool_name" in raw:
        assert payload["params"] == raw["tool_input"]
        assert payload.get("tool_call_id") == raw.get("tool_use_id")
    if "tool_response" in raw:
        assert payload["result"] == raw["tool_response"]
    assert bridge.headers[0]["x-hook-source"] == "primary-agent"


def test_synthetic_only_marks_what_no_person_wrote(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, hook: Hook
) -> None:
    hook(fixture("UserPromptSubmit"))
    forwarder.run_once()
    assert "context" not in bridge.events[0]["payload"]
