"""Define the bridge's messages, except those about files and repositories."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from bridge_project.protocol import types
from bridge_project.protocol.base import ServerPayload
from bridge_project.protocol.notify_messages import Notify
from bridge_project.protocol.resources import (
    ApprovalOption,
    HealthChecks,
    PastSession,
    Picture,
    Presence,
    PushOffer,
    RuleOffer,
    RuleUse,
    SearchHit,
    SessionCommand,
    SessionInfo,
    SessionOption,
    SubAgent,
    ToolErrorDetails,
    ToolOutcome,
    Violation,
)
from bridge_project.protocol.risk import RiskLevel


class SessionRow(ServerPayload):
    """Hold the payload of a message stored in its session's feed."""

    feed = "session"
    session_id: str


class ConnectionAck(ServerPayload):
    """Accept the token; say what the bridge is, and which sessions are not closed."""

    type = "connection_ack"
    server_version: str
    supported_agents: list[str]
    connection_mode: types.ConnectionMode
    connection_mode_description: str
    bridge_url: str
    requires_health_verification: bool = True
    active_sessions: list[SessionInfo] = Field(
        description="Those that wait first, then those that work, then the newest. Of idle observed"
        " ones older than an hour only the newest 20 (D65).",
    )
    idle_sessions: types.Count = Field(
        0, description="How many idle sessions were left out; `GET /sessions` lists all (D65)."
    )
    device_name: str | None = Field(
        None,
        description="The name under which this device was paired; notifications name it when it"
        " decides.",
    )
    device_token: str | None = Field(
        None,
        description="Takes the place of the pairing code's token: store it, then use it. From its"
        " first use the code's token is refused. Sent until then, another one each time; only to a"
        " device that gave a `device_id`.",
    )
    push: PushOffer | None = Field(
        None, description="Absent where push is off: with which key to subscribe (D56)."
    )
    notify: Notify | None = Field(
        None, description="What this device has chosen to be told (`notify_set`, D74)."
    )
    presence: Presence | None = Field(
        None, description="Whether the owner is away; absent as long as nobody has ever been (D66)."
    )


class ConnectionError_(ServerPayload):
    """Refuse or end the connection, which the bridge closes after it (D21)."""

    type = "connection_error"
    code: str
    message: str
    documentation_url: str | None = None
    remediation: str | None = None
    details: dict[str, Any] | None = None


class HealthStatus(ServerPayload):
    """Report the connection's state; ``warning_details``: warning code → details."""

    type = "health_status"
    status: Literal["healthy", "warning"]
    connection_mode: types.ConnectionMode
    warnings: list[str]
    warning_details: dict[str, Any]
    checks: HealthChecks
    server_timestamp: types.Timestamp
    latency_ms: types.Number
    ready: bool
    requires_acknowledgment: bool


class AcknowledgmentAccepted(ServerPayload):
    """Confirm an accepted warning: for how long, and whether all is ready."""

    type = "acknowledgment_accepted"
    warning_code: str
    ready: bool
    session_timeout: str


class HeartbeatPong(ServerPayload):
    """Answer a heartbeat; only ``type`` and ``timestamp`` are sent."""

    type = "heartbeat_pong"


class SessionReady(ServerPayload):
    """Confirm a join; ``branch`` is empty outside a git repository.

    ``asks`` (added, D59): the agent asks before it changes or runs something; null when unknown, as
    for an observed session. ``resume_command`` (added, D67): what continues the session in a
    terminal, in the working directory, once it has been given back. ``options`` and ``commands``
    (added, D69): as in ``session_options``; absent while the agent has named none.
    """

    type = "session_ready"
    nullable = frozenset({"asks"})
    session_id: str
    agent: str
    working_directory: str
    branch: str = ""
    status: Literal["ready"] = "ready"
    session_status: types.SessionStatus
    asks: bool | None = None
    resume_command: str | None = None
    options: list[SessionOption] | None = None
    commands: list[SessionCommand] | None = None


class SessionOptions(ServerPayload):
    """Say what the session's agent lets a person choose, and its commands (D69).

    To all who joined when that changes, and to who chose. It is not a row of the log, so it is
    never sent again. At most 200 of each.
    """

    type = "session_options"
    session_id: str
    options: list[SessionOption]
    commands: list[SessionCommand]


class HistoryListResponse(ServerPayload):
    """List sessions of an agent's own store inside the allowed roots (D67).

    ``more``: there are older ones. ``session_id`` is that of the bridge's session where the bridge
    runs or ran it under another one. ``note``: what a person is told before one is continued.
    """

    type = "history_list_response"
    sessions: list[PastSession]
    more: bool
    note: str | None = None


class SessionStarted(ServerPayload):
    """Announce a session that has begun."""

    type = "session_started"
    feed = "all"
    session_id: str
    session: SessionInfo | None = None


class SessionUpdate(ServerPayload):
    """Describe a session that changed, to every ready connection (D54).

    At most once a second for each session. It is not a row of the log, so it is never sent again.
    """

    type = "session_update"
    session: SessionInfo


class MessageState(ServerPayload):
    """Tell every device what became of a message to an agent (D71).

    ``queued``: it waits for the agent; ``given``: the agent has it; ``withdrawn``: it was taken
    back, and no agent will have it; ``refused``: the agent took it not once while it was tried, and
    an ``error`` of the session says why. ``message_id``: as in the prompt's ``agent_event``. A
    message that is queued nowhere is ``given`` at once.
    """

    type = "message_state"
    feed = "all"
    session_id: str
    message_id: str
    state: types.MessageState


class StreamStart(SessionRow):
    """Begin an answer of the agent."""

    type = "stream_start"
    message_id: str


class StreamChunk(SessionRow):
    """Send a piece of an answer.

    ``pictures`` (added): of ``content``, where each stands as ``[image/png, 160 KB]`` (D70).
    """

    type = "stream_chunk"
    message_id: str
    content: str
    is_tool_use: bool
    pictures: list[Picture] | None = None


class StreamEnd(SessionRow):
    """End an answer, and say why.

    ``usage`` (added), only with a turn's last one: its tokens, cost and ``duration_ms``, as far as
    the agent says. ``interrupted`` (added): true when a person, or the bridge, stopped the turn
    (D40, D59).
    """

    type = "stream_end"
    message_id: str
    finish_reason: types.FinishReason
    usage: dict[str, Any] | None = None
    interrupted: bool | None = None


class ReplayBuffer(ServerPayload):
    """Send missed messages again; ``messages`` are whole envelopes.

    ``complete`` false: older ones have already been discarded (D29). ``source`` (added): ``agent``
    when the agent's own records fill in for a lost beginning, as prompts and streams without tool
    calls. These are not rows of the log: they need no acknowledgement, and their ids are the same
    each time (D60). Without ``source`` they are rows of the log. ``older`` (added) true: the
    log has more from before them, which ``before_id`` asks for (D73).
    """

    type = "replay_buffer"
    session_id: str
    messages: list[dict[str, Any]]
    complete: bool
    source: Literal["agent"] | None = None
    older: Literal[True] | None = None


class SessionSearchResponse(ServerPayload):
    """List what a search has found, newest first; ``more``: also older (D73)."""

    type = "session_search_response"
    hits: list[SearchHit]
    more: bool


class ToolCall(SessionRow):
    """Report that the agent uses a tool.

    ``agent`` (added, D65): the subagent whose call it is. ``decided_by`` and ``rule`` (added, D68):
    a rule of a person has approved it, so nobody is asked.
    """

    type = "tool_call"
    tool_call_id: str
    tool: str
    params: dict[str, Any]
    description: str
    agent: SubAgent | None = None
    decided_by: types.Decider | None = None
    rule: RuleUse | None = None


class ApprovalRequired(SessionRow):
    """Ask for a decision; ``description`` is never empty (D37).

    It holds the decision when it is sent after that: in a ``replay_buffer``, or to a device that
    missed it (D38). ``changed`` (added, D65): a hook of the agent changed the parameters since the
    call was reported; these are the ones that will run. ``options`` (added): where the agent has
    several ways to allow the call, or to refuse it, all of them; ``option_id``: the one that was
    chosen (D68). ``remember`` (added, D68): rules for the rest of the session that would cover the
    call; ``remembered``: the id of the one that was chosen.
    ``answerable`` (added, D66): a call in a terminal can be answered by devices too,
    for a hook waits for that; false when it waits no more. ``outcome`` (added): what came of a
    device's answer: ``taken``, ``desk_first``, or ``not_confirmed`` where nothing shows who won.
    """

    type = "approval_required"
    reply = ("approval_response",)
    tool_call_id: str
    tool: str
    params: dict[str, Any]
    description: str = Field(min_length=1)
    risk_level: RiskLevel
    source: types.ApprovalSource
    reasoning: str | None = None
    agent: SubAgent | None = None
    changed: bool | None = None
    decision: types.Decision | None = None
    decided_at: types.Timestamp | None = None
    decided_by: types.Decider | None = None
    modifications: dict[str, Any] | None = None
    options: list[ApprovalOption] | None = None
    option_id: str | None = None
    remember: list[RuleOffer] | None = None
    remembered: str | None = None
    answerable: bool | None = None
    outcome: types.Outcome | None = None


class ApprovalRecorded(ServerPayload):
    """Confirm a decision (D38).

    ``forwarded`` false: neither an agent of the bridge took it nor a hook that waits for it (D66).
    """

    type = "approval_recorded"
    session_id: str
    tool_call_id: str
    decision: types.Decision
    forwarded: bool
    decided_at: types.Timestamp


class ApprovalState(ServerPayload):
    """Say whether devices can answer a call in a terminal now (D66)."""

    type = "approval_state"
    feed = "all"
    session_id: str
    tool_call_id: str
    answerable: bool


class PresenceState(Presence, ServerPayload):
    """Tell every device that the owner is away, or is back (D66)."""

    type = "presence_state"
    feed = "all"


class ToolResult(SessionRow):
    """Report a tool's result.

    ``changed`` (added, D65): a hook of the agent changed the parameters since the call was
    reported, and nobody was asked; ``params`` are those that ran. ``result.metadata`` of a call in
    a terminal that has started a subagent (added, D69): ``agent_id``, the ``agent.id`` of that
    one's calls, and ``background`` where it works on until its ``SubagentStop``.
    """

    type = "tool_result"
    tool_call_id: str
    tool: str
    result: ToolOutcome
    agent: SubAgent | None = None
    changed: bool | None = None
    params: dict[str, Any] | None = None


class ToolError(SessionRow):
    """Report a tool that failed.

    ``max_retries``: how often the specification's retry policy allows another attempt, of a command
    that the bridge runs; of what an agent runs itself it is 0.
    """

    type = "tool_error"
    tool_call_id: str
    tool: str
    code: types.ToolErrorCode
    message: str
    details: ToolErrorDetails
    retryable: bool
    max_retries: types.Count


class AgentEvent(ServerPayload):
    """Pass on a hook event with all its fields (D1, D3), or a prompt (D52).

    A prompt to an agent of the bridge has the form of a hook event.
    """

    model_config = ConfigDict(extra="allow")

    type = "agent_event"
    feed = "session"
    event: types.HookEventName
    event_type: types.HookEventName
    event_id: str
    session_id: str
    timestamp: types.Timestamp
    payload: dict[str, Any]


class Notification(ServerPayload):
    """Tell every device something that a person should know (D13).

    ``notification_id`` equals the envelope's id; ``session_id`` null: about no session.
    """

    type = "notification"
    reply = ("notification_ack",)
    feed = "all"
    nullable = frozenset({"session_id"})
    notification_id: str
    session_id: str | None = None
    notification_type: types.NotificationType
    title: str
    body: str
    priority: types.Priority
    data: dict[str, Any]


class Error_(ServerPayload):
    """Report a failed request or agent; ``session_id`` null: about no session."""

    type = "error"
    feed = "session"
    nullable = frozenset({"session_id"})
    code: str
    message: str
    session_id: str | None = None
    recoverable: bool
    violations: list[Violation] | None = None
    details: dict[str, Any] | None = None
