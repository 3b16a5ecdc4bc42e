"""The AsyncAPI document against the official schema of AsyncAPI 3, which npm has, as it has the
agents (`make test-agents`).
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from bridge_project.docs import asyncapi
from tests.agents.install import AGENTS, REQUIRED, missing_agents

pytestmark = pytest.mark.agents


@pytest.fixture(scope="module")
def official() -> jsonschema.Draft7Validator:
    """What the AsyncAPI initiative publishes."""
    if why_not := missing_agents():
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(why_not)
    return jsonschema.Draft7Validator(
        json.loads(
            (AGENTS / "node_modules/@asyncapi/specs/schemas/3.0.0.json").read_text(encoding="utf-8")
        )
    )


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return asyncapi.build()


def test_it_is_an_asyncapi_3_document(
    document: dict[str, Any], official: jsonschema.Draft7Validator
) -> None:
    assert [
        (list(error.absolute_path), error.message[:200]) for error in official.iter_errors(document)
    ] == []


# What would make it none, each in another kind of object.
FAULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another version": lambda document: document.update(asyncapi="2.6.0"),
    "no title": lambda document: document["info"].pop("title"),
    "a server without a protocol": lambda document: document["servers"]["bridge"].pop("protocol"),
    "an unknown field of a channel": lambda document: document["channels"]["bridge"].update(
        publish={}
    ),
    "an unknown action": lambda document: document["operations"]["receive_auth"].update(
        action="publish"
    ),
    "an operation without a channel": lambda document: document["operations"]["receive_auth"].pop(
        "channel"
    ),
    "messages that are no list": lambda document: document["operations"]["receive_auth"].update(
        messages={}
    ),
    "an unknown field of a reply": lambda document: document["operations"]["receive_auth"][
        "reply"
    ].update(message={}),
    "an unknown field of a message": lambda document: document["components"]["messages"][
        "auth"
    ].update(id="auth"),
    "examples that are no list": lambda document: document["components"]["messages"]["auth"].update(
        examples={}
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_none_is_noticed(
    document: dict[str, Any], official: jsonschema.Draft7Validator, fault: str
) -> None:
    changed = copy.deepcopy(
        {
            **document,
            "components": {"messages": {"auth": document["components"]["messages"]["auth"]}},
        }
    )
    assert official.is_valid(changed)
    FAULTS[fault](changed)
    assert not official.is_valid(changed)
