"""Parse a client's frame, or list everything that is wrong with it (D3, D4)."""

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from bridge_project.kernel import limits
from bridge_project.protocol import jsontext
from bridge_project.protocol.base import Payload
from bridge_project.protocol.catalogue import CATALOGUE, HEARTBEATS
from bridge_project.protocol.constraints import describe, faults, received, secrets_in
from bridge_project.protocol.types import is_uuid4, parse_timestamp

_TYPE_SHOWN_CHARS: Final = 128  # an unknown type can be as long as a message

# the id of a message, behind members that are neither objects nor arrays
_ID_FIRST: Final = re.compile(
    r"""\s*\{\s*(?:"(?!id")[^"\\]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[^\s",{}\[\]]+)\s*,\s*)*"""
    rf"""\"id"\s*:\s*"([^"\\]{{1,{limits.CLIENT_MESSAGE_ID_MAX_CHARS}}})\""""
)

# the message, and a violation {field, constraint, received}
Fault = tuple[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """Hold a valid message; ``raw`` is its payload as sent.

    ``id`` is the client's, or a fresh UUID v4. ``payload`` is an instance of the type's model;
    typed Any, so that a handler says which one it takes.
    """

    type: str
    id: str
    timestamp: str
    payload: Any
    raw: dict[str, Any]


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

    ``strict_ids``: take only a UUID v4 as ``id`` (D4, BRIDGE_STRICT_PROTOCOL). Raises
    ProtocolInvalid.
    """
    envelope = _envelope(text)
    kind, own, payload = envelope.get("type"), envelope.get("id"), envelope.get("payload")
    model = CATALOGUE.get(kind) if isinstance(kind, str) else None
    raw = payload if isinstance(payload, dict) else {}
    hidden = secrets_in(envelope, payload)
    found = [*_envelope_faults(envelope, model, hidden, strict_ids=strict_ids)]
    parsed: Payload | None = None
    if model is not None and model.from_client and (raw is payload or model.type in HEARTBEATS):
        try:
            parsed = model.model_validate(raw)
        except ValidationError as error:
            for fault in faults(error):
                violation = fault.violation(raw, hidden, "payload.")
                found.append((f"{violation['field']} {fault.sentence}", violation))
    if parsed is not None and not found:
        id = own or str(uuid.uuid4())
        return ClientMessage(parsed.type, id, envelope["timestamp"], parsed, raw)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise ProtocolInvalid(
        found[0][0] + more,
        [violation for _, violation in found],
        id=own if _is_usable(own) else None,
        type=kind[:_TYPE_SHOWN_CHARS] if isinstance(kind, str) else None,
    )


def id_at_beginning(text: str) -> str | None:
    """Return the id in a message's beginning, if it is there."""
    found = _ID_FIRST.match(text[: limits.MESSAGE_BEGINNING_BYTES])
    return found[1] if found is not None else None


def _envelope(text: str | bytes) -> dict[str, Any]:
    if not isinstance(text, str):
        message = "binary frames are not taken; send JSON in a text frame"
        raise _whole(message, "text frame", f"binary frame of {len(text)} bytes")
    try:
        value = jsontext.loads(text)
    except jsontext.JsonError as error:
        shown = f"text of {len(text)} characters"
        invalid = _whole(f"the message is not usable JSON: {error}", "JSON", shown)
        invalid.id = id_at_beginning(text)
        raise invalid from None
    if not isinstance(value, dict):
        kind = "string" if isinstance(value, str) else describe(value)
        raise _whole("a message must be a JSON object", "object", kind)
    return value


def _whole(message: str, constraint: str, shown: str) -> ProtocolInvalid:
    violation = {"field": "", "constraint": constraint, "received": shown}
    return ProtocolInvalid(message, [violation])


def _fault(field: str, constraint: str, shown: str, message: str) -> Fault:
    return message, {"field": field, "constraint": constraint, "received": shown}


def _envelope_faults(
    envelope: Mapping[str, Any],
    model: type[Payload] | None,
    hidden: frozenset[str],
    *,
    strict_ids: bool,
) -> Iterator[Fault]:
    shown = {name: received(envelope, (name,), hidden) for name in ("type", "id", "timestamp")}
    kind, own, payload = envelope.get("type"), envelope.get("id"), envelope.get("payload")
    if not isinstance(kind, str):
        yield _missing_or("type", "string", shown["type"], envelope)
    elif model is None:
        message = f"unknown message type {shown['type']}"
        yield _fault("type", "known message type", shown["type"], message)
    elif not model.from_client:
        message = f"{kind} is sent by the server only"
        yield _fault("type", "message type that clients send", shown["type"], message)
    if own is not None and not _is_usable(own):
        constraint = f"string of 1 to {limits.CLIENT_MESSAGE_ID_MAX_CHARS} characters"
        yield _fault("id", constraint, shown["id"], f"id must be a {constraint}")
    elif own is not None and strict_ids and not is_uuid4(own):
        yield _fault("id", "UUID v4", shown["id"], "id must be a UUID v4")
    if not _is_timestamp(envelope.get("timestamp")):
        yield _missing_or("timestamp", "ISO 8601 date-time", shown["timestamp"], envelope)
    bare = payload is None and model is not None and model.type in HEARTBEATS
    if not isinstance(payload, dict) and not bare:
        # Of a string only the kind is said: it may be the payload of an auth, encoded twice.
        kind_of = "string" if isinstance(payload, str) else describe(payload)
        yield _missing_or("payload", "object", kind_of, envelope)


def _missing_or(field: str, constraint: str, shown: str, envelope: Mapping[str, Any]) -> Fault:
    if field not in envelope:
        return _fault(field, "required", "nothing", f"{field} is required")
    article = "a" if constraint == "string" else "an"
    return _fault(field, constraint, shown, f"{field} must be {article} {constraint}")


def _is_usable(id: Any) -> bool:
    return isinstance(id, str) and 1 <= len(id) <= limits.CLIENT_MESSAGE_ID_MAX_CHARS


def _is_timestamp(text: Any) -> bool:
    try:
        return isinstance(text, str) and bool(parse_timestamp(text))
    except ValueError:
        return False
