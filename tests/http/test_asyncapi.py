"""The AsyncAPI document: all of the catalogue, with true examples."""

import json
from typing import Any

import jsonschema
import pytest
from django.test import Client

from bridge_project.docs import asyncapi


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asyncapi.document())
    return found


def test_it_is_served_without_a_token(client: Client) -> None:
    response = client.get("/api/v1/asyncapi")
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


@pytest.mark.parametrize("name", [message.name for message in asyncapi.messages()])
def test_the_example_is_what_the_schema_says(document: dict[str, Any], name: str) -> None:
    """A draft 7 schema, on which AsyncAPI builds; a reference that leads nowhere fails too. The
    models read and write the example: tests/protocol/test_golden.py.
    """
    message = document["components"]["messages"][name]
    schema = {**message["payload"], "components": document["components"]}
    jsonschema.Draft7Validator.check_schema(schema)
    [example] = message["examples"]
    jsonschema.Draft7Validator(schema).validate(example["payload"])
