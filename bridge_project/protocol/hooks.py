"""The nine hook events: the base that all share and the payload of each (SPEC Hook event; D1, D3,
D5, D31).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bridge_project.protocol.base import Received
from bridge_project.protocol.types import ExitReason, HookEventName, Number, RiskLevel, StopReason


@dataclass(frozen=True, slots=True)
class HookEvent:
    """A hook event that passed validation; what was sent is kept as it was sent.

    ``event_id`` is the producer's own, in lower case, or None; ``extra`` holds the other unknown
    top-level fields (D3).
    """

    event: str
    timestamp: str
    session_id: str
    payload: dict[str, Any]
    event_id: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def outbound(self, event_id: str) -> dict[str, Any]:
        """The payload of the ``agent_event`` message (D1)."""
        return {
            "event": self.event,
            "event_type": self.event,
            "event_id": event_id,
            "session_id": self.session_id,
            "timestamp": self.timestamp,
            "payload": self.payload,
            **self.extra,
        }


class SessionStartPayload(Received):
    working_directory: str
    initial_prompt: str | None = None
    environment: dict[str, Any] | None = None


class PreToolUsePayload(Received):
    tool: str
    params: dict[str, Any]
    risk_level: RiskLevel
    requires_approval: bool


class PostToolUsePayload(Received):
    """``result`` may be anything, null too, but must be there."""

    tool: str
    params: dict[str, Any]
    result: Any
    success: bool
    execution_time_ms: Number | None = None


class UserPromptSubmitPayload(Received):
    prompt: str
    context_files: list[str] | None = None
    estimated_tokens: int | None = None
    context: dict[str, Any] | None = None


class StopPayload(Received):
    reason: StopReason
    message: str | None = None
    context: dict[str, Any] | str | None = None


class SessionEndPayload(Received):
    duration_seconds: Number | None = None
    message_count: int | None = None
    exit_reason: ExitReason | None = None
    tools_used: list[str] | None = None
    summary: str | None = None
    exit_code: int | None = None


class SubagentStopPayload(Received):
    result: Any = None
    context: Any = None


class PreCompactPayload(Received):
    """Context statistics, whatever they are: the spec names no field."""


class NotificationPayload(Received):
    message: str | None = None
    level: str | None = None


PAYLOADS: Final[Mapping[HookEventName, type[Received]]] = {
    "SessionStart": SessionStartPayload,
    "SessionEnd": SessionEndPayload,
    "PreToolUse": PreToolUsePayload,
    "PostToolUse": PostToolUsePayload,
    "UserPromptSubmit": UserPromptSubmitPayload,
    "Stop": StopPayload,
    "SubagentStop": SubagentStopPayload,
    "PreCompact": PreCompactPayload,
    "Notification": NotificationPayload,
}
"""The documented payload of each event."""

ENFORCED: Final[Mapping[str, type[Received]]] = {
    name: PAYLOADS[name] for name in ("SessionStart", "PreToolUse", "PostToolUse")
}
"""The payloads that are checked; the other six need only be objects (D5)."""
