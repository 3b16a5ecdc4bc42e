"""Hooks of other agents than Claude Code: what they really sent, and what they take for an answer.

The inputs were recorded from the agents' own programs (tests/agents/real/test_hooks.py runs those),
each turn with one call about which a person was asked.
"""

import json
import os
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge_project.protocol.types import now_text
from hooks_app.producer.agents import AGENTS, ASKS, HookedAgent
from hooks_app.producer.install import install
from hooks_app.producer.shell_command import ANSWER_SCRIPT, hook_command
from sessions_app.approvals.hook_answer import AS_IT_IS
from tests.conformance.approvals import assert_refused, decide, of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.terminal import until
from tests.faults.quick import bridge_of_module
from tests.hooks.conftest import waiting
from tests.servers import wait_until

pytestmark = pytest.mark.spec("ws.approval_response", "ws.approval_required", "event_post.headers")

Raw = dict[str, Any]
FIXTURE = Path(__file__).parents[1] / "fixtures/other-hooks.json"
RECORDED: dict[str, list[tuple[str, Raw]]] = json.loads(FIXTURE.read_text(encoding="utf-8"))
WAITING = [one for one in AGENTS.values() if one.answers and one.waits]

bridge = bridge_of_module()


class Program:
    """An agent, as far as its hooks tell: runs the commands that its settings have."""

    def __init__(self, bridge: Bridge, agent: HookedAgent, session_id: str, **how: Any) -> None:
        self.agent, self.session_id = agent, session_id
        self.spool = bridge.data / "spool"
        text = install("", str(self.spool), agent=agent, **how)
        hooks = tomllib.loads(text) if agent.form == "toml" else json.loads(text)
        listed = hooks["hooks"] if agent.form == "toml" else []
        self.commands = {one["event"]: one["command"] for one in listed} or {
            event: entry.get("hooks", [entry])[0].get("command", entry.get("bash"))
            for event, [entry] in hooks["hooks"].items()
        }
        recorded = RECORDED[agent.name]
        self.events = [(name, self.mine(raw)) for name, raw in recorded if name in self.commands]

    def mine(self, raw: Raw) -> Raw:
        ids = [name for name in ("session_id", "sessionId") if name in raw]
        return raw | dict.fromkeys(ids, self.session_id)

    def begin(self, command: str, raw: Raw, **more: str) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        known = {name: value for name, value in os.environ.items() if name != "CLAUDE_PID"} | more
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=pipe, stdout=pipe, stderr=pipe, env=known
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(raw, separators=(",", ":")).encode())  # as they do
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, event: str, raw: Raw, **more: str) -> None:
        """Run a hook to its end, as it is to be when it reports only."""
        process = self.begin(self.commands[event], raw, **more)
        assert (*process.communicate(timeout=60), process.returncode) == (b"", b"", 0)

    def until_asked(self) -> tuple[str, Raw]:
        """Run the hooks of a turn up to the one that asks; return that."""
        for event, raw in self.events:
            if event == self.agent.answers:
                return event, raw
            self.run(event, raw)
        raise AssertionError("it did not ask")

    def until_stored(self) -> None:
        """Wait until the bridge has all that was told so far: a prompt ends *away*."""
        wait_until(lambda: not waiting(self.spool))


def normal(agent: HookedAgent, raw: Raw) -> Raw:
    """The question of an agent in the mode in which it asks."""
    return raw | ({"permission_mode": "off"} if agent.asking else {})


@pytest.fixture
def leave(phone: Phone) -> Iterator[Callable[[], object]]:
    """Say that the owner is away, until the test is over."""
    yield lambda: phone.request("presence_set", {"away": True})
    phone.request("presence_set", {"away": False})


@pytest.mark.parametrize("name", RECORDED)
def test_a_turn(name: str, bridge: Bridge, phone: Phone) -> None:
    """The phone shows a session of that agent, its prompt and its call, each once."""
    sid = f"turn-of-{name}"
    program = Program(bridge, AGENTS[name], sid)
    for event, raw in program.events[:1]:
        program.run(event, raw)
    started = phone.expect("session_started", session_id=sid)["payload"]
    about = started["session"]
    assert (about["agent"], about["working_directory"]) == (name, "/home/dev/project")
    phone.join(sid)
    for event, raw in program.events[1:]:
        program.run(event, raw)
        if name == "grok":  # which runs the hooks of Claude Code's settings, too
            process = program.begin(hook_command(str(program.spool)), raw)
            assert process.wait(60) == 0
    phone.expect("session_end", session_id=sid)  # which every device is told, perhaps before
    phone.collect(
        lambda: "Stop" in [one["payload"]["event"] for one in phone.events(sid)], "the turn's end"
    )
    common = [AGENTS[name].events[event] for event, _ in program.events]
    asks = common.count(ASKS)
    questions = of(phone, "approval_required", sid)
    calls, results = of(phone, "tool_call", sid), of(phone, "tool_result", sid)
    assert (len(questions), len(results)) == (asks, 1)
    assert len(calls) == (0 if name == "qwen" else 1), "qwen asks before it begins"
    ids = {one["payload"]["tool_call_id"] for one in (*questions, *calls, *results)}
    assert len(ids) == 1 and all(one["payload"].get("changed") is None for one in questions)
    events = [one["payload"] for one in of(phone, "agent_event", sid)]
    told = [one["event"] for one in events]
    prompts = [one["payload"]["prompt"] for one in events if one["event"] == "UserPromptSubmit"]
    # droid's `exec` tells no prompt
    assert [one[:7] for one in prompts] == ([] if name == "droid" else ["do: run"])
    assert told.count("Stop") == 1 and told.count("PostToolUse") == 1
    result = results[0]["payload"]["result"]
    assert result["success"] is (name != "kimi"), "there the person said no"
    assert "[" not in str(result.get("content"))[:1], "the text, not what it is wrapped in"


@pytest.mark.parametrize("name", RECORDED)
def test_below_the_bridge_nothing_is_told(name: str, bridge: Bridge, phone: Phone) -> None:
    program = Program(bridge, AGENTS[name], f"ours-{name}", answers=True)
    for event, raw in program.events:
        program.run(event, raw, AGENT_BRIDGE_SESSION="1")
    assert waiting(program.spool) == []


SAID = {"approved": {"behavior": "allow"}, "rejected": {"behavior": "deny", "message": "Not now"}}


def form(agent: HookedAgent, decision: str, why: str = "Not now") -> Raw:
    """What the agent was seen to take for that decision."""
    said = SAID[decision] | ({"message": why} if decision == "rejected" else {})
    if agent.name == "copilot":
        return said
    if agent.name == "droid":
        why = said.get("message", "Allowed from another device.")
        before = {"permissionDecision": said["behavior"], "permissionDecisionReason": why}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **before}}
    return {"hookSpecificOutput": {"hookEventName": ASKS, "decision": said}}


def joined(bridge: Bridge, agent: HookedAgent, sid: str, phone: Phone) -> tuple[Program, str, Raw]:
    """A program whose next event asks, in a session that the phone has joined."""
    program = Program(bridge, agent, sid, answers=True)
    event, raw = program.until_asked()
    program.until_stored()
    phone.join(sid)
    return program, event, raw


@pytest.mark.parametrize("decision", SAID)
@pytest.mark.parametrize("agent", WAITING, ids=lambda agent: agent.name)
def test_who_is_away_answers(
    agent: HookedAgent, decision: str, bridge: Bridge, phone: Phone, leave: Callable[[], object]
) -> None:
    sid = f"{decision}-{agent.name}"
    program, event, raw = joined(bridge, agent, sid, phone)
    leave()
    process = program.begin(program.commands[event], normal(agent, raw))
    asked = phone.expect("approval_required", session_id=sid)["payload"]
    assert asked["answerable"] is True
    call = asked["tool_call_id"]
    other = decide(phone, sid, call, "modified", {"command": "true"})
    assert "as it is" in assert_refused(other, "PROTO_INVALID_MESSAGE", True)["message"]
    recorded = decide(phone, sid, call, decision, reason="Not now")["payload"]
    assert recorded["forwarded"] is True
    printed, wrong = process.communicate(timeout=60)
    assert (json.loads(printed), wrong, process.returncode) == (form(agent, decision), b"", 0)


@pytest.mark.parametrize("agent", WAITING, ids=lambda agent: agent.name)
def test_what_a_person_has_changed_never_runs_as_it_was(
    agent: HookedAgent, bridge: Bridge, phone: Phone, leave: Callable[[], object]
) -> None:
    """Whose hook it is says the hook itself: an event over HTTP may name another agent."""
    sid = f"changed-{agent.name}"
    program, event, raw = joined(bridge, agent, sid, phone)
    leave()
    process = program.begin(program.commands[event], normal(agent, raw))
    call = phone.expect("approval_required", session_id=sid)["payload"]["tool_call_id"]
    said = {"notification_type": "x", "message": "x", "level": "debug"}
    other = {"event": "Notification", "session_id": sid, "timestamp": now_text()}
    assert (
        bridge.post_hook(other | {"payload": said}, headers={"X-Hook-Source": "another"}).status
        == 200
    )
    recorded = decide(phone, sid, call, "modified", {"command": "true"})["payload"]
    assert recorded["forwarded"] is True
    printed = process.communicate(timeout=60)[0]
    assert json.loads(printed) == form(agent, "rejected", AS_IT_IS)


@pytest.mark.parametrize("agent", WAITING, ids=lambda agent: agent.name)
def test_who_is_there_is_asked_in_the_terminal(
    agent: HookedAgent, bridge: Bridge, phone: Phone
) -> None:
    sid = f"there-{agent.name}"
    program, event, raw = joined(bridge, agent, sid, phone)
    program.run(event, normal(agent, raw))
    if not agent.asking:
        asked = phone.expect("approval_required", session_id=sid)["payload"]
        assert asked.get("answerable") is None


@pytest.mark.parametrize("agent", WAITING, ids=lambda agent: agent.name)
def test_it_waits_no_longer_than_the_agent_lets_it(
    agent: HookedAgent, bridge: Bridge, phone: Phone, leave: Callable[[], object]
) -> None:
    """Then it says nothing, and the terminal asks as usual; the devices are told."""
    sid = f"slow-{agent.name}"
    program = Program(bridge, agent, sid, answers=True)
    script = program.spool / ANSWER_SCRIPT
    whole = script.read_text()
    assert f"most={25 if agent.name == 'copilot' else 50}" in whole
    event, raw = program.until_asked()
    program.until_stored()
    phone.join(sid)
    leave()
    script.write_text(whole.replace("most=25", "most=2").replace("most=50", "most=2"))
    try:
        process = program.begin(program.commands[event], normal(agent, raw))
        asked = phone.expect("approval_required", session_id=sid)["payload"]
        assert asked["answerable"] is True
        told = phone.expect("approval_state", session_id=sid)["payload"]
        assert told["answerable"] is False
        assert (*process.communicate(timeout=60), process.returncode) == (b"", b"", 0)
    finally:
        script.write_text(whole)
    late = decide(phone, sid, asked["tool_call_id"], "approved")["payload"]
    assert late["forwarded"] is False


def test_droid_waits_only_where_it_asks(bridge: Bridge, leave: Callable[[], object]) -> None:
    """Its hook comes before every call: what reads, and what its mode allows, goes on at once."""
    program = Program(bridge, AGENTS["droid"], "droid-reads", answers=True)
    event, raw = program.until_asked()
    leave()
    program.run(event, raw)  # as recorded: in its mode `auto-low`
    program.run(event, normal(program.agent, raw) | {"tool_name": "Read"})
    quoting = {"command": '"permission_mode":"off" "tool_name":"Execute"'}
    program.run(event, raw | {"tool_name": "Read", "tool_input": quoting})


def test_a_call_that_is_allowed_at_the_desk_waits_no_more(bridge: Bridge, phone: Phone) -> None:
    """Qwen Code asks before it says that a call begins, and has no id for it yet."""
    sid = "qwen-goes-on"
    program = Program(bridge, AGENTS["qwen"], sid)
    for event, raw in program.events[:3]:
        program.run(event, raw)
    until(phone, sid, turn="waiting", pending_approvals=1)
    for event, raw in program.events[3:5]:
        program.run(event, raw)
    view = until(phone, sid, turn="working", pending_approvals=0)
    assert view["doing"]["tool"] == "run_shell_command"


def test_two_agents_in_one_spool_are_told_apart(bridge: Bridge, phone: Phone) -> None:
    program = [Program(bridge, AGENTS[name], f"both-{name}") for name in ("codex", "kimi")]
    for one in program:
        one.run(*one.events[0])
    for one in program:
        started = phone.expect("session_started", session_id=one.session_id)["payload"]
        assert started["session"]["agent"] == one.agent.name
