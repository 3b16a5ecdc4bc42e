"""The AsyncAPI document and the page of messages: every message of the catalogue, in both
directions, with an example that is true.
"""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from bridge_project.docs import asyncapi
from bridge_project.protocol.catalogue import CATALOGUE
from tests.http.conftest import Api

NAMES = [message.name for message in asyncapi.messages()]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asyncapi.document())
    return found


def resolved(document: dict[str, Any], reference: str) -> Any:
    value: Any = document
    for part in reference.removeprefix("#/").split("/"):
        value = value[part]
    return value


def test_it_is_served_without_a_token(stranger: Api) -> None:
    response = stranger.get("/api/v1/asyncapi")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json")
    assert response.json()["asyncapi"] == "3.0.0"


def test_every_reference_leads_to_what_belongs_there(document: dict[str, Any]) -> None:
    """What a schema cannot say: an operation's messages, and those of its reply, are messages of
    its channel, and these are the components'.
    """
    [(channel_name, channel)] = document["channels"].items()
    here, messages = (
        f"#/channels/{channel_name}",
        {f"#/channels/{channel_name}/messages/{name}" for name in channel["messages"]},
    )
    assert [one["$ref"] for one in channel["servers"]] == [
        f"#/servers/{name}" for name in document["servers"]
    ]
    assert {one["$ref"] for one in channel["messages"].values()} == {
        f"#/components/messages/{name}" for name in document["components"]["messages"]
    }
    for operation in document["operations"].values():
        for part in (operation, operation.get("reply", operation)):
            assert part["channel"] == {"$ref": here} and part["messages"]
            assert {one["$ref"] for one in part["messages"]} <= messages
    for message in document["components"]["messages"].values():
        references = re.findall(r'"\$ref": ?"([^"]+)"', json.dumps(message["payload"]))
        assert all(one.startswith("#/components/schemas/") for one in references)


def test_every_message_is_there_in_every_direction(document: dict[str, Any]) -> None:
    actions = {(operation["action"], name) for name, operation in document["operations"].items()}
    expected = {("receive", f"receive_{m.type}") for m in CATALOGUE.values() if m.from_client}
    expected |= {("send", f"send_{m.type}") for m in CATALOGUE.values() if m.from_server}
    assert actions == expected
    assert (
        document["components"]["messages"].keys()
        == document["channels"]["bridge"]["messages"].keys()
        == set(NAMES)
    )


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    references = set(re.findall(r'"\$ref": ?"([^"]+)"', json.dumps(document)))
    assert references
    for one in references:
        resolved(document, one)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_is_what_the_schema_says(document: dict[str, Any], name: str) -> None:
    """A draft 7 schema, which is what AsyncAPI builds on; the example is also what the models read
    and write (tests/protocol/test_golden.py).
    """
    message = document["components"]["messages"][name]
    schema = {**message["payload"], "components": document["components"]}
    jsonschema.Draft7Validator.check_schema(schema)
    [example] = message["examples"]
    jsonschema.Draft7Validator(schema).validate(example["payload"])
    if "payload" in message["payload"]["properties"]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft7Validator(schema).validate(
                {**example["payload"], "payload": "no object"}
            )


@pytest.mark.parametrize(
    "row",
    [row for row in CATALOGUE.values() if row.from_client and row.reply],
    ids=lambda row: row.type,
)
def test_a_reply_is_said(document: dict[str, Any], row: Any) -> None:
    replies = {
        one["$ref"].rpartition("/")[2]
        for one in document["operations"][f"receive_{row.type}"]["reply"]["messages"]
    }
    assert replies == {*row.reply, "error"}


def test_the_page_shows_every_message_with_its_example(stranger: Api) -> None:
    html = stranger.get("/docs/messages").content.decode()
    for message in asyncapi.messages():
        assert f'id="{message.name}"' in html
        assert all(f"<code>{field.name}</code>" in html for field in message.fields)
    assert html.count("<pre>") == len(NAMES)
