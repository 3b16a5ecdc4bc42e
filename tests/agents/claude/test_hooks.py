"""The real claude-code, run plainly by its user, with the installed hooks: what it does reaches a
phone (D37, D47).
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.claude import agent
from tests.agents.claude_model import Model, Text, Tool
from tests.conformance.phone import Phone
from tests.faults.quick import QuickBridge

# command → whether it went well, None when it was not let run
CALLS = {"echo seen": True, "ls nowhere": False, "touch made": None}
# the last one asks for permission
USES = ["PreToolUse", "PostToolUse", "PreToolUse", "PostToolUse", "PreToolUse", "PreToolUse"]
STORY = ["SessionStart", "UserPromptSubmit", *USES, "Stop", "SessionEnd"]


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[QuickBridge]:
    bridge = QuickBridge(tmp_path / "bridge")
    bridge.start()
    bridge.pin = bridge.pairing().pin
    yield bridge
    bridge.stop()


def test_a_run_of_the_program_reaches_a_phone(
    model: Model, surroundings: dict[str, str], tmp_path: Path, bridge: QuickBridge
) -> None:
    """From SessionStart to SessionEnd, in order: a command that works, one that fails, and one that
    the agent asks about, which nobody is there to allow.
    """
    settings, directory, program = tmp_path / "settings.json", tmp_path / "work", agent.program()
    directory.mkdir()
    bridge.manage("install_hooks", "--settings", str(settings), "--yes")
    calls = [[Tool("Bash", {"command": command})] for command in CALLS]
    prompt = model.play(
        "echo", [Text("I will look. "), *calls[0]], *calls[1:], [Text("That was it.")]
    )
    session_id = str(uuid.uuid4())
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANTHROPIC_", "CLAUDE"))
    } | surroundings
    with bridge.phones() as [phone]:
        done = subprocess.run(
            [
                str(program),
                "-p",
                prompt,
                "--settings",
                str(settings),
                "--session-id",
                session_id,
                "--allowedTools",
                "Bash(echo:*)",
            ],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
        )
        assert (done.returncode, done.stdout.strip()) == (0, "That was it."), done
        phone.expect("session_end", session_id=session_id)
        phone.join(session_id)
        phone.collect(lambda: len(events(phone, session_id)) >= len(STORY), "all events")
        told = events(phone, session_id)
        asked, decided = notices(phone, "approval_required"), notices(phone, "approval_decided")
    assert [event["event"] for event in told] == STORY
    start, said, *uses, stop, _ = (event["payload"] for event in told)
    assert start["working_directory"] == str(directory)
    assert said["prompt"] == prompt
    for (command, success), before, after in zip(CALLS.items(), uses[::2], uses[1::2], strict=True):
        assert (before["tool"], before["params"]["command"], before["requires_approval"]) == (
            "Bash",
            command,
            False,
        )
        assert (after["params"]["command"], after.get("success")) == (command, success)
    assert [use["requires_approval"] for use in uses if "requires_approval" in use] == [
        False,
        False,
        False,
        True,
    ]
    assert stop["reason"] == "task_completed" and not (directory / "made").exists()

    ids = [one["tool_call_id"] for one in payloads(phone, session_id, "tool_call")]
    results = payloads(phone, session_id, "tool_result")
    assert [(one["tool_call_id"], one["result"]["success"]) for one in results] == [
        (ids[0], True),
        (ids[1], False),
    ]
    [error] = payloads(phone, session_id, "tool_error")
    assert (error["tool_call_id"], error["code"], error["retryable"]) == (
        ids[1],
        "TOOL_EXECUTION_FAILED",
        False,
    ) and "nowhere" in error["message"]
    [asking] = payloads(phone, session_id, "approval_required")
    assert (asking["tool_call_id"], asking["source"], asking["params"]["command"]) == (
        ids[2],
        "hooks",
        "touch made",
    )
    assert [one["tool_call_id"] for one in asked] == [ids[2]]
    assert [(one["tool_call_id"], one["decision"], one["decided_by"]) for one in decided] == [
        (ids[2], "rejected", "agent")
    ]
    session = bridge.session(session_id)
    assert (session["status"], session["hook_count"]) == ("closed", len(STORY))


def payloads(phone: Phone, session_id: str, type_: str) -> list[dict[str, Any]]:
    return [
        message["payload"]
        for message in phone.messages
        if message["type"] == type_ and message["payload"]["session_id"] == session_id
    ]


def notices(phone: Phone, kind: str) -> list[dict[str, Any]]:
    """The data of the notifications of a kind."""
    notices = [
        message["payload"] for message in phone.messages if message["type"] == "notification"
    ]
    return [notice["data"] for notice in notices if notice["notification_type"] == kind]


def events(phone: Phone, session_id: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in phone.events(session_id)]
