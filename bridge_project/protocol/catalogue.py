"""THE table of the WebSocket protocol: type → models, phase, reply, feed; and the one place where
an envelope is written.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

from pydantic import BaseModel

from bridge_project.protocol import client_messages as c
from bridge_project.protocol import jsontext
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.base import ClientPayload, Wire
from bridge_project.protocol.types import now_text

HEARTBEATS = frozenset({"heartbeat_ping", "heartbeat_pong"})

Feed = Literal["session", "all"]
ClientModel = type[ClientPayload]
ServerModel = type[Wire]  # not ServerPayload: session_end has one model for both directions


class Phase(IntEnum):
    """How far a connection has come: OPEN until ``connection_ack``, AUTHENTICATED until ready, then
    READY (D21).
    """

    OPEN = 0
    AUTHENTICATED = 1
    READY = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One message type.

    ``client`` and ``server`` are the payload's models for each direction, None where that side
    never sends it. ``phase`` is the earliest in which a client may send it (without meaning where
    ``client`` is None), ``needs_joined`` whether its session must have been joined, ``reply`` what
    answers it, ``feed`` the log's feed that a row of it belongs to (D26), ``idempotent`` whether a
    repetition is answered again and not done again (D31; of ``session_start`` only with
    ``session_id`` null), ``lane`` with which others of the same session a slow one is kept in
    order, beside everything else; None: it is handled at once.
    """

    type: str
    summary: str
    client: ClientModel | None = None
    server: ServerModel | None = None
    phase: Phase = Phase.READY
    needs_joined: bool = False
    reply: tuple[str, ...] = ()
    feed: Feed | None = None
    idempotent: bool = False
    lane: Literal["git", "files"] | None = None


_OPEN, _AUTHENTICATED = Phase.OPEN, Phase.AUTHENTICATED
_STREAM = ("stream_start", "stream_chunk", "stream_end")

_ROWS = (
    # -- handshake
    Row(
        "auth",
        "Says who the device is; always first.",
        client=c.Auth,
        phase=_OPEN,
        reply=("connection_ack", "connection_error"),
    ),
    Row(
        "connection_ack",
        "The token is good; what the bridge is and which sessions run.",
        server=s.ConnectionAck,
    ),
    Row(
        "connection_error",
        "The connection is refused or over; a close follows.",
        server=s.ConnectionError_,
    ),
    Row(
        "health_check",
        "Asks whether the way to the bridge is sound.",
        client=c.HealthCheck,
        phase=_AUTHENTICATED,
        reply=("health_status",),
    ),
    Row(
        "health_status",
        "Whether the connection is ready, and what to be warned of.",
        server=s.HealthStatus,
    ),
    Row(
        "acknowledge_warning",
        "The user accepts a warning.",
        client=c.AcknowledgeWarning,
        phase=_AUTHENTICATED,
        reply=("acknowledgment_accepted",),
    ),
    Row(
        "acknowledgment_accepted",
        "The warning is accepted, for how long, and whether all is ready.",
        server=s.AcknowledgmentAccepted,
    ),
    Row(
        "heartbeat_ping",
        "The client lives.",
        client=c.HeartbeatPing,
        phase=_AUTHENTICATED,
        reply=("heartbeat_pong",),
    ),
    Row("heartbeat_pong", "The bridge lives.", server=s.HeartbeatPong),
    # -- sessions and chat
    Row(
        "session_start",
        "Joins a session or creates one.",
        client=c.SessionStart,
        reply=("session_ready",),
        idempotent=True,
    ),
    Row("session_ready", "The session is joined.", server=s.SessionReady),
    Row("session_started", "An agent session has begun.", server=s.SessionStarted, feed="all"),
    Row(
        "session_end",
        "Ends or leaves a session; says that one has ended.",
        client=c.SessionEnd,
        server=s.SessionEnd,
        needs_joined=True,
        feed="all",
    ),
    Row(
        "session_interrupt",
        "Stops the running turn, and ends what the session's commands have left running.",
        client=c.SessionInterrupt,
        needs_joined=True,
        reply=("stream_end",),
    ),
    Row(
        "message",
        "What the user says to the agent.",
        client=c.Message,
        needs_joined=True,
        reply=_STREAM,
        idempotent=True,
    ),
    Row("stream_start", "The agent begins to answer.", server=s.StreamStart, feed="session"),
    Row("stream_chunk", "A piece of the answer.", server=s.StreamChunk, feed="session"),
    Row("stream_end", "The answer is complete, and why.", server=s.StreamEnd, feed="session"),
    Row(
        "replay_request",
        "Asks for messages since the last received one.",
        client=c.ReplayRequest,
        needs_joined=True,
        reply=("replay_buffer",),
    ),
    Row("replay_buffer", "Messages that were missed.", server=s.ReplayBuffer),
    # -- tools, approvals, hook events
    Row("tool_call", "The agent uses a tool.", server=s.ToolCall, feed="session"),
    Row(
        "approval_required",
        "The agent waits for a decision about a tool call.",
        server=s.ApprovalRequired,
        reply=("approval_response",),
        feed="session",
    ),
    Row(
        "approval_response",
        "The decision.",
        client=c.ApprovalResponse,
        reply=("approval_recorded",),
        idempotent=True,
    ),
    Row(
        "approval_recorded",
        "The decision stands, and whether an agent took it.",
        server=s.ApprovalRecorded,
    ),
    Row("tool_result", "What the tool gave.", server=s.ToolResult, feed="session"),
    Row("tool_error", "The tool failed.", server=s.ToolError, feed="session"),
    Row("agent_event", "A hook event of the agent.", server=s.AgentEvent, feed="session"),
    # -- git and files
    Row(
        "git_status_request",
        "Asks for the state of the repository.",
        client=c.GitStatusRequest,
        needs_joined=True,
        reply=("git_status_response",),
        lane="git",
    ),
    Row("git_status_response", "The state of the repository.", server=s.GitStatusResponse),
    Row(
        "git_commit",
        "Commits files.",
        client=c.GitCommit,
        needs_joined=True,
        reply=("git_status_response",),
        idempotent=True,
        lane="git",
    ),
    Row(
        "git_diff",
        "Asks for changes line by line.",
        client=c.GitDiff,
        needs_joined=True,
        reply=("git_diff_response",),
        lane="git",
    ),
    Row("git_diff_response", "The changes line by line.", server=s.GitDiffResponse),
    Row(
        "file_list",
        "Asks for a directory.",
        client=c.FileList,
        needs_joined=True,
        reply=("file_list_response",),
        lane="files",
    ),
    Row("file_list_response", "A directory.", server=s.FileListResponse),
    Row(
        "file_read",
        "Asks for lines of a file.",
        client=c.FileRead,
        needs_joined=True,
        reply=("file_read_response",),
        lane="files",
    ),
    Row("file_read_response", "Lines of a file.", server=s.FileReadResponse),
    # -- notifications and errors
    Row(
        "notification",
        "Something a person should know.",
        server=s.Notification,
        reply=("notification_ack",),
        feed="all",
    ),
    Row(
        "notification_ack", "Messages that arrived.", client=c.NotificationAck, phase=_AUTHENTICATED
    ),
    Row(
        "error",
        "A message could not be acted on, or the agent failed.",
        server=s.Error_,
        feed="session",
    ),
)

CATALOGUE: Mapping[str, Row] = {row.type: row for row in _ROWS}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A message as it goes on the wire; ``id`` is empty for heartbeats, which have none."""

    id: str
    type: str
    text: str


def encode(payload: BaseModel, *, id: str | None = None, timestamp: str | None = None) -> Encoded:
    """The envelope of a payload model, of either direction.

    ``id``: the request's id in a reply, else None for a fresh UUID v4 (D4); a ``notification``
    takes its ``notification_id`` (D13), and raises ValueError when told another. ``timestamp``:
    default now. Raises TypeError for a model that is no payload.
    """
    kind = getattr(type(payload), "type", None)
    if not isinstance(payload, Wire) or not isinstance(kind, str):
        raise TypeError(f"{type(payload).__name__} is no message's payload")
    if isinstance(payload, s.Notification):
        if id not in (None, payload.notification_id):
            raise ValueError("a notification's id is its notification_id")
        return encode_raw(kind, payload.wire(), id=payload.notification_id, timestamp=timestamp)
    return encode_raw(kind, payload.wire(), id=id, timestamp=timestamp)


def encode_replay(
    session_id: str, frames: Iterable[str], *, complete: bool, id: str | None = None
) -> Encoded:
    """A ``replay_buffer`` of messages that are text already, which is put in as it is; ``id``: the
    request's, if one was asked.
    """
    empty = encode(s.ReplayBuffer(session_id=session_id, messages=[], complete=complete), id=id)
    before, mark, after = empty.text.rpartition('"messages":[]')
    return Encoded(empty.id, empty.type, f"{before}{mark[:-1]}{','.join(frames)}]{after}")


def encode_raw(
    type: str, payload: dict[str, Any], *, id: str | None = None, timestamp: str | None = None
) -> Encoded:
    """The envelope of a payload that is a dict already. Raises KeyError for a type that is not in
    the catalogue.
    """
    row = CATALOGUE[type]
    at = timestamp or now_text()
    if row.type in HEARTBEATS:
        return Encoded("", row.type, jsontext.dumps({"type": row.type, "timestamp": at}))
    own = id or str(uuid.uuid4())
    return Encoded(
        own,
        row.type,
        jsontext.dumps_unicode({"type": row.type, "id": own, "timestamp": at, "payload": payload}),
    )
