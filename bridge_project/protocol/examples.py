"""Give one example of each hook event, for the OpenAPI document."""

from collections.abc import Mapping
from typing import Any, Final

from bridge_project.protocol.types import HookEventName

_SESSION: Final = "5f0c1f9e-6a57-4c43-9d0e-0d1d5f8b8a11"

_PAYLOADS: Final[Mapping[HookEventName, dict[str, Any]]] = {
    "SessionStart": {
        "working_directory": "/home/dev/project",
        "initial_prompt": "Add a test for the parser",
        "environment": {"source": "startup"},
    },
    "SessionEnd": {"duration_seconds": 312.5, "message_count": 4, "exit_reason": "user_exit"},
    "PreToolUse": {
        "tool": "Bash",
        "params": {"command": "rm -r build"},
        "risk_level": "high",
        "requires_approval": True,
    },
    "PostToolUse": {
        "tool": "Bash",
        "params": {"command": "ls"},
        "result": {"stdout": "parser.py"},
        "success": True,
        "execution_time_ms": 12.5,
    },
    "UserPromptSubmit": {
        "prompt": "Add a test for the parser",
        "context_files": ["parser.py"],
        "estimated_tokens": 7,
    },
    "Stop": {"reason": "task_completed", "message": "The test is there."},
    "SubagentStop": {"result": "Three usages were found.", "context": {"agent": "explore"}},
    "PreCompact": {"tokens": 150_000, "trigger": "auto"},
    "Notification": {"message": "The agent waits for your input", "level": "info"},
}

HOOK_EVENTS: Final[Mapping[HookEventName, dict[str, Any]]] = {
    event: {
        "event": event,
        "timestamp": "2026-01-31T12:00:00.000Z",
        "session_id": _SESSION,
        "payload": payload,
    }
    for event, payload in _PAYLOADS.items()
}
USER_EVENT: Final = {
    "type": "user_message",
    "content": "Please add a test",
    "metadata": {"source": "mobile", "client_version": "1.0.0"},
}
