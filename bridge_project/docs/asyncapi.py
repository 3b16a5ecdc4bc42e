"""The AsyncAPI document: the WebSocket protocol as the catalogue has it, with an example of every
message (SPEC WebSocket operations).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from bridge_project import PROTOCOL_VERSION
from bridge_project.kernel import limits
from bridge_project.protocol import jsontext
from bridge_project.protocol.catalogue import CATALOGUE, HEARTBEATS, Row

EXAMPLES: Final = Path(__file__).parents[1] / "protocol" / "golden"
ADDRESS: Final = "/api/v1/ws"
_SCHEMAS: Final = "#/components/schemas/{model}"
_PHASES: Final = {0: "first, and only once", 1: "once authenticated", 2: "once ready"}

Schema = dict[str, Any]

DESCRIPTION: Final = """\
One WebSocket, over TLS only, at `/api/v1/ws`. Every message is a JSON object `{type, id, timestamp, payload}`; heartbeats carry only `type` and
`timestamp`. A reply has the id of what it answers. The first message is `auth` with a device token; `health_check` comes next; then sessions can be
joined. What the bridge keeps for a device is sent again, with the same id, until `notification_ack` names it or heartbeats prove that it arrived.
"""


@cache
def document() -> str:
    """The document as JSON; it does not change while the bridge runs."""
    return jsontext.dumps(build())


def build() -> Schema:
    """AsyncAPI 3.0, seen from the bridge: it receives what clients send."""
    schemas: dict[str, Schema] = {}
    messages = {
        name: _message(row, model, name, schemas)
        for name, (row, model) in both_directions().items()
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Bridge",
            "version": PROTOCOL_VERSION,
            "description": DESCRIPTION,
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "bridge": {
                "host": "{host}:{port}",
                "protocol": "wss",
                "variables": {"host": {"default": "localhost"}, "port": {"default": "8443"}},
            }
        },
        "channels": {
            "bridge": {
                "address": ADDRESS,
                "servers": [{"$ref": "#/servers/bridge"}],
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
                "bindings": {"ws": {"method": "GET"}},
            }
        },
        "operations": _operations(),
        "components": {"messages": messages, "schemas": dict(sorted(schemas.items()))},
    }


def both_directions() -> dict[str, tuple[Row, type[BaseModel]]]:
    """Name → row and payload model of every message; what goes both ways comes twice, once as
    ``TYPE.server``.
    """
    found: dict[str, tuple[Row, type[BaseModel]]] = {}
    for row in CATALOGUE.values():
        if row.client:
            found[row.type] = row, row.client
        if row.server:
            found[f"{row.type}.server" if row.client else row.type] = row, row.server
    return found


def example(name: str) -> dict[str, Any]:
    """A message of that name as it goes on the wire."""
    return dict(json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8")))


def rule_of(row: Row) -> str:
    """When a client may send it and what becomes of it, in a sentence; empty for what only the
    bridge sends.
    """
    if row.client is None:
        return ""
    words = [f"May be sent {_PHASES[row.phase]}"]
    words += ["its session must have been joined"] if row.needs_joined else []
    words += (
        ["a repetition with the same id is answered again and not done again"]
        if row.idempotent
        else []
    )
    return "; ".join(words) + "."


def _message(row: Row, model: type[BaseModel], name: str, schemas: dict[str, Schema]) -> Schema:
    from_client = not name.endswith(".server") and row.client is not None
    payload = model.model_json_schema(
        mode="validation" if from_client else "serialization", ref_template=_SCHEMAS
    )
    schemas.update(payload.pop("$defs", {}))
    shape = f"{row.type}.payload" + ("" if from_client or row.client is None else ".server")
    if row.type not in HEARTBEATS:
        schemas[shape] = payload
    described = " ".join(
        part
        for part in (
            row.summary,
            rule_of(row) if from_client else "",
            _kept(row, from_client=from_client),
        )
        if part
    )
    return {
        "name": row.type,
        "title": row.type,
        "summary": row.summary,
        "description": described,
        "payload": _envelope(row.type, shape, from_client=from_client),
        "examples": [{"name": name, "payload": example(name)}],
    }


def _kept(row: Row, *, from_client: bool) -> str:
    if from_client or row.feed is None:
        return ""
    whose = "of its session" if row.feed == "session" else "for all devices"
    return f"A row of the log {whose}: kept for devices that are away."


def _envelope(type_: str, shape: str, *, from_client: bool) -> Schema:
    properties: Schema = {
        "type": {"const": type_},
        "timestamp": {"type": "string", "format": "date-time"},
    }
    required = ["type", "timestamp"]
    if type_ not in HEARTBEATS:
        properties["id"] = {
            "type": "string",
            "minLength": 1,
            "maxLength": limits.CLIENT_MESSAGE_ID_MAX_CHARS,
        }
        properties["payload"] = {"$ref": _SCHEMAS.format(model=shape)}
        required += ["payload"] if from_client else ["id", "payload"]
    return {"type": "object", "properties": properties, "required": required}


def _operations() -> dict[str, Schema]:
    channel = {"$ref": "#/channels/bridge"}
    operations: dict[str, Schema] = {}
    for name, (row, _) in both_directions().items():
        from_client = row.client is not None and not name.endswith(".server")
        operation: Schema = {
            "action": "receive" if from_client else "send",
            "channel": channel,
            "summary": row.summary,
            "messages": [_in_channel(name)],
        }
        answers = [
            reply if CATALOGUE[reply].client is None else f"{reply}.server"
            for reply in row.reply
            if CATALOGUE[reply].server
        ]
        if from_client and answers:
            operation["reply"] = {
                "channel": channel,
                "messages": [_in_channel(answer) for answer in (*answers, "error")],
            }
        operations[f"{'receive' if from_client else 'send'}_{row.type}"] = operation
    return operations


def _in_channel(name: str) -> Schema:
    return {"$ref": f"#/channels/bridge/messages/{name}"}
