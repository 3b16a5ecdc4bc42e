"""Single real agents, and what else needs npm (`make test-agents`)."""

import json
import os
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from bridge_project.docs import asyncapi
from tests.agents.install import AGENTS, REQUIRED, missing_agents
from tests.agents.real.models import Model
from tests.agents.real.place import SECONDS, payloads, place_of
from tests.agents.real.table import REAL
from tests.conformance.agents import start

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]


def test_each_call_is_reported_once(model: Model, tmp_path: Path) -> None:
    """claude-agent-acp runs the user's hooks, the bridge's among them after `make hooks`."""
    with place_of(REAL["claude-agent-acp"], model, tmp_path) as place:
        bridge, ran = place.bridge, tmp_path / "ran"
        settings = place.home / ".claude/settings.json"
        settings.parent.mkdir()
        own = {"hooks": [{"type": "command", "command": f"echo hook >> {ran}"}]}
        settings.write_text(json.dumps({"hooks": {"PreToolUse": [own], "SessionEnd": [own]}}))
        bridge.manage("install_hooks", "--settings", str(settings), "--yes")
        talk = place.talk("hooked")
        said = talk.turn("do: run touch made", "approved")
        assert talk.files() == ["made"] and "hook" in ran.read_text()
        assert len(payloads(said, "approval_required")) == len(payloads(said, "tool_result")) == 1
        talk.close()
        assert not [path for path in (bridge.data / "spool").iterdir() if path.name[0].isdigit()]
        sessions = bridge.get("/api/v1/sessions", bridge.device_token()).json()["sessions"]
        assert [one["id"] for one in sessions] == [talk.session]


@pytest.mark.parametrize(
    ("name", "command", "way"),
    [
        ("qwen", "qwen", "Use OpenAI API key ("),
        ("gemini", "gemini", "Log in with Google ("),
        ("codex", "codex login", "model provider of your own"),
    ],
)
def test_without_credentials_it_says_how_to_log_in(
    name: str, command: str, way: str, model: Model, tmp_path: Path
) -> None:
    """The command that logs it in comes first, then the ways that the agent itself names."""
    needs = [need for need in REAL[name].needs if need != "bwrap"]  # it runs no command
    bare = replace(REAL[name], settings=".none/at-all", written="", environment={}, needs=needs)
    with place_of(bare, model, tmp_path) as place:
        phone = place.bridge.phone().ready()
        answer = start(phone, place.bridge.root, agent=name, timeout=SECONDS)
        assert answer["type"] == "error", answer
        said = answer["payload"]["message"]
        assert said.startswith(f"{name} wants a login (")
        assert said.index(f"Run `{command}` in a terminal") < said.index(way)
        phone.close()


def test_it_is_an_asyncapi_3_document() -> None:
    """The AsyncAPI document against the official schema, which npm has."""
    if why_not := missing_agents():
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(why_not)
    published = AGENTS / "node_modules/@asyncapi/specs/schemas/3.0.0.json"
    official = jsonschema.Draft7Validator(json.loads(published.read_text(encoding="utf-8")))
    document = json.loads(asyncapi.document())
    assert [(list(e.absolute_path), e.message[:200]) for e in official.iter_errors(document)] == []
    assert not official.is_valid(document | {"operations": {"receive_auth": {}}})
