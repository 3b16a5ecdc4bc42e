"""From a hook event to what devices get of it. Pure: ``ingest`` and ``effects`` write what this
returns (SPEC Hook events consumed; D13, D37).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge_project.protocol import jsontext
from bridge_project.protocol.catalogue import Encoded, encode_raw
from bridge_project.protocol.hooks import HookEvent
from bridge_project.protocol.resources import ToolOutcome
from bridge_project.protocol.types import NotificationType, Priority, SessionEndReason
from sessions_app.approvals.tool_call import Call, describe, usable_id

_END_REASONS: dict[object, SessionEndReason] = {
    "user_exit": "user_request",
    "error": "error",
    "completion": "completed",
}


def agent_event(event: HookEvent, event_id: str) -> Encoded:
    """The event itself, for whoever has joined its session (D1). Its envelope has an id of its own
    (D4).
    """
    return encode_raw("agent_event", event.outbound(event_id))


def end_reason(event: HookEvent) -> SessionEndReason:
    """Why a session ended, from what its SessionEnd says; a completed one if it says nothing."""
    return _END_REASONS.get(_text(event.payload.get("exit_reason")), "completed")


def tool_of(event: HookEvent) -> str:
    """The tool that the event is about, or an empty string."""
    return _text(event.payload.get("tool"))


def directory_of(event: HookEvent) -> str:
    """Where the agent works: what SessionStart says, else the ``cwd`` that agents put into every
    event.
    """
    return (
        _text(event.payload.get("working_directory")) or _text(event.payload.get("cwd"))
    ).replace("\x00", "")


def prompt_of(event: HookEvent) -> str:
    """The prompt that the event carries, which may become its session's title (D6)."""
    if _synthetic(event):
        return ""
    return _text(
        event.payload.get(
            {"SessionStart": "initial_prompt", "UserPromptSubmit": "prompt"}.get(event.event, "")
        )
    )


def _synthetic(event: HookEvent) -> bool:
    """Whether a prompt came from the agent's own machinery and not from a person."""
    context = event.payload.get("context")
    return isinstance(context, dict) and context.get("synthetic") is True


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# -- tool calls (D37) ------------------------------------------------------------------------------


def call_of(event: HookEvent) -> Call:
    """The tool call that a PreToolUse or PostToolUse is about."""
    payload = event.payload
    tool, params = tool_of(event), payload["params"]
    return Call(
        id=usable_id(payload.get("tool_call_id")) or usable_id(payload.get("tool_use_id")),
        tool=tool,
        params=params,
        description=describe(tool, params, payload.get("description")),
        risk_level=payload.get("risk_level", "medium"),
        reasoning=_text(payload.get("reasoning")) or None,
    )


def outcome_of(event: HookEvent) -> ToolOutcome:
    """What a tool gave: readable text, the change it made to a file, how long it took; the whole
    result is in the ``agent_event``.
    """
    payload = event.payload
    result, success, took = payload["result"], payload["success"], payload.get("execution_time_ms")
    return ToolOutcome(
        success=success,
        content=_readable(result),
        diff=_diff(result),
        metadata=payload["metadata"] if isinstance(payload.get("metadata"), dict) else None,
        error=None if success else _readable(result) or "The tool failed.",
        duration_ms=round(took) if isinstance(took, int | float) and took >= 0 else None,
    )


def _diff(result: Any) -> str | None:
    """The change that an edit made, as the hunks of a unified diff, if the agent says it."""
    patch = result.get("structuredPatch") if isinstance(result, dict) else None
    if not isinstance(patch, list):
        return None
    lines = []
    for hunk in patch:
        if not isinstance(hunk, dict) or not isinstance(hunk.get("lines"), list):
            return None
        old, old_count, new, new_count = (
            hunk.get(name, 0) for name in ("oldStart", "oldLines", "newStart", "newLines")
        )
        lines += [
            f"@@ -{old},{old_count} +{new},{new_count} @@",
            *(str(line) for line in hunk["lines"]),
        ]
    return "\n".join([*lines, ""]) or None


def _readable(result: Any) -> str:
    """Text as it is; of a command what it printed; of a failure what went wrong; anything else as
    JSON.
    """
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        printed = [
            result[name]
            for name in ("stdout", "stderr")
            if isinstance(result.get(name), str) and result[name]
        ]
        if isinstance(result.get("stdout"), str):
            return "\n".join(part.rstrip("\n") for part in printed)
        for name in ("error", "content"):
            if isinstance(result.get(name), str):
                return str(result[name])
    return "" if result is None else jsontext.dumps_unicode(result)


# -- notifications (D13) ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notice:
    """What a person should know of an event."""

    type: NotificationType
    title: str
    body: str
    priority: Priority = "normal"
    data: Mapping[str, Any] = field(default_factory=dict)


_STOPS: dict[object, tuple[NotificationType, str, Priority]] = {
    "user_request": ("task_complete", "Stopped by the user", "low"),
    "error": ("error", "The agent stopped with an error", "high"),
    "tool_error": ("error", "The agent stopped: a tool failed", "high"),
    "max_tokens": ("error", "The agent reached its token limit", "normal"),
    "safety": ("error", "The agent stopped for safety", "high"),
}
_IDLE = "idle_prompt"
_PERMISSION = "permission_prompt"


def notice_of(event: HookEvent, *, waiting: bool) -> Notice | None:
    """The notification that an event gives rise to; ``waiting``: an approval of its session is
    pending, which was notified already.
    """
    payload = event.payload
    match event.event:
        case "Stop":
            reason = _text(payload.get("reason"))
            type_, title, priority = _STOPS.get(
                reason, ("task_complete", "The agent is done", "normal")
            )
            return Notice(
                type_,
                title,
                _text(payload.get("message")) or _text(payload.get("error")),
                priority,
                {"reason": reason or "task_completed"},
            )
        case "SessionEnd":
            failed = payload.get("exit_reason") == "error"
            title = "The session ended with an error" if failed else "The session ended"
            data = (
                {"exit_reason": _text(payload.get("exit_reason"))}
                if payload.get("exit_reason")
                else {}
            )
            return Notice(
                "error" if failed else "task_complete",
                title,
                _text(payload.get("summary")),
                "normal" if failed else "low",
                data,
            )
        case "Notification":
            return _agents_own(payload, waiting=waiting)
    return None


def _agents_own(payload: Mapping[str, Any], *, waiting: bool) -> Notice | None:
    kind, level, message = (
        _text(payload.get(name)) for name in ("notification_type", "level", "message")
    )
    if kind == _PERMISSION and waiting:
        return None  # the approval said so
    data = {name: value for name, value in (("kind", kind), ("level", level)) if value}
    if kind == _IDLE:
        return Notice("agent_idle", "The agent waits for you", message, "normal", data)
    if level in ("error", "critical", "fatal"):
        return Notice("error", "The agent reports an error", message, "high", data)
    urgent = kind == _PERMISSION or level in ("warning", "warn")
    return Notice(
        "agent_notification",
        "The agent says",
        message,
        "high" if urgent else "low" if level == "debug" else "normal",
        data,
    )
