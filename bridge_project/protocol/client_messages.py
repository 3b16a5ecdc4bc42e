"""The payload of every message that a client may send, one model each (SPEC WebSocket operations;
D38, D40, D29 add three).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from bridge_project.kernel import limits
from bridge_project.protocol.base import ClientPayload
from bridge_project.protocol.types import Decision, Platform, SessionEndReason, SessionId, Timestamp

_WIRE_INT_MAX = 2**53 - 1  # the spec sends larger integers as strings

# Only the first wrong item is reported: a 10 MB array of wrong ones must not become gigabytes of
# violations.
Strings = Annotated[list[str], Field(fail_fast=True)]


def _null_is(default: int) -> BeforeValidator:
    return BeforeValidator(lambda value: default if value is None else value)


class Auth(ClientPayload):
    """Always the first message. ``device_id`` binds the token at its first use (D15)."""

    type: ClassVar[str] = "auth"
    token: str = Field(repr=False)
    client_version: str = Field(max_length=64)
    platform: Platform
    device_id: str | None = Field(None, max_length=limits.DEVICE_ID_MAX_CHARS)


class HealthCheck(ClientPayload):
    type: ClassVar[str] = "health_check"
    timestamp: Timestamp
    client_nonce: str
    client_capabilities: Strings


class AcknowledgeWarning(ClientPayload):
    type: ClassVar[str] = "acknowledge_warning"
    warning_code: str
    acknowledged: bool
    acknowledged_at: Timestamp


class HeartbeatPing(ClientPayload):
    """Has no payload: ``type`` and ``timestamp`` are all that is sent."""

    type: ClassVar[str] = "heartbeat_ping"


class SessionStart(ClientPayload):
    """Joins a session, or creates one when ``session_id`` is null or unknown and ``resume`` is
    false (D22).
    """

    type: ClassVar[str] = "session_start"
    nullable: ClassVar[frozenset[str]] = frozenset({"session_id"})
    agent: str
    session_id: SessionId | None = None
    working_directory: str
    resume: bool


class SessionEnd(ClientPayload):
    """Sent by both sides."""

    type: ClassVar[str] = "session_end"
    session_id: SessionId
    reason: SessionEndReason


class Message(ClientPayload):
    type: ClassVar[str] = "message"
    session_id: SessionId
    content: str
    role: Literal["user"]


class ApprovalResponse(ClientPayload):
    """A decision; ``modified`` needs ``modifications``, the parameters that the tool shall run with
    instead (D38).
    """

    type: ClassVar[str] = "approval_response"
    nullable: ClassVar[frozenset[str]] = frozenset({"modifications"})
    session_id: SessionId
    tool_call_id: str
    decision: Decision
    modifications: dict[str, Any] | None = Field(None, validate_default=True)

    # On the field, not the model: a model's validator does not run while another field is wrong,
    # and every violation is to be listed.
    @field_validator("modifications")
    @classmethod
    def _given_when_modified(
        cls, value: dict[str, Any] | None, info: ValidationInfo
    ) -> dict[str, Any] | None:
        if value is None and info.data.get("decision") == "modified":
            raise ValueError("must be given when decision is modified")
        return value


class SessionInterrupt(ClientPayload):
    """Stops the running turn, and ends what the session's commands have left running (D40)."""

    type: ClassVar[str] = "session_interrupt"
    session_id: SessionId


class GitStatusRequest(ClientPayload):
    type: ClassVar[str] = "git_status_request"
    session_id: SessionId


class GitCommit(ClientPayload):
    """``files`` null: all that is staged. Answered by ``git_status_response`` (D10)."""

    type: ClassVar[str] = "git_commit"
    nullable: ClassVar[frozenset[str]] = frozenset({"files"})
    session_id: SessionId
    message: str
    files: Strings | None = None


class GitDiff(ClientPayload):
    """``files`` null: all changes; ``cached`` false: the work tree against the index (D10)."""

    type: ClassVar[str] = "git_diff"
    nullable: ClassVar[frozenset[str]] = frozenset({"files"})
    session_id: SessionId
    files: Strings | None = None
    cached: bool


class FileList(ClientPayload):
    type: ClassVar[str] = "file_list"
    session_id: SessionId
    path: str


class FileRead(ClientPayload):
    """``offset`` and ``limit`` count lines and may be left out (D11)."""

    type: ClassVar[str] = "file_read"
    session_id: SessionId
    path: str
    offset: Annotated[int, Field(ge=0, le=_WIRE_INT_MAX), _null_is(0)] = 0
    limit: Annotated[int, Field(ge=1, le=_WIRE_INT_MAX), _null_is(limits.FILE_READ_LINES)] = (
        limits.FILE_READ_LINES
    )


class NotificationAck(ClientPayload):
    """Envelope ids of any messages that were received (D27)."""

    type: ClassVar[str] = "notification_ack"
    notification_ids: Strings


class ReplayRequest(ClientPayload):
    """Asks for what came after a message or a moment; with neither, from the start of what is kept
    (D29).
    """

    type: ClassVar[str] = "replay_request"
    session_id: SessionId
    after_id: str | None = None
    since: Timestamp | None = None


CLIENT_PAYLOADS: tuple[type[ClientPayload], ...] = (
    Auth,
    HealthCheck,
    AcknowledgeWarning,
    HeartbeatPing,
    SessionStart,
    SessionEnd,
    Message,
    ApprovalResponse,
    SessionInterrupt,
    GitStatusRequest,
    GitCommit,
    GitDiff,
    FileList,
    FileRead,
    NotificationAck,
    ReplayRequest,
)
