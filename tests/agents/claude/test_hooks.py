"""The real claude-code, run plainly by its user, with the installed hooks (D37, D47)."""

import os
import subprocess
import uuid
from pathlib import Path
from typing import Any

from sessions_app.agents.claude import agent
from tests.agents.claude_model import Model, Text, Tool
from tests.conformance.approvals import notifications, of
from tests.conformance.phone import Phone
from tests.faults.quick import QuickBridge

# command → whether it went well, None when it was not let run
CALLS = {"echo seen": True, "ls nowhere": False, "touch made": None}
# the last one asks for permission
USES = ["PreToolUse", "PostToolUse", "PreToolUse", "PostToolUse", "PreToolUse", "PreToolUse"]
STORY = ["SessionStart", "UserPromptSubmit", *USES, "Stop", "SessionEnd"]


def payloads(phone: Phone, session_id: str, type_: str) -> list[dict[str, Any]]:
    return [message["payload"] for message in of(phone, type_, session_id)]


def test_a_run_of_the_program_reaches_a_phone(
    model: Model, surroundings: dict[str, str], tmp_path: Path
) -> None:
    """A command that works, one that fails, and one that it asks about, which nobody allows."""
    settings, directory, sid = tmp_path / "settings.json", tmp_path / "work", str(uuid.uuid4())
    directory.mkdir()
    look, *calls = [[Tool("Bash", {"command": command})] for command in CALLS]
    prompt = model.play("echo", [Text("I will look. "), *look], *calls, [Text("That was it.")])
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANTHROPIC_", "CLAUDE"))
    }
    options = ["-p", prompt, "--settings", str(settings), "--session-id", sid]
    with QuickBridge(tmp_path / "bridge") as bridge, bridge.phones() as [phone]:
        bridge.manage("install_hooks", "--settings", str(settings), "--yes")
        done = subprocess.run(
            [str(agent.program()), *options, "--allowedTools", "Bash(echo:*)"],
            cwd=directory,
            env=environment | surroundings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
        )
        assert (done.returncode, done.stdout.strip()) == (0, "That was it."), done
        phone.expect("session_end", session_id=sid)
        phone.join(sid)
        phone.collect(lambda: len(phone.events(sid)) >= len(STORY), "all events")
        session = bridge.session(sid)
    assert (session["status"], session["hook_count"]) == ("closed", len(STORY))
    told = [event["payload"] for event in phone.events(sid)]
    assert [event["event"] for event in told] == STORY
    start, said, *uses, stop, _ = (event["payload"] for event in told)
    assert (start["working_directory"], said["prompt"]) == (str(directory), prompt)
    for (command, success), before, after in zip(CALLS.items(), uses[::2], uses[1::2], strict=True):
        assert (before["tool"], before["params"]["command"]) == ("Bash", command)
        assert (after["params"]["command"], after.get("success")) == (command, success)
    asks = [use["requires_approval"] for use in uses if "requires_approval" in use]
    assert asks == [False, False, False, True]
    assert stop["reason"] == "task_completed" and not (directory / "made").exists()

    worked, failed, asked = [one["tool_call_id"] for one in payloads(phone, sid, "tool_call")]
    results = payloads(phone, sid, "tool_result")
    ended = [(one["tool_call_id"], one["result"]["success"]) for one in results]
    assert ended == [(worked, True), (failed, False)]
    [error] = payloads(phone, sid, "tool_error")
    assert (error["tool_call_id"], error["code"]) == (failed, "TOOL_EXECUTION_FAILED")
    assert error["retryable"] is False and "nowhere" in error["message"]
    [question] = payloads(phone, sid, "approval_required")
    assert (question["tool_call_id"], question["source"]) == (asked, "hooks")
    assert question["params"]["command"] == "touch made"
    [told_of_it] = notifications(phone, sid, "approval_required")
    [decided] = (one["data"] for one in notifications(phone, sid, "approval_decided"))
    assert told_of_it["data"]["tool_call_id"] == decided["tool_call_id"] == asked
    assert (decided["decision"], decided["decided_by"]) == ("rejected", "agent")
