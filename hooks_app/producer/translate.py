"""Translate the agent's JSON into a hook event (SPEC Hook event, D37, D47)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, NamedTuple

from bridge_project.kernel.process_note import ProcessNote
from bridge_project.protocol.agent_text import for_person, made_prompt
from bridge_project.protocol.risk import risk_of

SOURCE = "primary-agent"  # of an agent without another name
EVENT_MAX_BYTES = 2**20
EVENT_MAX_DEPTH = 100  # of lists and objects in each other, itself included
FRESH_SECONDS = 240.0  # the bridge takes 300 either side; the rest is for the way there

EXIT_REASONS = {
    "bypass_permissions_disabled": "error",
    **dict.fromkeys(("clear", "logout", "prompt_input_exit", "resume"), "user_exit"),
}
SURROGATES = re.compile("[\ud800-\udfff]")

Raw = dict[str, Any]
Translated = tuple[str, dict[str, Any]]  # event and payload


class Event(NamedTuple):
    """Hold an event and its JSON, which a sender on another machine posts.

    ``process``: the agent's, which means something on its own machine only and is not posted, but
    for the agent's name.
    """

    fields: Raw
    body: bytes
    process: ProcessNote | None = None

    @property
    def source(self) -> str:
        """Return what X-Hook-Source says: the agent's name."""
        return (self.process and self.process.agent) or SOURCE


class NeverAnEvent(ValueError):
    """Report why a file of the spool can never be sent."""


def _present(raw: Raw, *names: str, **renamed: str) -> Raw:
    """Return the non-null fields of ``raw``; ``renamed``: new name → old."""
    found = {**dict(zip(names, names)), **renamed}
    return {new: raw[old] for new, old in found.items() if raw.get(old) is not None}


def _tool(raw: Raw) -> Raw:
    params = raw.get("tool_input")
    params = params if isinstance(params, dict) else {} if params is None else {"input": params}
    tool = {"tool": str(raw.get("tool_name") or "unknown"), "params": params}
    call = raw.get("tool_use_id")
    return {**tool, "tool_call_id": call} if isinstance(call, str) and call else tool


def _session_start(raw: Raw) -> Translated:
    known = _present(raw, "source", "model")
    if raw.get("source") == "compact":  # the same session goes on: it must not look like a new one
        text = {"message": "The conversation was compacted.", "level": "info"}
        return "Notification", {**text, "notification_type": "context_compacted", **known}
    return "SessionStart", {"working_directory": str(raw.get("cwd") or ""), "environment": known}


def _pre_tool(raw: Raw) -> Translated:
    """Translate a call, or the question whether it may run."""
    tool = _tool(raw)
    risk = risk_of(tool["tool"], tool["params"])
    asks = raw["hook_event_name"] == "PermissionRequest"
    asked = {"permission_request": True} if asks else {}
    return "PreToolUse", {**tool, "risk_level": risk, "requires_approval": asks, **asked}


def _post_tool(raw: Raw) -> Translated:
    result = raw.get("tool_response")
    success = raw["hook_event_name"] == "PostToolUse"
    if not success:
        result = {"error": raw.get("error"), "interrupted": bool(raw.get("is_interrupt"))}
    took = raw.get("duration_ms")
    a_number = isinstance(took, (int, float)) and not isinstance(took, bool)
    timed = {"execution_time_ms": took} if a_number else {}
    return "PostToolUse", {**_tool(raw), "result": result, "success": success, **timed}


def _prompt(raw: Raw) -> Translated:
    prompt = str(raw.get("prompt") or "")
    if (made := made_prompt(prompt)) is not None:
        return "UserPromptSubmit", {"prompt": made, "context": {"synthetic": True}}
    return "UserPromptSubmit", {"prompt": prompt}


_WORK = ("background_tasks", "session_crons", "stop_hook_active")


def _stop(raw: Raw) -> Translated:
    message = _present(raw, message="last_assistant_message")
    return "Stop", {"reason": "task_completed", **message, "context": _present(raw, *_WORK)}


def _failed_stop(raw: Raw) -> Translated:
    reason = "max_tokens" if re.search("max.*token", str(raw.get("error"))) else "error"
    return "Stop", {**_stop(raw)[1], "reason": reason, **_present(raw, "error")}


def _session_end(raw: Raw) -> Translated:
    reason = str(raw.get("reason") or "other")
    exit_reason = EXIT_REASONS.get(reason, "error" if "error" in reason else "completion")
    return "SessionEnd", {"exit_reason": exit_reason, "reason": reason}


def _subagent_stop(raw: Raw) -> Translated:
    context = _present(raw, "agent_id", "agent_type", "agent_transcript_path", *_WORK)
    message = raw.get("last_assistant_message")
    result = for_person(message) if isinstance(message, str) else message
    return "SubagentStop", {"result": result, "context": context}


def _elicitation(raw: Raw) -> Translated:
    """Translate an MCP server's question to the person, or that it was answered."""
    server = str(raw.get("mcp_server_name") or "An MCP server")
    if raw["hook_event_name"] == "ElicitationResult":
        text, kind = f"{server} was answered: {raw.get('action')}", "elicitation_result"
    else:
        text, kind = f"{server}: {raw.get('message') or 'needs your input'}", "elicitation"
    return "Notification", {"message": text, "level": "info", "notification_type": kind}


def _notification(raw: Raw) -> Translated:
    kind = str(raw.get("notification_type") or "")
    usual = "warning" if kind == "permission_prompt" else "error" if "error" in kind else "info"
    message = str(raw.get("message") or "")
    return "Notification", {"message": message, "level": raw.get("level") or usual}


# The agent's event → its translation, and the agent's fields that this replaces; all other fields
# stay in the payload (D3). Events that are not listed (MessageDisplay, PostToolBatch,
# SubagentStart, PostCompact, model switches, and future ones) are not sent.
_TOOL_FIELDS = ("tool_name", "tool_input", "tool_use_id", "duration_ms")
_STOP_FIELDS = ("last_assistant_message", *_WORK)
TRANSLATIONS: dict[str, tuple[Callable[[Raw], Translated], tuple[str, ...]]] = {
    "SessionStart": (_session_start, ("source", "model")),
    "PreToolUse": (_pre_tool, _TOOL_FIELDS),
    "PermissionRequest": (_pre_tool, _TOOL_FIELDS),
    "PostToolUse": (_post_tool, (*_TOOL_FIELDS, "tool_response")),
    "PostToolUseFailure": (_post_tool, (*_TOOL_FIELDS, "error", "is_interrupt")),
    "UserPromptSubmit": (_prompt, ("prompt",)),
    "Stop": (_stop, _STOP_FIELDS),
    "StopFailure": (_failed_stop, _STOP_FIELDS),
    "SessionEnd": (_session_end, ()),
    "SubagentStop": (_subagent_stop, _STOP_FIELDS),
    "PreCompact": (lambda raw: ("PreCompact", {"trigger": raw.get("trigger")}), ()),
    "Notification": (_notification, ()),
    "Elicitation": (_elicitation, ("message",)),
    "ElicitationResult": (_elicitation, ("content",)),  # what was typed is no news for a phone
}


def translate(
    raw: Raw, *, now: float, mtime: float, event_id: str | None = None, offset: float = 0.0
) -> Event | None:
    """Return a hook's JSON as an event, or None when the bridge ignores it.

    ``mtime``: when the hook ran; ``now``: this machine's time, both seconds since 1970. A hook that
    ran long ago, or on a clock that is ``offset`` seconds from the server's, gets the server's
    time, and its own in ``occurred_at``. Over EVENT_MAX_BYTES it is cut and says so.
    Raises NeverAnEvent, also over EVENT_MAX_DEPTH, ValueError when JSON cannot hold it.
    """
    kind, session = raw.get("hook_event_name"), raw.get("session_id")
    if not isinstance(kind, str) or not kind:
        raise NeverAnEvent("no hook_event_name")
    if kind not in TRANSLATIONS:
        return None
    if not isinstance(session, str) or not session:
        raise NeverAnEvent("no session_id")
    make, used = TRANSLATIONS[kind]
    event, fields = make(raw)
    gone = {*used, *fields, "hook_event_name", "session_id"}
    late = bool(offset) or abs(now - mtime) > FRESH_SECONDS
    body = {
        "event": event,
        **({"event_id": event_id} if event_id else {}),
        "timestamp": iso(now + offset if late else mtime),
        "session_id": session,
        "payload": {**fields, **{name: raw[name] for name in raw if name not in gone}},
        **({"occurred_at": iso(mtime)} if late else {}),
    }
    return _fit(_clean(body))


def iso(seconds: float) -> str:
    """Return ISO 8601 UTC; clamp what no date can hold."""
    seconds = min(max(seconds, 0.0), 253402300799.0)
    when = datetime.fromtimestamp(seconds, timezone.utc)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _clean(value: Any, room: int = EVENT_MAX_DEPTH) -> Any:
    """Replace lone surrogates, which UTF-8 cannot carry, by U+FFFD.

    Raises NeverAnEvent for more than ``room`` lists and objects in each other.
    """
    if isinstance(value, str):
        return value if value.isascii() else SURROGATES.sub("\ufffd", value)
    if not isinstance(value, (dict, list)):
        return value
    if not room:
        raise NeverAnEvent("nested too deeply")
    if isinstance(value, dict):
        return {_clean(name): _clean(item, room - 1) for name, item in value.items()}
    return [_clean(item, room - 1) for item in value]


def _fit(event: Raw) -> Event:
    """Cut the longest strings and lists to EVENT_MAX_BYTES, and mark the event."""
    body, keep = dump(event), EVENT_MAX_BYTES
    if (size := len(body)) <= EVENT_MAX_BYTES:
        return Event(event, body)
    while keep >= 16:
        keep //= 2
        cut = _cut(event["payload"], keep)
        shorter = {**event, "payload": {**cut, "truncated": True, "original_bytes": size}}
        if len(body := dump(shorter)) <= EVENT_MAX_BYTES:
            return Event(shorter, body)
    raise NeverAnEvent(f"cannot be cut to {EVENT_MAX_BYTES} bytes")


def _cut(value: Any, keep: int) -> Any:
    if isinstance(value, str):
        over = len(value) - keep
        return value if over <= 64 else f"{value[:keep]}… [{over} characters cut]"
    if isinstance(value, dict):
        return {name: _cut(item, keep) for name, item in list(value.items())[: max(keep, 32)]}
    return [_cut(item, keep) for item in value[:keep]] if isinstance(value, list) else value
