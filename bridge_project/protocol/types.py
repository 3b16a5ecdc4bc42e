"""The small words of the contract: timestamps, ids, versions and every closed list of values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
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
RiskLevel = Literal["low", "medium", "high", "critical"]
Platform = Literal["ios", "android", "web"]
Decision = Literal["approved", "rejected", "modified"]
ApprovalSource = Literal["hooks", "agent_sdk"]
ConnectionMode = Literal[
    "local_only", "private_network", "secure_remote", "direct_public", "misconfigured"
]
SessionStatus = Literal["created", "active", "paused", "closed", "error"]
SessionEndReason = Literal["user_request", "timeout", "error", "completed"]
FinishReason = Literal["stop", "tool_call", "length", "error"]
# D5: the union of both lists
StopReason = Literal[
    "task_completed", "user_request", "error", "tool_error", "max_tokens", "safety"
]
ExitReason = Literal["user_exit", "error", "completion"]
GitFileStatus = Literal["modified", "added", "deleted", "untracked", "renamed"]
DiffLineType = Literal["context", "added", "removed"]
EntryType = Literal["file", "directory"]
FileEncoding = Literal["utf-8", "base64"]
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
ToolErrorCode = Literal["TOOL_EXECUTION_FAILED", "TOOL_TIMEOUT"]  # D50

HOOK_EVENTS: Final[tuple[HookEventName, ...]] = get_args(HookEventName)

_TIMESTAMP = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<offset_hours>[0-9]{2})(?::?(?P<offset_minutes>[0-9]{2}))?)?"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_UUID4 = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}"
)
_SEMVER = re.compile(
    r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"
)


def parse_timestamp(text: str) -> datetime:
    """The moment, aware and in UTC, of an ISO 8601 / RFC 3339 date and time; one without an offset
    is UTC.

    Raises ValueError on anything else: a bare date, a Unix number, a date that does not exist.
    Digits past the microsecond are dropped.
    """
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError("must be an ISO 8601 date-time")
    part = found.groupdict()
    second = int(part["second"] or 0)
    leap = second == 60  # RFC 3339 has leap seconds, datetime has not
    micro = int((part["fraction"] or "0").ljust(6, "0")[:6])
    try:
        day = datetime.fromisoformat(part["date"])
        offset = _offset(part["sign"], part["offset_hours"], part["offset_minutes"])
        moment = day.replace(
            hour=int(part["hour"]),
            minute=int(part["minute"]),
            second=59 if leap else second,
            microsecond=micro,
            tzinfo=offset,
        )
        return moment.astimezone(UTC) + timedelta(seconds=1 if leap else 0)
    except (ValueError, OverflowError):
        raise ValueError("must be a date and time that exists") from None


def _offset(sign: str | None, hours: str | None, minutes: str | None) -> timezone:
    if sign is None:
        return UTC
    if int(minutes or 0) > 59:
        raise ValueError("minutes of the offset")
    size = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    return timezone(-size if sign == "-" else size)


def now_text(now: datetime | None = None) -> str:
    """The moment (default: now) as the bridge writes it: UTC, milliseconds, ``Z``. Raises
    ValueError for a naive one.
    """
    moment = datetime.now(UTC) if now is None else now
    if moment.tzinfo is None:
        raise ValueError("a moment without a time zone")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_uuid(text: str) -> bool:
    """Whether it is a UUID in its usual form of 36 characters, of any version and case."""
    return _UUID.fullmatch(text) is not None


def is_uuid4(text: str) -> bool:
    return _UUID4.fullmatch(text) is not None


def session_id_fault(text: str) -> str | None:
    """What keeps a string from being a session id, as the end of a sentence that begins with "must
    be"; None if nothing does.
    """
    if not text.strip():
        return "must be non-empty"
    if len(text) > limits.SESSION_ID_MAX_CHARS:
        return f"must be at most {limits.SESSION_ID_MAX_CHARS} characters long"
    if "\x00" in text:
        return "must be free of NUL"
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        return "must be free of lone surrogates"
    return None


def _checked_timestamp(text: str) -> str:
    parse_timestamp(text)
    return text


def _checked_session_id(text: str) -> str:
    fault = session_id_fault(text)
    if fault:
        raise ValueError(fault)
    return text


Timestamp = Annotated[
    str,
    AfterValidator(_checked_timestamp),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An ISO 8601 date and time, kept as it was sent. Not pydantic's own type, which takes ``"1700000000"`` even when strict."""

_SESSION_ID_SCHEMA: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": limits.SESSION_ID_MAX_CHARS,
    # no NUL, and not white space alone
    "pattern": r"^[^\u0000]*[^\s\u0000\u001c-\u001f\u0085][^\u0000]*$",
}

SessionId = Annotated[str, AfterValidator(_checked_session_id), WithJsonSchema(_SESSION_ID_SCHEMA)]

Count = Annotated[int, Field(ge=0)]
Number = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, order=True)
class SemVer:
    """major.minor.patch, compared by number. What may follow (``-beta.1``, ``+42``) is read and
    does not count: the spec's versions have three parts.
    """

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> SemVer:
        """Raises ValueError when the text is no version."""
        found = _SEMVER.fullmatch(text)
        if found is None:
            raise ValueError("must be a version such as 1.2.3")
        return cls(*map(int, found.groups()))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"
