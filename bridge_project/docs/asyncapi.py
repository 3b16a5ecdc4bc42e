"""Write the AsyncAPI document from the catalogue, with an example of each message."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from bridge_project import PROTOCOL_VERSION
from bridge_project.kernel import limits
from bridge_project.protocol import jsontext
from bridge_project.protocol.base import Payload, Phase
from bridge_project.protocol.catalogue import CATALOGUE, HEARTBEATS

EXAMPLES: Final = Path(__file__).parents[1] / "protocol" / "golden"
ADDRESS: Final = "/api/v1/ws"
_SCHEMAS: Final = "#/components/schemas/{model}"
_CHANNEL: Final = "#/channels/bridge"
_PHASES: Final = {
    Phase.OPEN: "first, and only once",
    Phase.AUTHENTICATED: "once authenticated",
    Phase.READY: "once ready",
}

Schema = dict[str, Any]

DESCRIPTION: Final = """\
One WebSocket, over TLS only, at `/api/v1/ws`. Every message is a JSON object
`{type, id, timestamp, payload}`; heartbeats carry only `type` and `timestamp`. A reply has the id
of what it answers, a stream message one of its own. The first message is `auth` with a device
token; `health_check` comes next; then sessions can be joined. What the bridge keeps for a device is
sent again, with the same id, until `notification_ack` names it or heartbeats prove that it arrived.
"""


@dataclass(frozen=True, slots=True)
class Message:
    """Describe a message in one direction; one sent both ways makes two objects."""

    model: type[Payload]
    from_client: bool

    @property
    def name(self) -> str:
        other = self.model.from_client and not self.from_client
        return f"{self.model.type}.server" if other else self.model.type

    @property
    def reply(self) -> tuple[str, ...]:
        return self.model.reply if self.from_client else ()

    @property
    def rule(self) -> str:
        """Say when a client may send it; empty for a message from the bridge."""
        if not self.from_client:
            return ""
        joined = ", in a joined session" if self.model.needs_joined else ""
        once = "; repeated with its id, it is not done twice" if self.model.idempotent else ""
        return f"May be sent {_PHASES[self.model.phase]}{joined}{once}."

    @property
    def example(self) -> str:
        """Return an example as it goes on the wire, indented."""
        sent = json.loads((EXAMPLES / f"{self.name}.json").read_text(encoding="utf-8"))
        return json.dumps(sent, indent=2, ensure_ascii=False)

    @property
    def fields(self) -> list[tuple[str, str, bool]]:
        """Return name, type in words and whether it is required, for each field."""
        schema = self.schema()
        required, defs = schema.get("required", ()), schema.get("$defs", {})
        properties = {} if self.model.type in HEARTBEATS else schema.get("properties", {})
        return [(name, _type(one, defs), name in required) for name, one in properties.items()]

    def schema(self, ref_template: str = "#/$defs/{model}") -> Schema:
        mode: Any = "validation" if self.from_client else "serialization"
        return self.model.model_json_schema(mode=mode, ref_template=ref_template)


def _type(field: Schema, defs: Schema) -> str:
    """Describe a JSON schema in a few words."""
    if "$ref" in field:
        inner = defs[field["$ref"].rpartition("/")[2]]
        return "object {" + ", ".join(inner.get("properties", {})) + "}"
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(one, defs) for one in field["anyOf"]))
    if "enum" in field or "const" in field:
        return ", ".join(str(value) for value in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"array of {_type(field.get('items', {}), defs)}"
    if field.get("format") == "date-time":
        return "timestamp"
    return str(field.get("type", "any"))


def messages() -> list[Message]:
    """Return all messages: each request with its answers, then the server's own."""
    requests = [model for model in CATALOGUE.values() if model.from_client]
    answered = [type for model in requests for type in (model.type, *model.reply)]
    found = []
    for type in dict.fromkeys([*answered, *CATALOGUE]):
        model = CATALOGUE[type]
        found += [Message(model, from_client=True)] if model.from_client else []
        found += [Message(model, from_client=False)] if model.from_server else []
    return found


@cache
def document() -> str:
    """Return AsyncAPI 3.0 in JSON; by it the bridge receives what clients send."""
    schemas: dict[str, Schema] = {}
    found = messages()
    variables = {"host": {"default": "localhost"}, "port": {"default": "8443"}}
    server = {"host": "{host}:{port}", "protocol": "wss", "variables": variables}
    about = {"title": "Bridge", "version": PROTOCOL_VERSION, "description": DESCRIPTION}
    channel = {
        "address": ADDRESS,
        "servers": [{"$ref": "#/servers/bridge"}],
        "messages": {one.name: {"$ref": f"#/components/messages/{one.name}"} for one in found},
    }
    whole = {
        "asyncapi": "3.0.0",
        "info": about,
        "defaultContentType": "application/json",
        "servers": {"bridge": server},
        "channels": {"bridge": channel},
        "operations": dict(map(_operation, found)),
        "components": {
            "messages": {one.name: _message(one, schemas) for one in found},
            "schemas": dict(sorted(schemas.items())),
        },
    }
    return jsontext.dumps(whole)


def _message(message: Message, schemas: dict[str, Schema]) -> Schema:
    model = message.model
    payload = message.schema(_SCHEMAS)
    schemas.update(payload.pop("$defs", {}))
    shape = message.name.replace(model.type, f"{model.type}.payload", 1)
    properties: Schema = {
        "type": {"const": model.type},
        "timestamp": {"type": "string", "format": "date-time"},
    }
    required = ["type", "timestamp"]
    if model.type not in HEARTBEATS:
        schemas[shape] = payload
        longest = limits.CLIENT_MESSAGE_ID_MAX_CHARS
        properties["id"] = {"type": "string", "minLength": 1, "maxLength": longest}
        properties["payload"] = {"$ref": _SCHEMAS.format(model=shape)}
        required += ["payload"] if message.from_client else ["id", "payload"]
    kept = ""
    if not message.from_client and model.feed is not None:
        whose = "of its session" if model.feed == "session" else "for all devices"
        kept = f"A row of the log {whose}: kept for devices that are away."
    return {
        "name": model.type,
        "title": model.type,
        "summary": model.documentation().partition("\n")[0],
        "description": "\n\n".join(filter(None, (model.documentation(), message.rule, kept))),
        "payload": {"type": "object", "properties": properties, "required": required},
        "examples": [{"name": message.name, "payload": json.loads(message.example)}],
    }


def _operation(message: Message) -> tuple[str, Schema]:
    channel = {"$ref": _CHANNEL}
    operation: Schema = {
        "action": "receive" if message.from_client else "send",
        "channel": channel,
        "summary": message.model.documentation().partition("\n")[0],
        "messages": [{"$ref": f"{_CHANNEL}/messages/{message.name}"}],
    }
    if message.reply:
        answers = [{"$ref": f"{_CHANNEL}/messages/{n}"} for n in (*message.reply, "error")]
        operation["reply"] = {"channel": channel, "messages": answers}
    return f"{operation['action']}_{message.model.type}", operation
