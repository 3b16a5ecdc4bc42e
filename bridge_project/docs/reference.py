"""The tables of settings, error codes and messages as people read them: one source for the pages
under /docs and the files in docs/.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import PydanticUndefined

from bridge_project.docs import asyncapi
from bridge_project.kernel.config import Conf
from bridge_project.kernel.errors import ERRORS, ErrorCode
from bridge_project.protocol.catalogue import CATALOGUE, HEARTBEATS

GENERATED: Final = "<!-- Made by `python manage.py generate_docs`; edit what it is made from instead: {source}. -->"

CLOSED_AFTER_ERROR: Final = ("CONN_REPLACED",)  # an ordinary ``error``, then a close (D23)


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the settings table; ``default`` is what one would write, empty when there is
    none.
    """

    name: str
    default: str
    description: str
    secret: bool


def settings() -> list[Setting]:
    """Every setting, in the order of ``conf.Conf``."""
    rows = []
    for name, field in Conf.model_fields.items():
        extra = field.json_schema_extra
        secret = isinstance(extra, dict) and bool(extra.get("secret"))
        rows.append(Setting(name.upper(), _written(field.default), field.description or "", secret))
    return rows


def _written(default: Any) -> str:
    if default is PydanticUndefined or default is None:
        return ""
    return str(int(default)) if isinstance(default, bool) else str(default)


def sent_as(row: ErrorCode) -> str:
    """Where a client meets a code, in words."""
    if row.never_sent:
        return f"never sent: {row.never_sent}"
    places = [f"HTTP {row.status}"] if row.status else []
    if row.close:
        places.append(
            f"{'`error`' if row.code in CLOSED_AFTER_ERROR else '`connection_error`'}, close {row.close}"
        )
    elif row.recoverable is not None:
        places.append("`error`")
    return "; ".join(places)


def retry(row: ErrorCode) -> str:
    return {None: "", True: "yes", False: "no"}[row.recoverable]


def settings_markdown() -> str:
    """``docs/settings.md``."""
    rows = [
        (f"`{row.name}`", f"`{row.default}`" if row.default else "", row.description)
        for row in settings()
    ]
    secrets = ", ".join(f"`{row.name}_FILE`" for row in settings() if row.secret)
    return "\n".join(
        [
            "# Settings",
            "",
            GENERATED.format(source="`bridge_project/kernel/config.py`"),
            "",
            "Every setting comes from the environment or from `.env` in the data directory; the environment wins. A bad value stops the start with one line that",
            f"names the setting. Secrets can be read from a file instead: {secrets}.",
            "Names are in capitals: one in other letters is not read, and named at the start and by `doctor`.",
            "",
            *_table(("Setting", "Default", "Meaning"), rows),
            "",
        ]
    )


def errors_markdown() -> str:
    """``docs/errors.md``."""
    rows = [
        (f"`{row.code}`", sent_as(row), retry(row), row.severity, row.message, row.remedy)
        for row in ERRORS.values()
    ]
    return "\n".join(
        [
            "# Error codes",
            "",
            GENERATED.format(source="`bridge_project/kernel/errors.py`"),
            "",
            "Every HTTP error has the fields `error`, `message`, `code`, `request_id`, `timestamp` and `documentation_url`; the last opens the page of its code on the",
            "bridge itself. Over the WebSocket a code comes in `error` or, when the connection cannot go on, in `connection_error`, which a close follows.",
            "Recoverable: the same connection can go on. Severity: how grave it is for whoever runs the bridge.",
            "",
            *_table(("Code", "Sent as", "Recoverable", "Severity", "Meaning", "What to do"), rows),
            "",
        ]
    )


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a payload: its type in words, and whether it must be there."""

    name: str
    type: str
    required: bool


@dataclass(frozen=True, slots=True)
class Message:
    """A message in one direction; ``rule`` is empty for what the bridge sends."""

    name: str
    type: str
    direction: str
    summary: str
    rule: str
    reply: tuple[str, ...]
    fields: tuple[Field, ...]
    example: str


def messages() -> list[Message]:
    """Every message, in the order of the catalogue."""
    found = []
    for name, (row, model) in asyncapi.both_directions().items():
        from_client = row.client is not None and not name.endswith(".server")
        schema = model.model_json_schema(mode="validation" if from_client else "serialization")
        fields = () if row.type in HEARTBEATS else tuple(_fields(schema))
        example = json.dumps(asyncapi.example(name), indent=2, ensure_ascii=False)
        direction = "client to bridge" if from_client else "bridge to client"
        rule, reply = (asyncapi.rule_of(row), row.reply) if from_client else ("", ())
        found.append(Message(name, row.type, direction, row.summary, rule, reply, fields, example))
    return found


def _fields(schema: dict[str, Any]) -> Iterable[Field]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield Field(name, _type(field, schema.get("$defs", {})), name in required)


def _type(field: dict[str, Any], defs: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
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


def messages_markdown() -> str:
    """``docs/messages.md``."""
    lines = [
        "# Messages",
        "",
        GENERATED.format(source="`bridge_project/protocol/`"),
        "",
        f"The {len(CATALOGUE)} message types of the WebSocket at `{asyncapi.ADDRESS}`, each with an example. The same as an AsyncAPI document: `/api/v1/asyncapi`",
        "on any bridge. How to write a client: [clients.md](clients.md).",
        "",
    ]
    for message in messages():
        lines += [f"## {message.type} ({message.direction})", "", message.summary, ""]
        lines += [message.rule, ""] if message.rule else []
        lines += (
            ["Answered by " + " or ".join(f"`{reply}`" for reply in message.reply) + ".", ""]
            if message.reply
            else []
        )
        rows = [
            (f"`{field.name}`", field.type, "yes" if field.required else "")
            for field in message.fields
        ]
        lines += [*_table(("Field", "Type", "Required"), rows), ""] if rows else []
        lines += ["```json", message.example, "```", ""]
    return "\n".join(lines)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
