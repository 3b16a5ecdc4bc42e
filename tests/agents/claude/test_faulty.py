"""A program that is no claude-code any more once it has been given a prompt (D38, D40)."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sessions_app.agents.claude import program as claude
from sessions_app.agents.events import AgentDied, TurnEnded
from tests.agents.conftest import claude_driver
from tests.agents.drive import Drive, within

pytestmark = pytest.mark.asyncio(loop_scope="module")

# the second line is for the shell: a path in the first could have no blank
PROGRAM = """#!/bin/sh
"exec" "{python}" "-IS" "$0" "$@"
import json, sys, time

for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "control_request":
        response = {{"subtype": "success", "request_id": message["request_id"], "response": {{}}}}
        print(json.dumps({{"type": "control_response", "response": response}}), flush=True)
        if "deaf" == "{fault}":
            time.sleep(900)
    elif "deep" == "{fault}":
        deep = "[" * 100_000 + "]" * 100_000
        print('{{"type": "system", "subtype": "x", "data": ' + deep + "}}", flush=True)
    elif "lacking" == "{fault}":
        message = {{"role": "assistant", "content": []}}  # no model
        print(json.dumps({{"type": "assistant", "message": message}}), flush=True)
        counts = {{"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "is_error": False}}
        result = {{"type": "result", "subtype": "success", "session_id": "s"}}
        print(json.dumps(result | counts), flush=True)
    else:
        call = {{"type": "tool_use", "id": "1", "name": "Bash", "input": "no object"}}
        message = {{"role": "assistant", "model": "m", "content": [call]}}
        print(json.dumps({{"type": "assistant", "message": message}}), flush=True)
"""


@pytest_asyncio.fixture(loop_scope="module")
async def faulty(
    request: pytest.FixtureRequest, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Drive]:
    pytest.importorskip("claude_agent_sdk")
    program = tmp_path / "program"
    program.write_text(PROGRAM.format(python=sys.executable, fault=request.param))
    program.chmod(0o755)
    monkeypatch.setattr(claude, "program", lambda: program)
    drive = Drive(claude_driver())
    yield await drive.start(root)
    await drive.close()


@pytest.mark.parametrize("faulty", ["deaf"], indirect=True)
async def test_one_that_does_not_read_its_prompt(faulty: Drive) -> None:
    """Giving it returns, so that the session still takes an interrupt."""
    await within(faulty.driver.prompt("x" * 1_000_000))


@pytest.mark.parametrize("faulty", ["deep", "odd"], indirect=True)
async def test_one_that_says_what_nobody_can_read(faulty: Drive) -> None:
    await faulty.driver.prompt("Go on.")
    assert "is gone" in (await faulty.said_one(AgentDied)).reason


@pytest.mark.parametrize("faulty", ["lacking"], indirect=True)
async def test_a_message_that_lacks_a_field(faulty: Drive) -> None:
    """It is skipped; the session goes on, in this turn and the next."""
    for _ in range(2):
        ended = (await faulty.turn("Go on."))[-1]
        assert isinstance(ended, TurnEnded) and ended.finish_reason == "stop"
