"""Define and read the nine hook events (D1, D3, D5, D8, D31, D32)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from bridge_project.kernel import limits
from bridge_project.protocol import jsontext, types
from bridge_project.protocol.base import Received
from bridge_project.protocol.constraints import constraint_of, faults
from bridge_project.protocol.risk import RiskLevel

EXAMPLES: Final = Path(__file__).parent / "golden" / "hooks"


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
    """Require ``result``, which may be anything, also null."""

    tool: str
    params: dict[str, Any]
    result: Any
    success: bool
    execution_time_ms: types.Number | None = None


ENFORCED: Final[Mapping[types.HookEventName, type[Received]]] = {
    "SessionStart": SessionStartPayload,
    "PreToolUse": PreToolUsePayload,
    "PostToolUse": PostToolUsePayload,
}
"""The payloads that are checked; those of the other events need only be objects (D5)."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """Hold a valid hook event as sent; only ``timestamp`` is converted, to UTC.

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
        """Return the payload of the ``agent_event`` message (D1)."""
        return {
            "event": self.event,
            "event_type": self.event,
            "event_id": event_id,
            "session_id": self.session_id,
            "timestamp": self.timestamp,
            "payload": self.payload,
            **self.extra,
        }


@dataclass(frozen=True, slots=True)
class HookViolation:
    """Hold a violation in a hook event; ``rule``: a code of "Hook validation codes"."""

    field: str
    message: str
    code: str
    rule: str
    constraint: str


class HookInvalid(Exception):
    """Refuse a hook event, or a whole batch, with status 400 (D8)."""

    def __init__(self, violations: list[HookViolation]) -> None:
        self.violations = violations
        self.code = violations[0].rule
        super().__init__(f"{self.code}: {violations[0].message}")


_BASE_FIELDS: Final = {"event", "event_type", "event_id", "session_id", "timestamp", "payload"}


def parse_hook_body(body: bytes, *, now: datetime) -> HookEvent:
    """Read a hook event from a request's body. Raises HookInvalid."""
    return parse_hook_event(_loads(body), now=now)


def parse_hook_batch(body: bytes, now: datetime) -> list[HookEvent | HookInvalid]:
    """Read the events of a batch in order, each by itself (D32).

    Raises HookInvalid when the body is no batch at all.
    """
    value = _loads(body)
    if not isinstance(value, dict):
        raise HookInvalid([_body("a batch must be a JSON object", "object")])
    events = value.get("events")
    if not isinstance(events, list):
        raise HookInvalid([_body("events must be an array", "array", "events")])
    if len(events) > limits.BATCH_MAX_EVENTS:
        bound = f"at most {limits.BATCH_MAX_EVENTS} events"
        raise HookInvalid([_body(f"a batch takes {bound}", bound, "events")])
    found: list[HookEvent | HookInvalid] = []
    for item in events:
        try:
            found.append(parse_hook_event(item, now=now))
        except HookInvalid as invalid:  # its frames would keep the whole batch alive
            found.append(invalid.with_traceback(None))
    return found


def parse_hook_event(value: Any, *, now: datetime) -> HookEvent:
    """Read a hook event from parsed JSON; ``now``: the server's time, aware.

    Raises HookInvalid with every violation of the first stage that failed: the base fields, then
    the payload's (D8).
    """
    if not isinstance(value, dict):
        raise HookInvalid([_body("a hook event must be a JSON object", "object")])
    checks = (
        _event_violation(value),
        _timestamp_violation(value, now),
        _session_id_violation(value),
        _payload_violation(value),
    )
    event = _event_name(value)
    if found := [one for one in checks if one] or _payload_violations(event, value["payload"]):
        raise HookInvalid(found)
    event_id = value.get("event_id")
    own_id = event_id if isinstance(event_id, str) and types.is_uuid(event_id) else ""
    return HookEvent(
        event=event,
        timestamp=types.utc_text(value["timestamp"]),
        session_id=value["session_id"],
        payload=value["payload"],
        event_id=own_id.lower() or None,
        extra={key: item for key, item in value.items() if key not in _BASE_FIELDS},
    )


def _loads(body: bytes) -> Any:
    try:
        return jsontext.loads(body)
    except jsontext.JsonError as error:
        raise HookInvalid([_body(f"the body is not usable JSON: {error}", "JSON")]) from None


def _base(field: str, message: str, rule: str, constraint: str) -> HookViolation:
    return HookViolation(field, message, "VALIDATION_ERROR", rule, constraint)


def _body(message: str, constraint: str, field: str = "body") -> HookViolation:
    return _base(field, message, "HOOK_INVALID_PAYLOAD", constraint)


def _event_name(value: Mapping[str, Any]) -> Any:
    event = value.get("event")
    return value.get("event_type") if event is None else event


def _event_violation(value: Mapping[str, Any]) -> HookViolation | None:
    rule = "HOOK_INVALID_EVENT_TYPE"
    event, alias = _event_name(value), value.get("event_type")
    if alias is not None and event != alias:
        return _base("event_type", "event and event_type differ", rule, "the same as event")
    if event is None:
        return _base("event", "event is required", rule, "required")
    if event not in types.HOOK_EVENTS:
        allowed = "one of " + ", ".join(types.HOOK_EVENTS)
        return _base("event", f"event must be {allowed}", rule, allowed)
    return None


def _timestamp_violation(value: Mapping[str, Any], now: datetime) -> HookViolation | None:
    rule, kind = "HOOK_INVALID_TIMESTAMP", "ISO 8601 date-time"
    if "timestamp" not in value:
        return _base("timestamp", "timestamp is required", rule, "required")
    text = value["timestamp"]
    if not isinstance(text, str):
        return _base("timestamp", f"timestamp must be an {kind} in a string", rule, kind)
    try:
        moment = types.parse_timestamp(text)
    except ValueError as error:
        return _base("timestamp", f"timestamp {error}", rule, kind)
    if abs((now - moment).total_seconds()) > limits.TIMESTAMP_SKEW_SECONDS:
        window = f"within {limits.TIMESTAMP_SKEW_SECONDS // 60} minutes of server time"
        return _base("timestamp", f"timestamp must be {window}", "HOOK_STALE_TIMESTAMP", window)
    return None


def _session_id_violation(value: Mapping[str, Any]) -> HookViolation | None:
    rule = "HOOK_INVALID_SESSION_ID"
    if "session_id" not in value:
        return _base("session_id", "session_id is required", rule, "required")
    text = value["session_id"]
    if not isinstance(text, str):
        return _base("session_id", "session_id must be a string", rule, "string")
    fault = types.session_id_fault(text)
    return _base("session_id", f"session_id {fault}", rule, constraint_of(fault)) if fault else None


def _payload_violation(value: Mapping[str, Any]) -> HookViolation | None:
    if "payload" not in value:
        return _body("payload is required", "required", "payload")
    if not isinstance(value["payload"], dict):
        return _body("payload must be an object", "object", "payload")
    return None


def _payload_violations(event: Any, payload: dict[str, Any]) -> list[HookViolation]:
    if event not in ENFORCED:
        return []
    try:
        ENFORCED[event].model_validate(payload)
    except ValidationError as error:
        return [
            HookViolation(
                f"payload.{fault.field}",
                f"payload.{fault.field} {fault.sentence}",
                "PAYLOAD_VALIDATION_ERROR",
                "HOOK_INVALID_PAYLOAD",
                fault.constraint,
            )
            for fault in faults(error)
        ]
    return []
