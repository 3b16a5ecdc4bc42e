"""The payload of every message that the bridge sends, one model each (SPEC WebSocket operations and
errors; D10, D11, D13, D29, D38).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from bridge_project.protocol import client_messages
from bridge_project.protocol.base import ServerPayload
from bridge_project.protocol.resources import (
    DiffFile,
    DirectoryEntry,
    GitChange,
    GitCommitSummary,
    HealthChecks,
    SessionInfo,
    ToolErrorDetails,
    ToolOutcome,
    Violation,
)
from bridge_project.protocol.types import (
    ApprovalSource,
    ConnectionMode,
    Count,
    Decision,
    FileEncoding,
    FinishReason,
    HookEventName,
    NotificationType,
    Number,
    Priority,
    RiskLevel,
    Timestamp,
    ToolErrorCode,
)

__all__ = [
    "SERVER_PAYLOADS",
    "AcknowledgmentAccepted",
    "AgentEvent",
    "ApprovalRecorded",
    "ApprovalRequired",
    "ConnectionAck",
    "ConnectionError_",
    "DiffFile",
    "DirectoryEntry",
    "Error_",
    "FileListResponse",
    "FileReadResponse",
    "GitChange",
    "GitCommitSummary",
    "GitDiffResponse",
    "GitStatusResponse",
    "HealthChecks",
    "HealthStatus",
    "HeartbeatPong",
    "Notification",
    "ReplayBuffer",
    "SessionEnd",
    "SessionInfo",
    "SessionReady",
    "SessionStarted",
    "StreamChunk",
    "StreamEnd",
    "StreamStart",
    "ToolCall",
    "ToolError",
    "ToolErrorDetails",
    "ToolOutcome",
    "ToolResult",
    "Violation",
]

# -- handshake -------------------------------------------------------------------------------------


class ConnectionAck(ServerPayload):
    type: ClassVar[str] = "connection_ack"
    server_version: str
    supported_agents: list[str]
    connection_mode: ConnectionMode
    connection_mode_description: str
    bridge_url: str
    requires_health_verification: bool = True
    active_sessions: list[SessionInfo]
    device_token: str | None = Field(
        None,
        description="Takes the place of the pairing code's token: store it, then use it. From its"
        " first use the code's token is refused. Sent until then, another one each time; only to a"
        " device that gave a `device_id`.",
    )


class ConnectionError_(ServerPayload):
    """The bridge closes the connection after it (D21)."""

    type: ClassVar[str] = "connection_error"
    code: str
    message: str
    documentation_url: str | None = None
    remediation: str | None = None
    details: dict[str, Any] | None = None


class HealthStatus(ServerPayload):
    """``warning_details`` is keyed by warning code."""

    type: ClassVar[str] = "health_status"
    status: Literal["healthy", "warning"]
    connection_mode: ConnectionMode
    warnings: list[str]
    warning_details: dict[str, Any]
    checks: HealthChecks
    server_timestamp: Timestamp
    latency_ms: Number
    ready: bool
    requires_acknowledgment: bool


class AcknowledgmentAccepted(ServerPayload):
    type: ClassVar[str] = "acknowledgment_accepted"
    warning_code: str
    ready: bool
    session_timeout: str


class HeartbeatPong(ServerPayload):
    """Has no payload: ``type`` and ``timestamp`` are all that is sent."""

    type: ClassVar[str] = "heartbeat_pong"


# -- sessions and chat -----------------------------------------------------------------------------


class SessionReady(ServerPayload):
    """``branch`` is empty where the working directory is in no git repository.

    ``asks``, which the contract does not have: the agent asks before it changes or runs something
    (D59); null when nobody knows, as of a session that is known by its hooks only.
    """

    type: ClassVar[str] = "session_ready"
    nullable: ClassVar[frozenset[str]] = frozenset({"asks"})
    session_id: str
    agent: str
    working_directory: str
    branch: str = ""
    status: Literal["ready"] = "ready"
    asks: bool | None = None


SessionEnd = client_messages.SessionEnd  # both sides send it


class SessionStarted(ServerPayload):
    type: ClassVar[str] = "session_started"
    session_id: str


class StreamStart(ServerPayload):
    type: ClassVar[str] = "stream_start"
    session_id: str
    message_id: str


class StreamChunk(ServerPayload):
    type: ClassVar[str] = "stream_chunk"
    session_id: str
    message_id: str
    content: str
    is_tool_use: bool


class StreamEnd(ServerPayload):
    """``usage`` (added): what the turn took, as far as the agent says: tokens, cost,
    ``duration_ms``; with the turn's last one only.
    """

    type: ClassVar[str] = "stream_end"
    session_id: str
    message_id: str
    finish_reason: FinishReason
    usage: dict[str, Any] | None = None


class ReplayBuffer(ServerPayload):
    """``messages`` are whole envelopes; ``complete`` false says that older ones have already been
    discarded (D29).
    """

    type: ClassVar[str] = "replay_buffer"
    session_id: str
    messages: list[dict[str, Any]]
    complete: bool


# -- tools, approvals, hook events -----------------------------------------------------------------


class ToolCall(ServerPayload):
    type: ClassVar[str] = "tool_call"
    session_id: str
    tool_call_id: str
    tool: str
    params: dict[str, Any]
    description: str


class ApprovalRequired(ServerPayload):
    """``description`` is never empty (D37)."""

    type: ClassVar[str] = "approval_required"
    session_id: str
    tool_call_id: str
    tool: str
    params: dict[str, Any]
    description: str = Field(min_length=1)
    risk_level: RiskLevel
    source: ApprovalSource
    reasoning: str | None = None


class ApprovalRecorded(ServerPayload):
    """The answer to ``approval_response``; ``forwarded`` false says that no agent session took it
    (D38).
    """

    type: ClassVar[str] = "approval_recorded"
    session_id: str
    tool_call_id: str
    decision: Decision
    forwarded: bool
    decided_at: Timestamp


class ToolResult(ServerPayload):
    type: ClassVar[str] = "tool_result"
    session_id: str
    tool_call_id: str
    tool: str
    result: ToolOutcome


class ToolError(ServerPayload):
    """``max_retries`` is how often the spec's retry policy lets this kind of failure be tried
    again.
    """

    type: ClassVar[str] = "tool_error"
    session_id: str
    tool_call_id: str
    tool: str
    code: ToolErrorCode
    message: str
    details: ToolErrorDetails
    retryable: bool
    max_retries: Count


class AgentEvent(ServerPayload):
    """A hook event, passed on with whatever else it carried (D1, D3)."""

    model_config = ConfigDict(extra="allow")

    type: ClassVar[str] = "agent_event"
    event: HookEventName
    event_type: HookEventName
    event_id: str
    session_id: str
    timestamp: Timestamp
    payload: dict[str, Any]


# -- git and files ---------------------------------------------------------------------------------


class GitStatusResponse(ServerPayload):
    """``commit`` is there only in the answer to ``git_commit``; ``truncated``: there are more
    changes (D10).
    """

    type: ClassVar[str] = "git_status_response"
    session_id: str
    branch: str
    ahead: Count
    behind: Count
    is_clean: bool
    changes: list[GitChange]
    commit: GitCommitSummary | None = None
    truncated: bool | None = None


class GitDiffResponse(ServerPayload):
    """``truncated``: some file has more lines, or there are more files, than one answer holds
    (D10).
    """

    type: ClassVar[str] = "git_diff_response"
    session_id: str
    files: list[DiffFile]
    truncated: bool | None = None


class FileListResponse(ServerPayload):
    """``path`` is the directory's real path; ``truncated`` only when something was cut: there is
    more than one answer shows.
    """

    type: ClassVar[str] = "file_list_response"
    session_id: str
    path: str
    entries: list[DirectoryEntry]
    truncated: Literal[True] | None = None


class FileReadResponse(ServerPayload):
    """``size``: bytes of the file; ``lines``: lines of the file; a binary one comes whole as base64
    (D11).
    """

    type: ClassVar[str] = "file_read_response"
    session_id: str
    path: str
    content: str
    size: Count
    lines: Count
    encoding: FileEncoding = "utf-8"


# -- notifications and errors ----------------------------------------------------------------------


class Notification(ServerPayload):
    """``notification_id`` equals the envelope's id; ``session_id`` null: about no session (D13,
    D15).
    """

    type: ClassVar[str] = "notification"
    nullable: ClassVar[frozenset[str]] = frozenset({"session_id"})
    notification_id: str
    session_id: str | None = None
    notification_type: NotificationType
    title: str
    body: str
    priority: Priority
    data: dict[str, Any]


class Error_(ServerPayload):
    """``session_id`` null: about no session."""

    type: ClassVar[str] = "error"
    nullable: ClassVar[frozenset[str]] = frozenset({"session_id"})
    code: str
    message: str
    session_id: str | None = None
    recoverable: bool
    violations: list[Violation] | None = None
    details: dict[str, Any] | None = None


SERVER_PAYLOADS: tuple[type[ServerPayload] | type[SessionEnd], ...] = (
    ConnectionAck,
    ConnectionError_,
    HealthStatus,
    AcknowledgmentAccepted,
    HeartbeatPong,
    SessionReady,
    SessionStarted,
    SessionEnd,
    StreamStart,
    StreamChunk,
    StreamEnd,
    ReplayBuffer,
    ToolCall,
    ApprovalRequired,
    ApprovalRecorded,
    ToolResult,
    ToolError,
    AgentEvent,
    GitStatusResponse,
    GitDiffResponse,
    FileListResponse,
    FileReadResponse,
    Notification,
    Error_,
)
