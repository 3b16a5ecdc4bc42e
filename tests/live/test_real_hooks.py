"""What a real agent was seen to send, from its hook command to a phone's socket (D47)."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import new_session
from tests.faults.quick import bridge_of_module
from tests.hooks.conftest import run_hook
from tests.hooks.scripted import FIXTURES, fixture

# kept as they are wherever they come
COMMON = {"transcript_path", "cwd", "prompt_id", "permission_mode", "effort"}
COMMON |= {"agent_id", "agent_type"}
# what a payload says of a tool, and what the agent calls it
TOOL = {"tool": "tool_name", "params": "tool_input", "tool_call_id": "tool_use_id"}
TOOL |= {"result": "tool_response", "execution_time_ms": "duration_ms"}
# what is kept of an end, as its context
CONTEXT = {"background_tasks", "session_crons", "stop_hook_active", "agent_transcript_path"}
CONTEXT |= {"agent_id", "agent_type"}
# Fixture → what it is to become: the event, and what its payload must say beside what is kept. The
# bridge has no use for those without an event.
INDEX = {
    name.removesuffix(".json"): about
    for name, about in json.loads((FIXTURES / "_index.json").read_text()).items()
}
EXPECTED = {name: (of["event"], of["says"]) for name, of in INDEX.items() if "event" in of}


class Agent:
    """Runs the commands of a settings file as an agent runs them."""

    def __init__(self, bridge: Bridge, settings: Path) -> None:
        bridge.manage("install_hooks", "--settings", str(settings), "--yes")
        self.hooks = json.loads(settings.read_text())["hooks"]

    def command(self, kind: str) -> str:
        return str(self.hooks[kind][0]["hooks"][0]["command"])

    def fire(self, raw: dict[str, Any]) -> None:
        """Fire a hook; a kind that is not installed goes through the command of one that is."""
        kind = raw["hook_event_name"]
        command = self.command(kind if kind in self.hooks else "Notification")
        run_hook(Path(), json.dumps(raw).encode(), command)


bridge = bridge_of_module(BRIDGE_RATE_LIMITS="on")


@pytest.fixture(scope="module")
def agent(bridge: Bridge, tmp_path_factory: pytest.TempPathFactory) -> Agent:
    return Agent(bridge, tmp_path_factory.mktemp("agent") / "settings.json")


def test_what_was_captured_reaches_the_phone(bridge: Bridge, agent: Agent, phone: Phone) -> None:
    """Translated, with all that the agent has said; or not at all."""
    names = sorted(path.stem for path in FIXTURES.glob("*.json") if path.stem != "_index")
    assert names == sorted(INDEX)
    sessions = {name: new_session() for name in names}
    bridge.watch(phone, *sessions.values())
    for name in [*names, "UserPromptSubmit"]:
        agent.fire(fixture(name) | {"session_id": sessions[name]})
    for name, (kind, payload) in EXPECTED.items():
        event = phone.expect("agent_event", session_id=sessions[name])["payload"]
        raw, said = fixture(name), event["payload"]
        kept = {key: raw[key] for key in COMMON & raw.keys()}
        if "tool_name" in raw:
            kept |= {key: raw.get(name) for key, name in TOOL.items()}
        if "background_tasks" in raw:
            kept["context"] = {key: raw[key] for key in CONTEXT & raw.keys()}
        assert event["event"] == event["event_type"] == kind, name
        assert {key: said.get(key) for key in kept | payload} == kept | payload, name
    prompted = sessions["UserPromptSubmit"]
    phone.collect(lambda: len(phone.events(prompted)) == 2, "the last of all")
    assert "context" not in phone.events(prompted)[0]["payload"]["payload"], "a person wrote it"
    for name in ("SessionEnd-clear", "SessionStart-compact-with-model"):
        said = phone.expect("notification", session_id=sessions[name])["payload"]
        assert "The conversation was c" in f"{said['title']} {said['body']}"
    assert not [name for name in INDEX.keys() - EXPECTED.keys() if phone.events(sessions[name])]


def test_a_backlog_holds_no_person_up_and_no_rate_limit_holds_the_backlog(
    bridge: Bridge, agent: Agent
) -> None:
    """All arrives, once and in order, and first the session whose agent waits for a decision."""
    asks, others = new_session(), new_session()
    phone = bridge.phone(device_id="a-phone")
    phone.ready().close()
    bridge.kill()
    spool, began = bridge.data / "spool", time.time() - 100
    for number in range(300):
        path, raw = spool / str(number), fixture("UserPromptSubmit")
        path.write_text(json.dumps(raw | {"session_id": others, "number": number}))
        os.utime(path, (began + number / 10,) * 2)
    for number in range(300, 310):
        agent.fire(fixture("UserPromptSubmit") | {"session_id": others, "number": number})
    agent.fire(fixture("PermissionRequest-Bash") | {"session_id": asks})
    bridge.start()
    phone.ready()
    for session_id in (asks, others):
        assert phone.expect("session_started")["payload"]["session_id"] == session_id
    asked = phone.expect("notification", session_id=asks)["payload"]
    assert asked["notification_type"] == "approval_required"
    phone.join(others)
    phone.wait_numbers(others, range(310))
    phone.close()
