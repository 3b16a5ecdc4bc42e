"""Define timestamps, ids, versions and every closed list of values."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, Field, WithJsonSchema

from bridge_project.kernel import limits

HookEventName = Literal[
    "SessionStart",
    "SessionEnd",
    "PreToolUse",
    "PostToolUse",
    "UserPromptSubmit",
    "Stop",
    "SubagentStop",
    "PreCompact",
    "Notification",
]
Platform = Literal["ios", "android", "web"]
Decision = Literal["approved", "rejected", "modified"]
Decider = Literal["device", "agent", "bridge", "rule"]
Outcome = Literal["taken", "desk_first", "not_confirmed"]
OptionKind = Literal["allow_once", "reject_once"]
SettingKind = Literal["model", "effort", "plan", "other"]  # D69
ApprovalSource = Literal["hooks", "agent_sdk"]
ConnectionMode = Literal[
    "local_only", "private_network", "secure_remote", "direct_public", "misconfigured"
]
SessionStatus = Literal["created", "active", "paused", "closed", "error"]
SessionKind = Literal["observed", "bridge"]
Turn = Literal["idle", "working", "waiting"]
ContinueHow = Literal["join", "answer", "take_over"]
SessionEndReason = Literal["user_request", "timeout", "error", "completed"]
MessageState = Literal["queued", "given", "withdrawn", "refused"]  # D71
LimitStatus = Literal["ok", "near", "reached"]  # D72
FinishReason = Literal["stop", "tool_call", "length", "error"]
GitState = Literal["merge", "rebase", "am", "cherry-pick", "revert", "bisect"]
GitFileStatus = Literal["modified", "added", "deleted", "untracked", "renamed"]
AttachmentId = Annotated[str, Field(min_length=1, max_length=36, pattern="^[^\\u0000]+$")]
AttachmentIds = Annotated[list[AttachmentId], Field(max_length=limits.ATTACHMENTS_A_MESSAGE)]
DiffLineType = Literal["context", "added", "removed"]
EntryType = Literal["file", "directory"]
FileEncoding = Literal["utf-8", "base64"]
AttachmentType = Literal[
    "image/png", "image/jpeg", "image/gif", "image/webp", "application/octet-stream"
]  # D70
HealthWord = Literal["healthy", "unhealthy"]
# D13
NotificationType = Literal[
    "approval_required",
    "approval_decided",
    "task_complete",
    "error",
    "agent_idle",
    "agent_notification",
]
Priority = Literal["low", "normal", "high"]
PushDetail = Literal["quiet", "full"]  # D56
ToolErrorCode = Literal["TOOL_EXECUTION_FAILED", "TOOL_TIMEOUT"]  # D50

HOOK_EVENTS: Final[tuple[HookEventName, ...]] = get_args(HookEventName)

_TIMESTAMP = re.compile(
    r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}[Tt ](?:[01][0-9]|2[0-3]):?[0-9]{2}"
    r"(?::?(?P<second>[0-9]{2})(?:[.,][0-9]{1,9})?)?(?:[Zz]|[+-][0-9]{2}(?::?[0-5][0-9])?)?"
)
_UTC = re.compile(r"[0-9-]{10}T[0-9]{2}(?::[0-5][0-9]){2}(?:\.[0-9]+)?(?:Z|\+00:00)")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SEMVER = re.compile(
    r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"
)


def parse_timestamp(text: str) -> datetime:
    """Parse an ISO 8601 date and time as UTC; without offset it is UTC.

    Raises ValueError on anything else: a bare date, a Unix number, a date that does not exist.
    Digits past the microsecond are dropped.
    """
    if (found := _TIMESTAMP.fullmatch(text)) is None:
        raise ValueError("must be an ISO 8601 date-time")
    leap = found["second"] == "60"  # ISO 8601 has leap seconds, datetime has not
    if leap:
        text = f"{text[: found.start('second')]}59{text[found.end('second') :]}"
    try:
        moment = datetime.fromisoformat(text.upper())
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
        return moment.astimezone(UTC) + timedelta(seconds=leap)
    except (ValueError, OverflowError):
        raise ValueError("must be a date and time that exists") from None


def utc_text(text: str) -> str:
    """Write a timestamp as ISO 8601 text in UTC.

    Every client reads it as the same moment. Raises ValueError as ``parse_timestamp`` does.
    """
    if _UTC.fullmatch(text):
        return text
    return parse_timestamp(text).isoformat().replace("+00:00", "Z")


def now_text(now: datetime | None = None) -> str:
    """Write a moment (default: now) in UTC. Raises ValueError for a naive one."""
    moment = datetime.now(UTC) if now is None else now
    if moment.tzinfo is None:
        raise ValueError("a moment without a time zone")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_version(text: str) -> tuple[int, ...]:
    """Return a version's major, minor and patch, to compare. Raises ValueError."""
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise ValueError("must be a version such as 1.2.3")
    return tuple(map(int, found.groups()))


def is_uuid(text: str) -> bool:
    """Return whether a text is a UUID of 36 characters, of any version and case."""
    return _UUID.fullmatch(text) is not None


def is_uuid4(text: str) -> bool:
    return is_uuid(text) and text[14] == "4" and text[19] in "89abAB"


def _checked_timestamp(text: str) -> str:
    parse_timestamp(text)
    return text


def _checked_session_id(text: str) -> str:
    if not text.strip():
        raise ValueError("must be non-empty")
    if len(text) > limits.SESSION_ID_MAX_CHARS:
        raise ValueError(f"must be at most {limits.SESSION_ID_MAX_CHARS} characters long")
    if "\x00" in text:
        raise ValueError("must be free of NUL")
    return text


def _checked_prompt(text: str) -> str:
    if re.search(_SEEN, text) is None:
        raise ValueError("must be non-empty")
    return text


Timestamp = Annotated[
    str,
    AfterValidator(_checked_timestamp),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An ISO 8601 date and time, kept as it was sent.

Not pydantic's own type, which takes ``"1700000000"`` even when strict.
"""


def _checked_not_before(text: str) -> str:
    return text if text == "limit_reset" else _checked_timestamp(text)


NotBefore = Annotated[str, AfterValidator(_checked_not_before)]

_SESSION_ID_SCHEMA: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": limits.SESSION_ID_MAX_CHARS,
    # no NUL, and not white space alone
    "pattern": r"^[^\u0000]*[^\s\u0000\u001c-\u001f\u0085][^\u0000]*$",
}

SessionId = Annotated[str, AfterValidator(_checked_session_id), WithJsonSchema(_SESSION_ID_SCHEMA)]

_SEEN = r"[^\s\u001c-\u001f\u0085\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]"
Prompt = Annotated[
    str,
    AfterValidator(_checked_prompt),
    WithJsonSchema({"type": "string", "minLength": 1, "pattern": _SEEN}),
]
"""What a person says to an agent: never only what cannot be seen."""

Count = Annotated[int, Field(ge=0)]
Number = Annotated[float, Field(allow_inf_nan=False)]
