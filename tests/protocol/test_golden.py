"""One example on the wire for every message, HTTP body and hook event: each is what the models read
and, byte for value, what they write.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bridge_project.docs import asyncapi
from bridge_project.protocol import http, jsontext
from bridge_project.protocol.base import ClientPayload, Wire
from bridge_project.protocol.catalogue import CATALOGUE, encode
from bridge_project.protocol.hooks import PAYLOADS
from bridge_project.protocol.parse import parse_client, parse_hook_body
from bridge_project.protocol.types import HOOK_EVENTS

GOLDEN = Path(__file__).parent.parent / "golden"
MESSAGES = asyncapi.EXAMPLES  # part of the published protocol
NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)

# session_end goes both ways; its server example has a name of its own.
CLIENT: dict[str, type[ClientPayload]] = {
    row.type: row.client for row in CATALOGUE.values() if row.client
}
SERVER: dict[str, type[Wire]] = {
    f"{row.type}.server" if row.client else row.type: row.server
    for row in CATALOGUE.values()
    if row.server
}
HTTP: dict[str, type[Wire]] = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "_", model.__name__).lower(): model for model in http.HTTP_BODIES
}


def golden(name: str) -> tuple[str, Any]:
    text = (GOLDEN / f"{name}.json" if "/" in name else MESSAGES / f"{name}.json").read_text(
        encoding="utf-8"
    )
    return text, json.loads(text)


def names(directory: Path) -> set[str]:
    return {path.stem for path in directory.glob("*.json")}


def test_there_is_one_example_for_each_and_no_other() -> None:
    assert names(MESSAGES) == CLIENT.keys() | SERVER.keys()
    assert names(GOLDEN / "http") == HTTP.keys()
    assert names(GOLDEN / "hooks") == set(HOOK_EVENTS)


@pytest.mark.parametrize("name", CLIENT)
def test_a_client_message(name: str) -> None:
    text, example = golden(name)
    message = parse_client(text, strict_ids=False)
    assert type(message.payload) is CLIENT[name]
    assert message.type == name
    assert message.raw == example.get("payload", {})
    assert (
        jsontext.loads(
            encode(message.payload, id=example.get("id"), timestamp=example["timestamp"]).text
        )
        == example
    )


@pytest.mark.parametrize("name", SERVER)
def test_a_server_message(name: str) -> None:
    _, example = golden(name)
    payload = SERVER[name].model_validate(example.get("payload", {}))
    encoded = encode(payload, id=example.get("id"), timestamp=example["timestamp"])
    assert jsontext.loads(encoded.text) == example
    assert encoded.type == example["type"] == name.removesuffix(".server")


@pytest.mark.parametrize("name", HTTP)
def test_an_http_body(name: str) -> None:
    _, example = golden(f"http/{name}")
    assert HTTP[name].model_validate(example).wire() == example


@pytest.mark.parametrize("name", HOOK_EVENTS)
def test_a_hook_event(name: str) -> None:
    text, example = golden(f"hooks/{name}")
    event = parse_hook_body(text.encode(), now=NOW)
    assert (event.event, event.payload, event.event_id) == (
        name,
        example["payload"],
        example.get("event_id"),
    )
    assert PAYLOADS[event.event].model_validate(event.payload).wire() == example["payload"]  # type: ignore[index]
