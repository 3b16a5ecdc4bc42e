"""The AsyncAPI document against the official schema, which npm has (`make test-agents`)."""

import json
import os

import jsonschema
import pytest

from bridge_project.docs import asyncapi
from tests.agents.install import AGENTS, REQUIRED, missing_agents


@pytest.mark.agents
def test_it_is_an_asyncapi_3_document() -> None:
    if why_not := missing_agents():
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(why_not)
    published = AGENTS / "node_modules/@asyncapi/specs/schemas/3.0.0.json"
    official = jsonschema.Draft7Validator(json.loads(published.read_text(encoding="utf-8")))
    document = asyncapi.build()
    assert [(list(e.absolute_path), e.message[:200]) for e in official.iter_errors(document)] == []
    assert not official.is_valid(document | {"operations": {"receive_auth": {}}})
