"""What a real agent sends, the whole way: installed hook command, spool, forwarder, TLS, log, a
phone's socket (D47).

The captured files are in ``tests/fixtures/hooks``; what each must become stands in one table.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hooks_app.producer.shell_command import HOOK_EVENTS
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import new_session
from tests.hooks.scripted import FIXTURES, fixture

NAMES = sorted(path.stem for path in FIXTURES.glob("*.json") if path.stem != "_index")
# kept as they are wherever they come
COMMON = {
    "transcript_path",
    "cwd",
    "prompt_id",
    "permission_mode",
    "effort",
    "agent_id",
    "agent_type",
}


def pre(tool: str, risk: str, *, asks: bool = False) -> tuple[str, dict[str, Any]]:
    extra = {"permission_request": True} if asks else {}
    return "PreToolUse", {"tool": tool, "risk_level": risk, "requires_approval": asks, **extra}


def post(tool: str, took: int, *, success: bool = True, **more: Any) -> tuple[str, dict[str, Any]]:
    return "PostToolUse", {"tool": tool, "success": success, "execution_time_ms": took, **more}


BACKGROUND = [
    {
        "id": "afdf6220138905b33",
        "type": "subagent",
        "status": "running",
        "description": "Sub job",
        "agent_type": "general-purpose",
    }
]
IDLE = {"background_tasks": [], "session_crons": [], "stop_hook_active": False}
SUMMARY = "The user asked for scripted things; all done."
SUBAGENTS = "/home/dev/.claude/projects/-home-dev-project/{}/subagents/agent-{}.jsonl"

# Fixture → the event, and what its payload must say; None: the bridge has no use for it.
EXPECTED: dict[str, tuple[str, dict[str, Any]] | None] = {
    "MessageDisplay": None,
    "Notification-idle_prompt": (
        "Notification",
        {
            "message": "Claude is waiting for your input",
            "level": "info",
            "notification_type": "idle_prompt",
        },
    ),
    "Notification-permission_prompt": (
        "Notification",
        {
            "message": "Claude needs your permission",
            "level": "warning",
            "notification_type": "permission_prompt",
        },
    ),
    "PermissionRequest-AskUserQuestion": pre("AskUserQuestion", "low", asks=True),
    "PermissionRequest-Bash": pre("Bash", "high", asks=True),
    "PermissionRequest-Edit": pre("Edit", "medium", asks=True),
    "PermissionRequest-Write": pre("Write", "medium", asks=True),
    "PostCompact": None,
    "PostModelSwitch-sdk": None,
    "PostToolBatch": None,
    "PostToolBatch-in-subagent": None,
    "PostToolUse-Agent": post("Agent", 20),
    "PostToolUse-AskUserQuestion": post("AskUserQuestion", 1),
    "PostToolUse-Bash": post("Bash", 33),
    "PostToolUse-Bash-in-subagent": post(
        "Bash", 18, agent_id="afdf6220138905b33", agent_type="general-purpose"
    ),
    "PostToolUse-Edit": post("Edit", 5),
    "PostToolUse-Read": post("Read", 2),
    "PostToolUse-Write": post("Write", 7),
    "PostToolUseFailure-Bash": post(
        "Bash", 30, success=False, result={"error": "Exit code 3\noops", "interrupted": False}
    ),
    "PreCompact": ("PreCompact", {"trigger": "manual", "custom_instructions": "keep the names"}),
    "PreModelSwitch-sdk": None,
    "PreToolUse-Agent": pre("Agent", "medium"),
    "PreToolUse-AskUserQuestion": pre("AskUserQuestion", "low"),
    "PreToolUse-Bash": pre("Bash", "low"),
    "PreToolUse-Bash-in-subagent": pre("Bash", "low"),
    "PreToolUse-Edit": pre("Edit", "medium"),
    "PreToolUse-Read": pre("Read", "low"),
    "PreToolUse-Write": pre("Write", "medium"),
    "SessionEnd-clear": ("SessionEnd", {"exit_reason": "user_exit", "reason": "clear"}),
    "SessionEnd-other": ("SessionEnd", {"exit_reason": "completion", "reason": "other"}),
    "SessionEnd-prompt_input_exit": (
        "SessionEnd",
        {"exit_reason": "user_exit", "reason": "prompt_input_exit"},
    ),
    "SessionStart-clear": (
        "SessionStart",
        {"working_directory": "/home/dev/project", "environment": {"source": "clear"}},
    ),
    "SessionStart-compact-with-model": (
        "Notification",
        {"level": "info", "notification_type": "context_compacted", "model": "claude-opus-5-5"},
    ),
    "SessionStart-resume": (
        "SessionStart",
        {
            "working_directory": "/home/dev/project",
            "environment": {"source": "resume"},
            "context_tokens": 1240,
        },
    ),
    "SessionStart-startup": (
        "SessionStart",
        {"working_directory": "/home/dev/project", "environment": {"source": "startup"}},
    ),
    "SessionStart-startup-with-model": (
        "SessionStart",
        {"environment": {"source": "startup", "model": "claude-opus-5-5"}},
    ),
    "Stop": (
        "Stop",
        {"reason": "task_completed", "message": "Done: the command printed hi.", "context": IDLE},
    ),
    "Stop-background-running": (
        "Stop",
        {"reason": "task_completed", "context": {**IDLE, "background_tasks": BACKGROUND}},
    ),
    "StopFailure": (
        "Stop",
        {"reason": "error", "message": "API Error: 400 scripted bad request", "error": "unknown"},
    ),
    "SubagentStart": None,
    "SubagentStop-in-subagent": (
        "SubagentStop",
        {
            "result": "sub agent: result 42.",
            "context": {
                **IDLE,
                "background_tasks": BACKGROUND,
                "agent_id": "afdf6220138905b33",
                "agent_type": "general-purpose",
                "agent_transcript_path": SUBAGENTS.format(
                    "222b738b-a6d1-42cc-a086-e24ec9e10c1b", "afdf6220138905b33"
                ),
            },
        },
    ),
    "SubagentStop-in-subagent-compact-agent": ("SubagentStop", {"result": SUMMARY}),
    "UserPromptSubmit": ("UserPromptSubmit", {"prompt": "SCN:bash go"}),
    "UserPromptSubmit-task-notification": (
        "UserPromptSubmit",
        {
            "prompt": 'Agent "Sub job" finished: sub agent: result 42.',
            "context": {"synthetic": True},
        },
    ),
}


class Agent:
    """Runs the commands of a settings file as an agent runs them."""

    def __init__(self, bridge: Bridge, settings: Path) -> None:
        bridge.manage("install_hooks", "--settings", str(settings), "--yes")
        self.hooks = json.loads(settings.read_text())["hooks"]

    def fire(self, raw: dict[str, Any]) -> None:
        """Fire a hook; a kind that is not installed goes through the command of one that is, as if
        a user had added it.
        """
        kind = raw["hook_event_name"]
        entry = self.hooks[kind if kind in self.hooks else "Notification"][0]["hooks"][0]
        done = subprocess.run(
            ["/bin/sh", "-c", entry["command"]],
            input=json.dumps(raw).encode(),
            capture_output=True,
            timeout=180,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.fixture(scope="module")
def bridge(make_bridge: Callable[..., Bridge]) -> Bridge:
    return make_bridge("real-hooks")


@pytest.fixture(scope="module")
def agent(bridge: Bridge, tmp_path_factory: pytest.TempPathFactory) -> Agent:
    return Agent(bridge, tmp_path_factory.mktemp("agent") / "settings.json")


@pytest.fixture(scope="module")
def phone(bridge: Bridge) -> Iterator[Phone]:
    """It joins the sessions of one test after the other."""
    with bridge.phones() as [phone]:
        yield phone


def test_every_kind_of_event_is_installed(agent: Agent) -> None:
    assert set(HOOK_EVENTS) == set(agent.hooks)


def test_what_was_captured_reaches_the_phone(bridge: Bridge, agent: Agent, phone: Phone) -> None:
    """Each in a session of its own: translated, with all that the agent has said; what the bridge
    has no use for is not sent on.
    """
    assert sorted(EXPECTED) == NAMES and len(NAMES) == 44
    sessions = {name: new_session() for name in NAMES}
    bridge.watch(phone, *sessions.values())
    for name in [*NAMES, "UserPromptSubmit"]:
        agent.fire(fixture(name) | {"session_id": sessions[name]})
    for name, expected in EXPECTED.items():
        if expected is None:
            continue
        raw, event = (
            fixture(name),
            phone.expect("agent_event", session_id=sessions[name])["payload"],
        )
        said = event["payload"]
        assert event["event"] == event["event_type"] == expected[0], name
        assert said == said | expected[1], name
        assert {key: said[key] for key in COMMON & raw.keys()} == {
            key: raw[key] for key in COMMON & raw.keys()
        }, name
        if "tool_name" in raw:
            assert said["params"] == raw["tool_input"], name
            assert said.get("tool_call_id") == raw.get("tool_use_id"), name
        if "tool_response" in raw:
            assert said["result"] == raw["tool_response"], name
    prompted = sessions["UserPromptSubmit"]
    phone.collect(lambda: len(phone.events(prompted)) == 2, "the last of all")
    assert "context" not in phone.events(prompted)[0]["payload"]["payload"], "a person wrote it"
    for name, expected in EXPECTED.items():
        assert expected is not None or not phone.events(sessions[name]), name


def test_a_whole_session_in_the_order_in_which_it_happened(
    bridge: Bridge, agent: Agent, phone: Phone
) -> None:
    """SessionStart to SessionEnd; the session is announced, titled by its prompt, and closed."""
    session_id = new_session()
    story = [
        "SessionStart-startup",
        "UserPromptSubmit",
        "PreToolUse-Bash",
        "PostToolUse-Bash",
        "Stop",
        "SessionEnd-other",
    ]
    agent.fire(fixture(story[0]) | {"session_id": session_id})
    phone.expect("session_started", session_id=session_id)
    phone.join(session_id)
    for name in story[1:]:
        agent.fire(fixture(name) | {"session_id": session_id})
    phone.expect("session_end", session_id=session_id)
    phone.collect(lambda: len(phone.events(session_id)) == len(story), "all events")
    assert [event["payload"]["event"] for event in phone.events(session_id)] == [
        name.partition("-")[0] for name in story
    ]
    session = bridge.session(session_id)
    assert (session["status"], session["title"], session["hook_count"]) == (
        "closed",
        "SCN:bash go",
        len(story),
    )
    assert [event["type"] for event in session["recent_events"]] == [
        name.partition("-")[0] for name in reversed(story)
    ]


def test_what_happens_while_the_bridge_is_down_arrives_afterwards(
    make_bridge: Callable[..., Bridge], tmp_path: Path
) -> None:
    """The agent notices nothing; the phone gets everything, once and in order."""
    bridge = make_bridge("away")
    agent = Agent(bridge, tmp_path / "settings.json")
    session_id = new_session()
    phone = bridge.phone(device_id="a-phone")
    phone.ready()
    phone.close()
    bridge.kill()
    for number in range(20):
        agent.fire(
            fixture("UserPromptSubmit") | {"session_id": session_id, "prompt": f"prompt {number}"}
        )
    bridge.start()
    phone.ready()
    phone.expect("session_started", session_id=session_id)
    phone.join(session_id)
    phone.collect(lambda: len(phone.events(session_id)) >= 20, "what the spool held")
    assert [event["payload"]["payload"]["prompt"] for event in phone.events(session_id)] == [
        f"prompt {number}" for number in range(20)
    ]
    phone.close()


def test_a_backlog_holds_no_person_up_and_no_rate_limit_holds_the_backlog(
    make_bridge: Callable[..., Bridge], tmp_path: Path
) -> None:
    """More than the rate of `/hooks/event` allows in a minute wait in the spool: all arrive, in
    order for each session, and first the session in which the agent waits for a decision.
    """
    bridge = make_bridge("backlog", BRIDGE_RATE_LIMITS="on")
    agent, asks, others = Agent(bridge, tmp_path / "settings.json"), new_session(), new_session()
    phone = bridge.phone(device_id="a-phone")
    phone.ready()
    phone.close()
    bridge.kill()
    spool, began = bridge.data / "spool", time.time() - 100
    for number in range(300):
        path, raw = spool / str(number), fixture("UserPromptSubmit")
        path.write_text(json.dumps(raw | {"session_id": others, "number": number}))
        os.utime(path, (began + number / 10,) * 2)
    agent.fire(fixture("PermissionRequest-Bash") | {"session_id": asks})
    bridge.start()
    phone.ready()
    for session_id in (asks, others):
        assert phone.expect("session_started")["payload"]["session_id"] == session_id
    asked = phone.expect("notification", session_id=asks)["payload"]
    assert asked["notification_type"] == "approval_required"
    phone.join(others)
    phone.wait_numbers(others, range(300))
    phone.close()
