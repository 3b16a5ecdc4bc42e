"""Bytes in, a message or every violation at once out: the one door for hook events and client
messages (D1, D3, D4, D8, D32).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from bridge_project.kernel import limits
from bridge_project.protocol import jsontext
from bridge_project.protocol.base import ClientPayload
from bridge_project.protocol.catalogue import CATALOGUE, HEARTBEATS
from bridge_project.protocol.constraints import (
    constraint_of,
    describe,
    faults,
    received,
    secrets_in,
)
from bridge_project.protocol.hooks import ENFORCED, HookEvent
from bridge_project.protocol.types import (
    HOOK_EVENTS,
    is_uuid,
    is_uuid4,
    parse_timestamp,
    session_id_fault,
)

# -- hook events -----------------------------------------------------------------------------------

_BASE_FIELDS: Final = frozenset(
    {"event", "event_type", "event_id", "session_id", "timestamp", "payload"}
)
_EVENT_NAMES: Final = frozenset(HOOK_EVENTS)


@dataclass(frozen=True, slots=True)
class HookViolation:
    """``code``: VALIDATION_ERROR or PAYLOAD_VALIDATION_ERROR; ``rule``: the code of the spec's
    "Hook validation codes" table.
    """

    field: str
    message: str
    code: str
    rule: str
    constraint: str


class HookInvalid(Exception):
    """A hook event, or a whole batch, that is refused with status 400 (D8); ``violations`` is never
    empty.
    """

    def __init__(self, violations: list[HookViolation]) -> None:
        self.violations = violations
        first = violations[0]
        self.code = first.rule
        self.field = first.field
        self.constraint = first.constraint
        self.message = first.message
        super().__init__(f"{self.code}: {self.message}")


def parse_hook_body(body: bytes, *, now: datetime) -> HookEvent:
    """A hook event from the body of a request. Raises HookInvalid, as ``parse_hook_event`` does."""
    return parse_hook_event(_hook_json(body), now=now)


def parse_hook_event(value: Any, *, now: datetime) -> HookEvent:
    """A hook event from parsed JSON; ``now`` is the server's time, aware.

    Raises HookInvalid with every violation of the first stage that failed: the base fields, then
    the payload's (D8).
    """
    if not isinstance(value, dict):
        raise HookInvalid(
            [_base("body", "a hook event must be a JSON object", "HOOK_INVALID_PAYLOAD", "object")]
        )
    found = [
        *_event_faults(value),
        *_timestamp_faults(value, now),
        *_session_id_faults(value),
        *_payload_object_faults(value),
    ]
    if found:
        raise HookInvalid(found)
    event = _event_name(value)
    found = _payload_faults(event, value["payload"])
    if found:
        raise HookInvalid(found)
    event_id = value.get("event_id")
    return HookEvent(
        event=event,
        timestamp=value["timestamp"],
        session_id=value["session_id"],
        payload=value["payload"],
        event_id=event_id.lower() if isinstance(event_id, str) and is_uuid(event_id) else None,
        extra={key: item for key, item in value.items() if key not in _BASE_FIELDS},
    )


def parse_hook_batch(body: bytes, now: datetime) -> list[HookEvent | HookInvalid]:
    """The events of a batch in order, each validated on its own (D32). Raises HookInvalid when the
    batch as a whole is none.
    """
    value = _hook_json(body)
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list):
        where, message = (
            ("events", "events must be an array")
            if isinstance(value, dict)
            else ("body", "a batch must be a JSON object")
        )
        raise HookInvalid(
            [
                _base(
                    where,
                    message,
                    "HOOK_INVALID_PAYLOAD",
                    "array" if where == "events" else "object",
                )
            ]
        )
    if len(events) > limits.BATCH_MAX_EVENTS:
        bound = f"at most {limits.BATCH_MAX_EVENTS} events"
        raise HookInvalid(
            [_base("events", f"a batch takes {bound}", "HOOK_INVALID_PAYLOAD", bound)]
        )
    return [_event_or_fault(item, now) for item in events]


def _event_or_fault(value: Any, now: datetime) -> HookEvent | HookInvalid:
    try:
        return parse_hook_event(value, now=now)
    except HookInvalid as invalid:
        return invalid.with_traceback(None)  # its frames would keep the whole batch alive


def _hook_json(body: bytes) -> Any:
    try:
        return jsontext.loads(body)
    except jsontext.JsonError as error:
        raise HookInvalid(
            [_base("body", f"the body is not usable JSON: {error}", "HOOK_INVALID_PAYLOAD", "JSON")]
        ) from None


def _base(field: str, message: str, rule: str, constraint: str) -> HookViolation:
    return HookViolation(field, message, "VALIDATION_ERROR", rule, constraint)


def _event_name(value: Mapping[str, Any]) -> Any:
    event = value.get("event")
    return value.get("event_type") if event is None else event


def _event_faults(value: Mapping[str, Any]) -> list[HookViolation]:
    rule = "HOOK_INVALID_EVENT_TYPE"
    event, alias = value.get("event"), value.get("event_type")
    if event is not None and alias is not None and event != alias:
        return [_base("event_type", "event and event_type differ", rule, "the same as event")]
    event = _event_name(value)
    if event is None:
        return [_base("event", "event is required", rule, "required")]
    if not isinstance(event, str) or event not in _EVENT_NAMES:
        allowed = "one of " + ", ".join(HOOK_EVENTS)
        return [_base("event", f"event must be {allowed}", rule, allowed)]
    return []


def _timestamp_faults(value: Mapping[str, Any], now: datetime) -> list[HookViolation]:
    rule = "HOOK_INVALID_TIMESTAMP"
    if "timestamp" not in value:
        return [_base("timestamp", "timestamp is required", rule, "required")]
    text = value["timestamp"]
    try:
        moment = parse_timestamp(text) if isinstance(text, str) else None
    except ValueError as error:
        return [_base("timestamp", f"timestamp {error}", rule, "ISO 8601 date-time")]
    if moment is None:
        return [
            _base(
                "timestamp",
                "timestamp must be an ISO 8601 date-time in a string",
                rule,
                "ISO 8601 date-time",
            )
        ]
    if abs((now - moment).total_seconds()) > limits.TIMESTAMP_SKEW_SECONDS:
        window = f"within {limits.TIMESTAMP_SKEW_SECONDS // 60} minutes of server time"
        return [_base("timestamp", f"timestamp must be {window}", "HOOK_STALE_TIMESTAMP", window)]
    return []


def _session_id_faults(value: Mapping[str, Any]) -> list[HookViolation]:
    rule = "HOOK_INVALID_SESSION_ID"
    if "session_id" not in value:
        return [_base("session_id", "session_id is required", rule, "required")]
    text = value["session_id"]
    if not isinstance(text, str):
        return [_base("session_id", "session_id must be a string", rule, "string")]
    fault = session_id_fault(text)
    return [_base("session_id", f"session_id {fault}", rule, constraint_of(fault))] if fault else []


def _payload_object_faults(value: Mapping[str, Any]) -> list[HookViolation]:
    if "payload" not in value:
        return [_base("payload", "payload is required", "HOOK_INVALID_PAYLOAD", "required")]
    if not isinstance(value["payload"], dict):
        return [_base("payload", "payload must be an object", "HOOK_INVALID_PAYLOAD", "object")]
    return []


def _payload_faults(event: str, payload: dict[str, Any]) -> list[HookViolation]:
    model = ENFORCED.get(event)
    if model is None:
        return []
    try:
        model.model_validate(payload)
    except ValidationError as error:
        found = [(f"payload.{fault.field}", fault) for fault in faults(error)]
        code, rule = "PAYLOAD_VALIDATION_ERROR", "HOOK_INVALID_PAYLOAD"
        return [
            HookViolation(field, f"{field} {fault.sentence}", code, rule, fault.constraint)
            for field, fault in found
        ]
    return []


# -- client messages -------------------------------------------------------------------------------

_TYPE_SHOWN_CHARS: Final = 128  # an unknown type can be as long as a message


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """A valid message. ``id`` is the client's, or a fresh UUID v4; ``raw`` is the payload as sent.

    ``payload`` is an instance of the catalogue row's ``client`` model; typed Any, so that a handler
    says which one it takes.
    """

    type: str
    id: str
    timestamp: str
    payload: Any
    raw: dict[str, Any]


class ProtocolInvalid(Exception):
    """A frame that is answered with PROTO_INVALID_MESSAGE; the connection stays open.

    ``id`` and ``type`` are the frame's own where it had usable ones (a type cut after 128
    characters), else None. ``violations``: all that is wrong, each ``{field, constraint,
    received}``; ``received`` is shortened and never a secret.
    """

    def __init__(
        self,
        message: str,
        violations: list[dict[str, str]],
        *,
        id: str | None = None,
        type: str | None = None,
    ) -> None:
        self.message = message
        self.violations = violations
        self.id = id
        self.type = type
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class _Fault:
    field: str
    constraint: str
    received: str
    message: str


def parse_client(text: str | bytes, *, strict_ids: bool) -> ClientMessage:
    """A message from a WebSocket frame; ``strict_ids`` takes only a UUID v4 as ``id`` (D4,
    BRIDGE_STRICT_PROTOCOL).

    Raises ProtocolInvalid.
    """
    envelope = _envelope(text)
    hidden = secrets_in(envelope, envelope.get("payload"))
    found = [
        *_type_faults(envelope, hidden),
        *_id_faults(envelope, strict_ids, hidden),
        *_time_faults(envelope, hidden),
        *_object_faults(envelope),
    ]
    kind, payload = envelope.get("type"), envelope.get("payload")
    row = CATALOGUE.get(kind) if isinstance(kind, str) else None
    if row is not None and row.client is not None:
        raw = payload if isinstance(payload, dict) else {}
        model = _payload(
            row.client,
            raw,
            hidden,
            found if isinstance(payload, dict) or row.type in HEARTBEATS else [],
        )
        if model is not None and not found:
            given = envelope.get("id")
            return ClientMessage(
                row.type, given or str(uuid.uuid4()), envelope["timestamp"], model, raw
            )
    raise _invalid(envelope, found)


def _invalid(envelope: Mapping[str, Any], found: list[_Fault]) -> ProtocolInvalid:
    own, kind = envelope.get("id"), envelope.get("type")
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return ProtocolInvalid(
        found[0].message + more,
        [
            {"field": fault.field, "constraint": fault.constraint, "received": fault.received}
            for fault in found
        ],
        id=own
        if isinstance(own, str) and 1 <= len(own) <= limits.CLIENT_MESSAGE_ID_MAX_CHARS
        else None,
        type=kind[:_TYPE_SHOWN_CHARS] if isinstance(kind, str) else None,
    )


def _envelope(text: str | bytes) -> dict[str, Any]:
    if not isinstance(text, str):
        message = "binary frames are not taken; send JSON in a text frame"
        raise ProtocolInvalid(
            message,
            [
                {
                    "field": "",
                    "constraint": "text frame",
                    "received": f"binary frame of {len(text)} bytes",
                }
            ],
        )
    try:
        value = jsontext.loads(text)
    except jsontext.JsonError as error:
        shown = f"text of {len(text)} characters"
        raise ProtocolInvalid(
            f"the message is not usable JSON: {error}",
            [{"field": "", "constraint": "JSON", "received": shown}],
        ) from None
    if not isinstance(value, dict):
        kind = (
            f"array of {len(value)}"
            if isinstance(value, list)
            else "string"
            if isinstance(value, str)
            else describe(value)
        )
        raise ProtocolInvalid(
            "a message must be a JSON object",
            [{"field": "", "constraint": "object", "received": kind}],
        )
    return value


def _type_faults(envelope: Mapping[str, Any], hidden: frozenset[str]) -> list[_Fault]:
    kind, shown = envelope.get("type"), received(envelope, ("type",), hidden)
    if not isinstance(kind, str):
        return [
            _Fault(
                "type",
                "string" if "type" in envelope else "required",
                shown,
                "type must be a string" if "type" in envelope else "type is required",
            )
        ]
    row = CATALOGUE.get(kind)
    if row is None:
        return [_Fault("type", "known message type", shown, f"unknown message type {shown}")]
    if row.client is None:
        return [
            _Fault(
                "type",
                "message type that clients send",
                shown,
                f"{kind} is sent by the server only",
            )
        ]
    return []


def _id_faults(
    envelope: Mapping[str, Any], strict_ids: bool, hidden: frozenset[str]
) -> list[_Fault]:
    own, shown = envelope.get("id"), received(envelope, ("id",), hidden)
    if own is None:
        return []
    if not isinstance(own, str) or not 1 <= len(own) <= limits.CLIENT_MESSAGE_ID_MAX_CHARS:
        constraint = f"string of 1 to {limits.CLIENT_MESSAGE_ID_MAX_CHARS} characters"
    elif strict_ids and not is_uuid4(own):
        constraint = "UUID v4"
    else:
        return []
    return [_Fault("id", constraint, shown, f"id must be a {constraint}")]


def _time_faults(envelope: Mapping[str, Any], hidden: frozenset[str]) -> list[_Fault]:
    if "timestamp" not in envelope:
        return [_Fault("timestamp", "required", "nothing", "timestamp is required")]
    try:
        parse_timestamp(envelope["timestamp"])
    except (ValueError, TypeError):  # TypeError: no string
        return [
            _Fault(
                "timestamp",
                "ISO 8601 date-time",
                received(envelope, ("timestamp",), hidden),
                "timestamp must be an ISO 8601 date-time",
            )
        ]
    return []


def _object_faults(envelope: Mapping[str, Any]) -> list[_Fault]:
    payload = envelope.get("payload")
    if isinstance(payload, dict) or (
        payload is None and envelope.get("type") in ("heartbeat_ping", "heartbeat_pong")
    ):
        return []
    if "payload" not in envelope:
        return [_Fault("payload", "required", "nothing", "payload is required")]
    # Of a string only the kind is said: it may be the payload of an auth, encoded twice.
    shown = "string" if isinstance(payload, str) else describe(payload)
    return [_Fault("payload", "object", shown, "payload must be an object")]


def _payload(
    model: type[ClientPayload], raw: dict[str, Any], hidden: frozenset[str], found: list[_Fault]
) -> ClientPayload | None:
    """The payload's model, or None after adding what is wrong to ``found``."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        for fault in faults(error):
            field = f"payload.{fault.field}"
            found.append(
                _Fault(
                    field,
                    fault.constraint,
                    received(raw, fault.path, hidden),
                    f"{field} {fault.sentence}",
                )
            )
        return None
