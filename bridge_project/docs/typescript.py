"""Write the messages' models as TypeScript declarations for the web client."""

import json
from collections.abc import Iterator
from typing import Any, Final

from bridge_project.docs import asyncapi
from bridge_project.protocol import http
from bridge_project.protocol.base import Wire
from bridge_project.protocol.catalogue import CATALOGUE, HEARTBEATS

BODIES: Final[tuple[type[Wire], ...]] = (http.AgentInfo, http.FileTree, http.SessionList)
"""What the client reads over HTTP."""

_HEAD: Final = """\
// Made by `python manage.py generate_docs` from `bridge_project/protocol/`: edit that.
// Only the type checker reads it; it is not served.

declare namespace Wire {
"""
_FOOT: Final = """
  interface Envelope<T extends keyof Payloads> {
    type: T;
    id: string;
    timestamp: string;
    payload: Payloads[T];
  }
  /** A message from the bridge; a heartbeat comes without id and payload. */
  type Message = { [T in keyof Payloads]: Envelope<T> }[keyof Payloads];
}
"""
_ABOUT: Final = {
    "Requests": "What a client may send: type → payload.",
    "Payloads": "What the bridge sends: type → payload.",
}
_FREE: Final = """\
  /** Fields that an agent, a tool or a code decides. */
  type Free = Record<string, any>;

"""
_WIDTH: Final = 100

Schema = dict[str, Any]


def declarations() -> str:
    """Return ``protocol.d.ts``: every resource, payload and answer."""
    shared: dict[str, str] = {}
    payloads: dict[str, list[str]] = {"Requests": [], "Payloads": []}
    for message in asyncapi.messages():
        schema = message.schema()
        _share(schema, shared, received=message.from_client)
        free = {"properties": {}} if message.model.type in HEARTBEATS else schema
        nullable = message.model.nullable
        body = _object(free, nullable, 4, received=message.from_client)
        side = "Requests" if message.from_client else "Payloads"
        payloads[side].append(_line(f"    {message.model.type}: ", [body]))
    for body_model in BODIES:
        schema = body_model.model_json_schema(mode="serialization")
        _share(schema, shared, received=False)
        shared[body_model.__name__] = _object(schema, body_model.nullable, 2, received=False)
    parts = [f"  interface {name} {body}\n" for name, body in sorted(shared.items())]
    for side, lines in payloads.items():
        parts.append(f"  /** {_ABOUT[side]} */\n  interface {side} {{\n{''.join(lines)}  }}\n")
    rows = [_quoted(one.type) for one in CATALOGUE.values() if one.feed]
    replies = "".join(
        _line(f"    {message.model.type}: ", list(map(_quoted, message.reply)))
        for message in asyncapi.messages()
        if message.reply and message.from_client
    )
    parts += [
        f"  /** Request → its answers. */\n  interface Replies {{\n{replies}  }}\n",
        "  /** Types of the log's rows. */\n" + _line("  type Row = ", rows),
    ]
    return _HEAD + _FREE + "\n".join(parts) + _FOOT


def _share(schema: Schema, shared: dict[str, str], *, received: bool) -> None:
    """Add the resources that a schema refers to."""
    models = {model.__name__: model for model in _subclasses(Wire)}
    for name, definition in schema.get("$defs", {}).items():
        nullable = models[name].nullable
        shared[name] = _object(definition, nullable, 2, received=received)


def _subclasses(base: type[Wire]) -> Iterator[type[Wire]]:
    for model in base.__subclasses__():
        yield model
        yield from _subclasses(model)


def _object(schema: Schema, nullable: frozenset[str], indent: int, *, received: bool) -> str:
    """Write an object type, which closes at `indent`.

    The bridge leaves out a field without a value, unless the model says that it is sent as null.
    """
    lines = []
    for name, field in schema.get("properties", {}).items():
        types = _types(field)
        has_default = field.get("default") is not None
        always = name in schema.get("required", ()) or (
            not received and (has_default or name in nullable)
        )
        if not (received or always or name in nullable):
            types = [one for one in types if one != "null"]
        key = f"{' ' * (indent + 2)}{name}{'' if always else '?'}: "
        lines.append(_line(key, types))
    if not lines:
        return "{}"
    return "{\n" + "".join(lines) + " " * indent + "}"


def _line(start: str, types: list[str]) -> str:
    """Write a union after its name; where a line is too short, a member in each."""
    line = f"{start}{' | '.join(types)};\n"
    if len(line.partition("\n")[0]) <= _WIDTH:
        return line
    indent = " " * (len(start) - len(start.lstrip()) + 2)
    within = f"\n{indent}  | "  # of a list whose items are a long union
    broken = [one.replace(" | ", within) if len(one) > _WIDTH - 10 else one for one in types]
    return start.rstrip() + "".join(f"\n{indent}| {one}" for one in broken) + ";\n"


def _types(field: Schema) -> list[str]:
    """Return the members of the union that a field's schema is."""
    if "$ref" in field:
        return [field["$ref"].rpartition("/")[2]]
    if "anyOf" in field:
        return list(dict.fromkeys(type for one in field["anyOf"] for type in _types(one)))
    if "enum" in field or "const" in field:
        return [_quoted(value) for value in field.get("enum", [field.get("const")])]
    kind = field.get("type")
    if kind == "array":
        items = _types(field["items"])
        return [f"({' | '.join(items)})[]" if len(items) > 1 else f"{items[0]}[]"]
    names = {"string": "string", "boolean": "boolean", "integer": "number", "number": "number"}
    return [{**names, "null": "null", "object": "Free"}.get(str(kind), "any")]


def _quoted(value: Any) -> str:
    return json.dumps(value)
