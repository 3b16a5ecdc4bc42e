"""Valid hook events to start from, and small words for tests."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

CALL = {"tool": "Bash", "params": {"command": "ls"}}
PAYLOADS: dict[str, dict[str, Any]] = {
    "SessionStart": {"working_directory": "/home/dev/project"},
    "SessionEnd": {"duration_seconds": 12.5},
    "PreToolUse": CALL | {"risk_level": "low", "requires_approval": False},
    "PostToolUse": CALL | {"result": "README.md", "success": True},
    "UserPromptSubmit": {"prompt": "Please add a test"},
    "Stop": {"reason": "task_completed"},
    "SubagentStop": {"result": "done"},
    "PreCompact": {"tokens": 1000},
    "Notification": {"message": "hello", "level": "info"},
}
EVENTS = tuple(PAYLOADS)


def now(seconds: float = 0) -> str:
    """ISO 8601 UTC, milliseconds, `seconds` away from now."""
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_id() -> str:
    return str(uuid.uuid4())


def new_session() -> str:
    return f"session-{uuid.uuid4()}"


def hook(event: str, session_id: str, payload: Any = None, /, **more: Any) -> dict[str, Any]:
    """A hook event; `more` adds or replaces top-level fields, a value of `...` takes one away."""
    body = {
        "event": event,
        "timestamp": now(),
        "session_id": session_id,
        "payload": dict(PAYLOADS[event]) if payload is None else payload,
    }
    body.update(more)
    return {name: value for name, value in body.items() if value is not ...}


def prompt(session_id: str, number: int | str, /, **more: Any) -> dict[str, Any]:
    """A UserPromptSubmit with a `number` to be recognised by; it makes its agent_event alone."""
    payload = {"prompt": f"prompt {number}", "number": number}
    return hook("UserPromptSubmit", session_id, payload, **more)
