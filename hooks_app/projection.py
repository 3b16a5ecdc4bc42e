"""From a hook event to the messages that devices get. Pure: the ingest writes what this returns (SPEC Hook events consumed)."""

from __future__ import annotations

from bridge_project.protocol.catalogue import Encoded, encode_raw
from bridge_project.protocol.hooks import HookEvent
from bridge_project.protocol.types import SessionEndReason

_END_REASONS: dict[object, SessionEndReason] = {"user_exit": "user_request", "error": "error", "completion": "completed"}


def agent_event(event: HookEvent, event_id: str) -> Encoded:
    """The event itself, for whoever has joined its session (D1). Its envelope has an id of its own (D4)."""
    return encode_raw("agent_event", event.outbound(event_id))


def end_reason(event: HookEvent) -> SessionEndReason:
    """Why a session ended, from what its SessionEnd says; a completed one if it says nothing."""
    return _END_REASONS.get(_text(event.payload.get("exit_reason")), "completed")


def tool_of(event: HookEvent) -> str:
    """The tool that the event is about, or an empty string."""
    return _text(event.payload.get("tool"))


def directory_of(event: HookEvent) -> str:
    """Where the agent works: what SessionStart says, else the ``cwd`` that agents put into every event."""
    return (_text(event.payload.get("working_directory")) or _text(event.payload.get("cwd"))).replace("\x00", "")


def prompt_of(event: HookEvent) -> str:
    """The prompt that the event carries, which may become its session's title (D6)."""
    if _synthetic(event):
        return ""
    return _text(event.payload.get({"SessionStart": "initial_prompt", "UserPromptSubmit": "prompt"}.get(event.event, "")))


def _synthetic(event: HookEvent) -> bool:
    """Whether a prompt came from the agent's own machinery and not from a person."""
    context = event.payload.get("context")
    return isinstance(context, dict) and context.get("synthetic") is True


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
