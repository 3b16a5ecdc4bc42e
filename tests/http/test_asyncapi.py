"""The AsyncAPI document: all of the catalogue, with true examples."""

import json
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


def test_it_is_served_without_a_token(stranger: Api) -> None:
    response = stranger.get("/api/v1/asyncapi")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json")
    assert response.json()["asyncapi"] == "3.0.0"


def test_every_reference_leads_to_what_belongs_there(document: dict[str, Any]) -> None:
    """What a schema cannot say: an operation's messages, and those of its reply, are messages of
    its channel, and these are the components'.
    """
    [(name, channel)] = document["channels"].items()
    here = f"#/channels/{name}"
    messages = {f"{here}/messages/{one}" for one in channel["messages"]}
    servers = [{"$ref": f"#/servers/{one}"} for one in document["servers"]]
    assert channel["servers"] == servers
    assert {one["$ref"] for one in channel["messages"].values()} == {
        f"#/components/messages/{one}" for one in document["components"]["messages"]
    }
    for operation in document["operations"].values():
        for part in (operation, operation.get("reply", operation)):
            assert part["channel"] == {"$ref": here} and part["messages"]
            assert {one["$ref"] for one in part["messages"]} <= messages


def test_every_message_is_there_in_every_direction(document: dict[str, Any]) -> None:
    actions = {(operation["action"], name) for name, operation in document["operations"].items()}
    expected = {("receive", f"receive_{m.type}") for m in CATALOGUE.values() if m.from_client}
    expected |= {("send", f"send_{m.type}") for m in CATALOGUE.values() if m.from_server}
    assert actions == expected
    for message in asyncapi.messages():
        if message.reply:
            said = document["operations"][f"receive_{message.model.type}"]["reply"]["messages"]
            replies = {one["$ref"].rpartition("/")[2] for one in said}
            assert replies == {*message.reply, "error"}
    assert document["channels"]["bridge"]["messages"].keys() == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_is_what_the_schema_says(document: dict[str, Any], name: str) -> None:
    """A draft 7 schema, on which AsyncAPI builds; a reference that leads nowhere fails too. The
    models read and write the example: tests/protocol/test_golden.py.
    """
    message = document["components"]["messages"][name]
    schema = {**message["payload"], "components": document["components"]}
    jsonschema.Draft7Validator.check_schema(schema)
    [example] = message["examples"]
    jsonschema.Draft7Validator(schema).validate(example["payload"])
