"""Read call, outcome, title and notification from a hook event (D13, D37). Pure."""

import json
from datetime import datetime
from typing import Any

from bridge_project.kernel.text import printable
from bridge_project.protocol.hooks import HookEvent
from bridge_project.protocol.resources import Picture, ToolOutcome
from bridge_project.protocol.server_messages import Notification
from bridge_project.protocol.types import (
    NotificationType,
    Priority,
    SessionEndReason,
    parse_timestamp,
)
from sessions_app import notifications
from sessions_app.agents.diffs import diff_of_result
from sessions_app.agents.sanitize import truncate
from sessions_app.approvals import tool_result
from sessions_app.approvals.tool_call import MAIN_AGENT, Agent, Call, describe, usable_id
from sessions_app.models import Session

NAME_CHARS = 128
TASKS_KEPT = 100
# kinds of Notification that say that an MCP server asks the person at the machine (D65)
ELICITATIONS = ("elicitation", "elicitation_dialog", "elicitation_url_dialog")
ELICITED = ("elicitation_result", "elicitation_response", "elicitation_complete")  # answered
_END_REASONS: dict[object, SessionEndReason] = {
    "user_exit": "user_request",
    "error": "error",
    "completion": "completed",
}
_PROMPTS = {"SessionStart": "initial_prompt", "UserPromptSubmit": "prompt"}


def end_reason(event: HookEvent) -> SessionEndReason:
    """Return why a session ended; completed if its SessionEnd gives no reason."""
    return _END_REASONS.get(_text(event, "exit_reason"), "completed")


def tool_of(event: HookEvent) -> str:
    """Return the name of the event's tool as it is stored, or an empty string."""
    return printable(_text(event, "tool"))[:NAME_CHARS]


def time_of(event: HookEvent) -> datetime:
    """Return when an event happened, by its producer's clock (D47)."""
    try:
        return parse_timestamp(event.extra.get("occurred_at") or "")
    except (TypeError, ValueError):
        return parse_timestamp(event.timestamp)


def agent_of(event: HookEvent) -> Agent:
    """Return the subagent that an event is of, empty for the session's agent (D65)."""
    context = event.payload.get("context")
    named = event.payload if _text(event, "agent_id") or not isinstance(context, dict) else context
    id_, type_ = named.get("agent_id"), named.get("agent_type")
    if (usable := usable_id(id_)) is None:
        return MAIN_AGENT
    return Agent(usable, printable(type_)[:NAME_CHARS] if isinstance(type_, str) else "")


def directory_of(event: HookEvent) -> str:
    """Return where the session's own agent works, which agents put into ``cwd`` (D65)."""
    if agent_of(event).id:
        return ""
    found = _text(event, "working_directory") or _text(event, "cwd")
    return found.replace("\x00", "")


def prompt_of(event: HookEvent) -> str:
    """Return a person's prompt, which may become the session's title (D6)."""
    context = event.payload.get("context")
    if isinstance(context, dict) and context.get("synthetic") is True:
        return ""  # of the agent's own machinery
    return _text(event, _PROMPTS.get(event.event, ""))


def title_of(event: HookEvent) -> str:
    """Return the name that a person has given the session at the machine (`/rename`)."""
    return "" if agent_of(event).id else _text(event, "session_title")


def starts_program(event: HookEvent) -> bool:
    """Return whether the agent began afresh, so that its older questions are void.

    After ``compact`` the same program goes on, and what it asks with it.
    """
    environment = event.payload.get("environment")
    source = environment.get("source") if isinstance(environment, dict) else None
    return event.event == "SessionStart" and source in ("startup", "resume", "clear")


def leaves_subagents(event: HookEvent) -> bool:
    """Return whether the agent's subagents may still run, and wait for a decision."""
    context = event.payload.get("context")
    if not isinstance(context, dict):
        return False
    tasks = context.get("background_tasks")
    running = isinstance(tasks, list) and any(
        isinstance(task, dict) and (task.get("type"), task.get("status")) == ("subagent", "running")
        for task in tasks
    )
    return running or context.get("synthetic") is True


def tasks_of(event: HookEvent) -> str:
    """Return the ids of a Stop's running background tasks, as JSON (D65)."""
    context = event.payload.get("context")
    tasks = context.get("background_tasks") if isinstance(context, dict) else None
    running = [
        task["id"]
        for task in (tasks if isinstance(tasks, list) else [])
        if isinstance(task, dict) and task.get("status") == "running" and usable_id(task.get("id"))
    ]
    return json.dumps(running[:TASKS_KEPT]) if running else ""


def may_continue(event: HookEvent) -> bool:
    """Return whether a hook of the agent may send it on after this Stop (D65).

    It did before in this turn: true of each Stop after the first, also of the last one.
    """
    context = event.payload.get("context")
    continued = isinstance(context, dict) and context.get("stop_hook_active") is True
    return continued and _STOPS.get(_text(event, "reason"), _DONE) is _DONE


def goes_on(event: HookEvent) -> bool:
    """Return whether an event shows that the session's own agent works on."""
    return not agent_of(event).id and event.event in (
        *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"),
    )


def _text(event: HookEvent, name: str) -> str:
    value = event.payload.get(name)
    return value if isinstance(value, str) else ""


def call_of(event: HookEvent) -> Call:
    """Return the tool call of a PreToolUse or PostToolUse."""
    payload = event.payload
    tool, params = _text(event, "tool"), payload["params"]
    return Call(
        id=usable_id(payload.get("tool_call_id")) or usable_id(payload.get("tool_use_id")),
        tool=tool,
        params=params,
        description=describe(tool, params, payload.get("description")),
        risk_level=payload.get("risk_level", "medium"),
        reasoning=_text(event, "reasoning") or None,
        agent=agent_of(event),
    )


def elicitation_of(event: HookEvent) -> Call:
    """Return an MCP server's question, as a session's ``doing`` shows it."""
    return Call(id=None, tool="MCP", params={}, description=_text(event, "message") or "A question")


def failure_of(event: HookEvent) -> tool_result.Failure | None:
    """Return how a tool failed; None if it did not fail, or was interrupted."""
    result = event.payload["result"]
    interrupted = isinstance(result, dict) and result.get("interrupted") is True
    if event.payload["success"] or interrupted:
        return None
    return tool_result.failure_of(truncate(tool_result.readable(result)), _duration_ms(event))


def outcome_of(event: HookEvent) -> ToolOutcome:
    """Return a tool's result, shortened for display; ``agent_event`` has it in full."""
    payload, duration_ms = event.payload, _duration_ms(event)
    result, metadata = payload["result"], payload.get("metadata")
    if failure := failure_of(event):
        outcome = failure.outcome()
    elif payload["success"]:
        text, diff = truncate(tool_result.readable(result)), diff_of_result(result)
        outcome = ToolOutcome(success=True, content=text, diff=diff)
    else:
        outcome = ToolOutcome(success=False, content="", error=tool_result.INTERRUPTED)
    outcome.metadata = {**(metadata if isinstance(metadata, dict) else {}), **_started(result)}
    outcome.metadata = outcome.metadata or None
    outcome.pictures = [Picture(**one.block()) for one in event.pictures] or None
    outcome.duration_ms = None if duration_ms is None else round(duration_ms)
    return outcome


def _started(result: object) -> dict[str, Any]:
    """Return which subagent a call has started, and if it works on (D69)."""
    match result:
        case {"agentId": str(id_), **more} if usable_id(id_):
            return {"agent_id": id_} | ({"background": True} if more.get("isAsync") else {})
    return {}


def _duration_ms(event: HookEvent) -> float | None:
    duration_ms = event.payload.get("execution_time_ms")
    return duration_ms if isinstance(duration_ms, int | float) and duration_ms >= 0 else None


Kind = tuple[NotificationType, str, Priority]  # type, title, priority
_STOPS: dict[str, Kind] = {
    "user_request": ("task_complete", "Stopped by the user", "low"),
    "error": ("error", "The agent stopped with an error", "high"),
    "tool_error": ("error", "The agent stopped: a tool failed", "high"),
    "max_tokens": ("error", "The agent reached its token limit", "normal"),
    "safety": ("error", "The agent stopped for safety", "high"),
}
_DONE: Kind = ("task_complete", "The agent is done", "normal")
_WAITS: Kind = ("agent_notification", "The agent is waiting", "low")
_ENDED: Kind = ("task_complete", "The session ended", "low")
_CLEARED: Kind = ("task_complete", "The conversation was cleared", "low")
_FAILED: Kind = ("error", "The session ended with an error", "normal")


def notification_of(event: HookEvent, session: Session) -> Notification | None:
    """Return an event's notification or None; without text, the title is its body."""
    data: dict[str, Any]
    match event.event:
        case "Stop":
            data = {"reason": _text(event, "reason") or "task_completed"}
            kind = _STOPS.get(data["reason"], _DONE)
            body = _text(event, "message") or _text(event, "error")
            if kind is _DONE and leaves_subagents(event):
                kind, body = _WAITS, "The agent is waiting for its subagents."
        case "SessionEnd" if _text(event, "reason") == "clear":
            data = {"exit_reason": _text(event, "exit_reason")}
            kind, body = _CLEARED, "The agent goes on in a new session."
        case "SessionEnd":
            data = {"exit_reason": _text(event, "exit_reason")}
            kind = _FAILED if data["exit_reason"] == "error" else _ENDED
            body = _text(event, "summary")
        case "Notification":
            data = {"kind": _text(event, "notification_type"), "level": _text(event, "level")}
            if data["kind"] == "permission_prompt" and session.pending_approvals > 0:
                return None  # the approval said so
            if data["kind"] in ELICITED:
                return None  # that it waited was the news
            if data["kind"] in ELICITATIONS:
                data = {"kind": "elicitation"}
            kind, body = _agents_own(**data), _text(event, "message")
        case _:
            return None
    type_, title, priority = kind
    data |= {"session_id": session.session_id, "priority": priority}
    return notifications.make(type_, title, body or session.title, **data)


def _agents_own(kind: str, level: str = "") -> Kind:
    if kind == "idle_prompt":
        return "agent_idle", "The agent is waiting for you", "normal"
    if kind == "elicitation":
        return "approval_required", "An MCP server asks at the machine", "high"
    if kind == "hook_rejected":
        return "error", "A hook event was set aside", "high"
    if level in ("error", "critical", "fatal"):
        return "error", "The agent reports an error", "high"
    urgent = kind == "permission_prompt" or level in ("warning", "warn")
    priority: Priority = "high" if urgent else "low" if level == "debug" else "normal"
    return "agent_notification", "The agent says", priority
