"""The real claude-code, run plainly by its user, with the installed hooks: what it does reaches a phone (D37, D47)."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents import claude
from tests.agents.claude.model import Model, Text, Tool
from tests.conformance.phone import Phone
from tests.faults.quick import QuickBridge

STORY = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"]


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[QuickBridge]:
    bridge = QuickBridge(tmp_path / "bridge")
    bridge.start()
    bridge.pin = bridge.pairing().pin
    yield bridge
    bridge.stop()


def test_a_run_of_the_program_reaches_a_phone(model: Model, surroundings: dict[str, str], tmp_path: Path, bridge: QuickBridge) -> None:
    """From SessionStart to SessionEnd, in order; the call and its result with the same id."""
    settings, directory, program = tmp_path / "settings.json", tmp_path / "work", claude.program()
    directory.mkdir()
    bridge.manage("install_hooks", "--settings", str(settings))
    prompt = model.play("echo", [Text("I will look. "), Tool("Bash", {"command": "echo seen"})], [Text("That was it.")])
    session_id = str(uuid.uuid4())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "CLAUDE"))} | surroundings
    with bridge.phones() as [phone]:
        done = subprocess.run(
            [str(program), "-p", prompt, "--settings", str(settings), "--session-id", session_id, "--allowedTools", "Bash(echo:*)"],
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
    assert [event["event"] for event in told] == STORY
    start, said, before, after, stop, _ = (event["payload"] for event in told)
    assert start["working_directory"] == str(directory)
    assert said["prompt"] == prompt
    assert (before["tool"], before["params"]["command"], before["requires_approval"]) == ("Bash", "echo seen", False)
    assert (after["success"], after["tool_call_id"]) == (True, before["tool_call_id"])
    assert stop["reason"] == "task_completed"
    session = bridge.session(session_id)
    assert (session["status"], session["hook_count"]) == ("closed", len(STORY))


def events(phone: Phone, session_id: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in phone.events(session_id)]
