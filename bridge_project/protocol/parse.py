"""Parse a client's frame, or list everything that is wrong with it (D3, D4)."""

import re
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from bridge_project.kernel import limits
from bridge_project.protocol import jsontext, types
from bridge_project.protocol.base import Received
from bridge_project.protocol.catalogue import CATALOGUE, HEARTBEATS
from bridge_project.protocol.constraints import describe, validate

_TYPE_SHOWN_CHARS: Final = 128  # an unknown type can be as long as a message

# the id of a message, behind members that are neither objects nor arrays and escape nothing
_ID_FIRST: Final = re.compile(
    rf'''\s*\{{[^{{}}\[\]\\]*?"id"\s*:\s*"([^"\\]{{1,{limits.CLIENT_MESSAGE_ID_MAX_CHARS}}})"'''
)


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """Hold a valid message.

    ``id`` is the client's, or a fresh UUID v4. ``payload`` is an instance of the type's model;
    typed Any, so that a handler says which one it takes.
    """

    type: str
    id: str
    payload: Any


def _from_client(type: str) -> str:
    if type not in CATALOGUE or not CATALOGUE[type].from_client:
        raise ValueError("must be a message type that clients send")
    return type


class _Envelope(Received):
    """Validate a message but for its payload's fields; the context is ``strict_ids``."""

    type: Annotated[str, AfterValidator(_from_client)]
    id: str | None = Field(
        None, min_length=1, max_length=limits.CLIENT_MESSAGE_ID_MAX_CHARS, validate_default=True
    )
    timestamp: types.Timestamp
    payload: dict[str, Any]

    @field_validator("id")
    @classmethod
    def _uuid(cls, id: str | None, info: ValidationInfo) -> str | None:
        has_none = id is None and info.data.get("type") in HEARTBEATS
        if info.context and not has_none and not types.is_uuid4(id or ""):
            raise ValueError("must be a UUID v4")
        return id


class ProtocolInvalid(Exception):
    """Refuse a frame with PROTO_INVALID_MESSAGE; the connection stays open.

    ``id`` and ``type`` are the frame's own if usable (a type cut after 128 characters), else None.
    ``violations``: everything wrong, each ``{field, constraint, received}``; ``received`` is
    shortened and never a secret.
    """

    def __init__(
        self,
        message: str,
        violations: list[dict[str, str]],
        *,
        id: str | None = None,
        type: str | None = None,
    ) -> None:
        self.message, self.violations, self.id, self.type = message, violations, id, type
        super().__init__(message)


def parse_client(text: str | bytes, *, strict_ids: bool) -> ClientMessage:
    """Parse a message from a WebSocket frame.

    ``strict_ids``: demand a UUID v4 as ``id``, but of a heartbeat, which has none (D4,
    BRIDGE_STRICT_PROTOCOL). Raises ProtocolInvalid.
    """
    value = _loads(text)
    kind: Any = value.get("type")
    payload: Any = value.get("payload")
    own, parsed = value.get("id"), None
    if payload is None and isinstance(kind, str) and kind in HEARTBEATS:
        value = value | {"payload": (payload := {})}
    _, found = validate(_Envelope, value, context=strict_ids)
    if isinstance(payload, dict) and not any(fault.field == "type" for fault in found):
        parsed, wrong = validate(CATALOGUE[kind], payload, "payload.")
        found += wrong
    if parsed is not None and not found:
        return ClientMessage(kind, own or str(uuid.uuid4()), parsed)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    usable = isinstance(own, str) and 0 < len(own) <= limits.CLIENT_MESSAGE_ID_MAX_CHARS
    raise ProtocolInvalid(
        found[0].sentence + more,
        [fault.violation() for fault in found],
        id=own if usable else None,
        type=kind[:_TYPE_SHOWN_CHARS] if isinstance(kind, str) else None,
    )


def id_at_beginning(text: str) -> str | None:
    """Return the id in a message's beginning, if it is there."""
    found = _ID_FIRST.match(text[: limits.MESSAGE_BEGINNING_BYTES])
    return found[1] if found is not None else None


def _loads(text: str | bytes) -> dict[str, Any]:
    if isinstance(text, bytes):
        message = "binary frames are not taken; send JSON in a text frame"
        raise _whole(message, "text frame", f"binary frame of {len(text)} bytes")
    try:
        value = jsontext.loads(text)
    except jsontext.JsonError as error:
        shown, id = f"text of {len(text)} characters", id_at_beginning(text)
        # A variable for the exception would keep text and traceback until the garbage collector.
        raise _whole(f"the message is not usable JSON: {error}", "JSON", shown, id) from None
    if not isinstance(value, dict):
        raise _whole("a message must be a JSON object", "object", describe(value))
    return value


def _whole(message: str, constraint: str, shown: str, id: str | None = None) -> ProtocolInvalid:
    violation = {"field": "", "constraint": constraint, "received": shown}
    return ProtocolInvalid(message, [violation], id=id)
