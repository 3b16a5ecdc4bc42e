"""One example of every message and hook event: what the models read is what they write."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bridge_project.docs import asyncapi
from bridge_project.protocol import jsontext
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.hooks import EXAMPLES, parse_hook_body
from bridge_project.protocol.types import HOOK_EVENTS

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
MESSAGES = {message.name: message for message in asyncapi.messages()}


def names(directory: Path) -> set[str]:
    return {path.stem for path in directory.glob("*.json")}


def test_there_is_one_example_for_each_and_no_other() -> None:
    assert names(asyncapi.EXAMPLES) == MESSAGES.keys()
    assert names(EXAMPLES) == set(HOOK_EVENTS)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message(name: str) -> None:
    """That the bridge takes those of clients: tests/conformance/test_violations.py."""
    sent = json.loads(MESSAGES[name].example)
    payload = MESSAGES[name].model.model_validate(sent.get("payload", {}))
    encoded = encode(payload, id=sent.get("id"), timestamp=sent["timestamp"])
    assert jsontext.loads(encoded.text) == sent
    assert encoded.type == sent["type"] == name.removesuffix(".server")


@pytest.mark.parametrize("name", HOOK_EVENTS)
def test_a_hook_event(name: str) -> None:
    sent = json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    event = parse_hook_body(json.dumps(sent).encode(), now=NOW)
    assert (event.event, event.payload) == (name, sent["payload"])
    assert event.event_id == sent.get("event_id")
