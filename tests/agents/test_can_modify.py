"""What /info says of an agent, and what becomes of changed parameters on a phone (D38, D41)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge_project.kernel.config import conf
from sessions_app.agents import registry
from sessions_app.agents.acp.permissions import CHANGED
from tests.conformance.agent_tools import Script, quick_bridge
from tests.conformance.agents import begin, end, reasons, say, words
from tests.conformance.approvals import decide
from tests.conformance.bridge import Bridge


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    script = Script(tmp_path_factory.mktemp("script"), "plain", "cancelling")
    with quick_bridge(tmp_path_factory.mktemp("acp bridge"), script) as bridge:
        yield bridge


@pytest.mark.parametrize(
    ("agent", "can_modify"), [("demo", True), ("plain", False), ("cancelling", False)]
)
def test_changed_parameters(bridge: Bridge, agent: str, can_modify: bool) -> None:
    """docs/agents.md: /info says whether an agent runs a call with changed parameters; one that
    cannot runs nothing and is told them, in the same turn and as a stream of its own; also one that
    ends its turn as cancelled at a refusal, as codex does.
    """
    [told] = [
        one
        for one in bridge.get("/api/v1/info", bridge.hook_token).json()["agents"]
        if one["name"] == agent
    ]
    assert told["can_modify"] is can_modify
    with bridge.phones(1) as (phone,):
        session = begin(bridge, phone, agent=agent)
        tool = '/tool Bash {"command": "make one"}' if agent == "demo" else "/ask make one"
        say(phone, session, tool)
        asked = phone.expect("approval_required", session_id=session)["payload"]
        recorded = decide(
            phone, session, asked["tool_call_id"], "modified", {"command": "make two"}
        )["payload"]
        assert (recorded["decision"], recorded["forwarded"]) == ("modified", True)
        result = phone.expect(
            "tool_result", session_id=session, tool_call_id=asked["tool_call_id"]
        )["payload"]["result"]
        phone.expect("stream_end", session_id=session, finish_reason="stop")
        said = words(phone.messages)
        ended = reasons(phone, session)
        end(phone, session)
    assert result["success"] is can_modify
    assert ended == ["tool_call", *([] if can_modify else ["tool_call"]), "stop"]
    if can_modify:
        assert (
            '{"command": "make two"}' in result["content"] and "make one" not in result["content"]
        )
    else:
        assert result["error"] == CHANGED and '"command": "make two"' in said, (
            "it repeats what it is told"
        )


def test_the_kinds_and_what_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(conf.__dict__, "acp_agents", {"one": ["true"]})
    monkeypatch.setattr(registry, "KINDS", {})
    registry.load()
    found = [(kind.name, kind.real, kind.can_modify) for kind in registry.KINDS.values()]
    assert found == [("claude-code", True, True), ("one", True, False), ("demo", False, True)]
