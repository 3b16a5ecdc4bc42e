"""Define and read the nine hook events (D1, D3, D5, D8, D31, D32)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from bridge_project.kernel import limits, pictures
from bridge_project.kernel.picture_files import Picture
from bridge_project.protocol import jsontext, types
from bridge_project.protocol.base import Received
from bridge_project.protocol.constraints import Fault, validate
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
    """Hold a valid hook event as sent, but for two things.

    ``timestamp`` is converted to UTC, and pictures in base64 are named (D70), except in ``params``:
    who decides on a call sees what it is. ``pictures`` are those that are to be kept.

    ``event_id`` is the producer's own, in lower case, or None; ``extra`` holds the other unknown
    top-level fields (D3).
    """

    event: str
    timestamp: str
    session_id: str
    payload: dict[str, Any]
    event_id: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    pictures: Sequence[Picture] = ()

    def outbound(self, event_id: str) -> dict[str, Any]:
        """Return the ``agent_event`` payload that joined devices get (D1, D4)."""
        return {
            "event": self.event,
            "event_type": self.event,
            "event_id": event_id,
            "session_id": self.session_id,
            "timestamp": self.timestamp,
            "payload": self.payload,
            **self.extra,
        }


_FRESH: Final = f"within {limits.TIMESTAMP_SKEW_SECONDS // 60} minutes of server time"
_RULES: Final = {
    "event": "HOOK_INVALID_EVENT_TYPE",
    "event_type": "HOOK_INVALID_EVENT_TYPE",
    "timestamp": "HOOK_INVALID_TIMESTAMP",
    "session_id": "HOOK_INVALID_SESSION_ID",
}
"""SPEC's "Hook validation codes" by field; HOOK_INVALID_PAYLOAD for all others."""


def _payloads_by_event(schema: dict[str, Any]) -> None:
    """Describe each event's payload: its fields if these are checked, else any (D5)."""
    others = [event for event in types.HOOK_EVENTS if event not in ENFORCED]
    kinds = [
        {"event": {"const": event}, "payload": model.model_json_schema()}
        for event, model in ENFORCED.items()
    ]
    schema["oneOf"] = [
        {"properties": kind}
        for kind in (*kinds, {"event": {"enum": others}, "payload": {"type": "object"}})
    ]


class HookEventBody(Received):
    """Describe a hook event; what its payload must hold is checked after it."""

    model_config = ConfigDict(json_schema_extra=_payloads_by_event)

    event: types.HookEventName = Field(
        description="A body that has only `event_type` is read as if that were `event`."
    )
    timestamp: types.Timestamp = Field(
        description=(
            f"Within {limits.TIMESTAMP_SKEW_SECONDS // 60} minutes of the bridge's clock,"
            " either way."
        )
    )
    session_id: types.SessionId
    payload: dict[str, Any]
    event_id: Any = Field(
        None,
        description=(
            "A UUID that the producer made once for this event, so that sending it again"
            " stores nothing twice. Else ignored."
        ),
    )

    @field_validator("timestamp")
    @classmethod
    def _fresh(cls, text: str, info: ValidationInfo) -> str:
        now: Any = info.context  # the server's time
        age = (now - types.parse_timestamp(text)).total_seconds()
        if abs(age) > limits.TIMESTAMP_SKEW_SECONDS:
            raise ValueError(f"must be {_FRESH}")
        return types.utc_text(text)


_KNOWN: Final = {"event_type", *HookEventBody.model_fields}


class HookInvalid(Exception):
    """Refuse a hook event, or a whole batch, with status 400 (D8).

    ``violations``: ``{field, message, code, rule}`` of each; ``code`` and ``constraint``: the
    first one's. ``stale_id``: the ``event_id`` of an event of which nothing but its time is wrong,
    which may be a repetition (D31).
    """

    def __init__(self, found: Sequence[Fault], event_id: str | None = None) -> None:
        self.constraint = found[0].constraint
        self.violations = []
        for name, constraint, _, message in found:
            code = "PAYLOAD_VALIDATION_ERROR" if "payload." in name else "VALIDATION_ERROR"
            rule = _RULES.get(name, "HOOK_INVALID_PAYLOAD")
            rule = "HOOK_STALE_TIMESTAMP" if constraint == _FRESH else rule
            one = {"field": name, "message": message, "code": code, "rule": rule}
            self.violations.append(one)
        self.code = self.violations[0]["rule"]
        is_stale = self.code == "HOOK_STALE_TIMESTAMP" and len(found) == 1
        self.stale_id = event_id if is_stale else None
        super().__init__(f"{self.code}: {found[0].sentence}")


def parse_hook_body(body: bytes, *, now: datetime) -> HookEvent:
    """Read a hook event from a request's body. Raises HookInvalid."""
    return parse_hook_event(_read(jsontext.loads, body), now=now)


def parse_hook_batch(body: bytes, now: datetime) -> list[HookEvent | HookInvalid]:
    """Read the events of a batch in order, each by itself (D32).

    Raises HookInvalid when the body is no batch at all.
    """
    value = _read(jsontext.loads, body, None)
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list):
        raise _wrong("events", "array", "a batch must be an object with an array of events")
    if len(events) > limits.BATCH_MAX_EVENTS:
        bound = f"at most {limits.BATCH_MAX_EVENTS} events"
        raise _wrong("events", bound, f"a batch takes {bound}")
    found: list[HookEvent | HookInvalid] = []
    for item in events:
        try:
            _read(jsontext.check_depth, item)
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
        raise _wrong("body", "object", "a hook event must be a JSON object")
    event, alias = value.get("event"), value.get("event_type")
    if event is None and alias is not None:
        value = value | {"event": alias}
    base, found = validate(HookEventBody, value, context=now)
    if event is not None and alias not in (None, event):
        differ = "event and event_type differ"
        found.insert(0, Fault("event_type", "the same as event", "", differ))
    if base is not None and not found and base.event in ENFORCED:
        _, found = validate(ENFORCED[base.event], base.payload, "payload.")
    event_id = value.get("event_id")
    own_id = event_id.lower() if isinstance(event_id, str) and types.is_uuid(event_id) else None
    if base is None or found:
        raise HookInvalid(found, own_id)
    taken: list[Picture] = []
    return HookEvent(
        event=base.event,
        timestamp=base.timestamp,
        session_id=base.session_id,
        payload=_without_pictures(base.payload, taken),
        event_id=own_id,
        extra={
            name: pictures.name_in(item, taken)
            for name, item in value.items()
            if name not in _KNOWN
        },
        pictures=taken,
    )


def _without_pictures(payload: dict[str, Any], taken: list[Picture]) -> dict[str, Any]:
    named = {
        name: item if name == "params" else pictures.name_in(item, taken)
        for name, item in payload.items()
    }
    # a result that is a picture's data URL, and nothing else
    result, found = {"type": "image", "url": payload.get("result")}, list[Picture]()
    if "result" in named and (block := pictures.named_block(result, found)) and found:
        named["result"] = block
    return named


def _read(function: Callable[..., Any], *what: Any) -> Any:
    try:
        return function(*what)
    except jsontext.JsonError as error:
        raise _wrong("body", "JSON", f"the body is not usable JSON: {error}") from None


def _wrong(field: str, constraint: str, message: str) -> HookInvalid:
    return HookInvalid([Fault(field, constraint, "", message)])
