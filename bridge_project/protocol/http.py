"""Define the HTTP bodies, one model each (D8, D9, D32)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from bridge_project.kernel import limits
from bridge_project.protocol import types
from bridge_project.protocol.base import Received, Sent
from bridge_project.protocol.hooks import HookEventBody
from bridge_project.protocol.push_messages import PushSubscription
from bridge_project.protocol.resources import SessionState


class RecentEvent(Sent):
    """Hold a session's recent event; ``tool`` only for events about a tool."""

    type: str
    timestamp: types.Timestamp
    tool: str | None = None


class Session(SessionState):
    """Describe a session (D35).

    ``recent_events`` only in the view of a single session: the last 20, newest first.
    """

    id: str
    agent_type: str
    title: str
    working_directory: str
    status: types.SessionStatus
    created_at: types.Timestamp
    websocket_connected: bool
    hook_count: types.Count
    recent_events: list[RecentEvent] | None = None


class SessionList(Sent):
    sessions: list[Session]
    total: types.Count


class SessionsAsked(Received):
    """Describe the query of GET /sessions (D73)."""

    model_config = ConfigDict(strict=False)  # everything in it is text
    query: str | None = Field(None, max_length=limits.SEARCH_QUERY_CHARS)
    archived: bool | None = None
    limit: int | None = Field(None, ge=1)
    before: types.Timestamp | None = None


class UserEvent(Received):
    """Describe the body of POST /sessions/:id/events.

    ``attachments``: as of a `message`.
    """

    type: Literal["user_message"]  # another one, say an interrupt, must not begin a turn
    content: types.Prompt
    attachments: types.AttachmentIds | None = None
    metadata: dict[str, Any] | None = None


class Attachment(Sent):
    """Describe a stored file; ``type``: by its first bytes, whatever the sender says."""

    attachment_id: str
    name: str
    type: types.AttachmentType
    size: types.Count
    sha256: str


class PushReceipt(Received):
    """Describe the body of POST /push/receipt: the push that was shown."""

    notification_id: str = Field(max_length=limits.CLIENT_MESSAGE_ID_MAX_CHARS)


class PushReceived(Sent):
    """Answer a receipt; ``recorded`` false: it was not the device's last push."""

    recorded: bool


class PushRenewal(Received):
    """Describe the body of POST /push/subscription."""

    subscription: PushSubscription


class PushRenewed(Sent):
    subscribed: bool


class UserEventAccepted(Sent):
    """Answer a message; ``accepted`` false: the session is only observed (D39)."""

    accepted: bool
    event_id: str
    session_id: str


class SystemInfo(Sent):
    """Describe the machine; ``memory_mb``: the process's resident memory."""

    platform: str
    runtime_version: str
    memory_mb: types.Number


class Health(Sent):
    status: Literal["healthy"] = "healthy"
    version: str
    uptime_seconds: types.Count
    connection_mode: types.ConnectionMode
    active_sessions: types.Count
    active_websockets: types.Count
    system: SystemInfo
    timestamp: types.Timestamp


HealthPart = Literal["websocket_server", "hook_endpoint", "agent_sdk", "disk_space"]


class HealthDegraded(Sent):
    """Describe a degraded bridge; sent with 503."""

    status: Literal["degraded"] = "degraded"
    version: str
    checks: dict[HealthPart, types.HealthWord]
    timestamp: types.Timestamp


class InfoLimits(Sent):
    max_sessions: types.Count
    max_websocket_connections: types.Count
    max_message_size_mb: types.Count
    hook_timeout_seconds: types.Count


class AgentInfo(Sent):
    """Describe an agent, also one that cannot start.

    ``version``: of its program, once known. ``reason``: why it cannot start, or what was wrong when
    it was last started or asked for its version. ``can_modify``: a ``modified`` call runs with the
    new parameters; else it is refused, and the agent asks anew with them. ``asks``: it asks before
    it changes or runs something (D59); left out while unknown. ``history``: why its past sessions
    cannot be listed and continued here; left out where they can (D67). ``steers``: a turn takes in
    a message with ``when: now`` (D71).
    """

    name: str
    can_start: bool
    can_modify: bool
    steers: bool
    asks: bool | None = None
    version: str | None = None
    reason: str | None = None
    history: str | None = None


class ForwarderInfo(Sent):
    """Report a forwarder's backlog: waiting events, and the oldest one's seconds."""

    address: str
    waiting: types.Count
    seconds: types.Count
    at: types.Timestamp


class Info(Sent):
    """Describe the bridge.

    Added to the specification: ``agents``, also those that cannot start, and why (D41);
    ``forwarders`` of other machines that are behind, for the admin token only (D47).
    """

    name: str
    version: str
    protocol_version: str
    features: list[str]
    supported_agents: list[str]
    agents: list[AgentInfo]
    supported_hooks: list[types.HookEventName]
    limits: InfoLimits
    forwarders: list[ForwarderInfo] | None = None


class HookBatchBody(Received):
    """Describe the body of POST /hooks/batch: at most 500 events (D32)."""

    events: list[HookEventBody] = Field(
        max_length=limits.BATCH_MAX_EVENTS,
        description="Each is judged by itself: a wrong one is told in `errors`.",
    )


class IngestionResult(Sent):
    received: Literal[True] = True
    event_id: str
    broadcast_count: types.Count
    timestamp: types.Timestamp


class ValidationErrorItem(Sent):
    """Describe one violation in a hook event (D8).

    ``code``: VALIDATION_ERROR (base fields) or PAYLOAD_VALIDATION_ERROR; ``rule``: the code of the
    specification's table.
    """

    field: str
    message: str
    code: Literal["VALIDATION_ERROR", "PAYLOAD_VALIDATION_ERROR"]
    rule: str


class BatchError(Sent):
    """Report a rejected event; ``index`` counts from 0 in the batch as sent."""

    index: types.Count
    validation_errors: list[ValidationErrorItem]


class BatchResult(Sent):
    """Answer a batch: ids of accepted events in order, errors of rejected ones (D32)."""

    received: bool = True
    count: types.Count
    accepted: types.Count
    rejected: types.Count
    event_ids: list[str]
    errors: list[BatchError]


class ReloadResult(Sent):
    reloaded: bool
    timestamp: types.Timestamp
    active_hooks: list[types.HookEventName]


class TreeEntry(Sent):
    """Describe a file or directory of a tree.

    Files have ``size`` in bytes and ``modified_at``, opened directories ``children``. Those that
    were cut have ``truncated`` and, where it is known, how many entries ``more`` there are.
    """

    name: str
    type: types.EntryType
    size: types.Count | None = None
    modified_at: types.Timestamp | None = None
    children: list[TreeEntry] | None = None
    truncated: Literal[True] | None = None
    more: types.Count | None = None


class FileTree(Sent):
    """Describe a directory tree; ``truncated`` only when it was too large and cut.

    ``more``: how many entries of ``path`` itself are missing.
    """

    path: str
    entries: list[TreeEntry]
    truncated: Literal[True] | None = None
    more: types.Count | None = None


class FileContent(Sent):
    path: str
    content: str
    size: types.Count
    encoding: types.FileEncoding
    modified_at: types.Timestamp


class ErrorBody(Sent):
    """Describe an HTTP error (D9).

    Some codes add a field: ``retry_after`` (whole seconds), ``websocket_url``, ``details``.
    """

    model_config = ConfigDict(extra="allow")

    error: str
    message: str
    code: str = Field(pattern=r"^[A-Z][A-Z0-9_]*$")
    request_id: str
    timestamp: types.Timestamp
    documentation_url: str
    details: dict[str, Any] | None = None
    retry_after: types.Count | None = None
    websocket_url: str | None = None


class ValidationFailure(ErrorBody):
    """Describe a refused hook event, in all three forms of the specification (D8)."""

    received: Literal[False] = False
    validation_errors: list[ValidationErrorItem]
    errors: list[dict[Literal["field", "message"], str]]
