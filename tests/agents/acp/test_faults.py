"""What devices are told when the bridge fails at what an ACP agent has it do: the code and the
retry table (SPEC Tool retry policy, D50).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from acp import schema, tool_diff_content

from sessions_app.agents.acp import files
from sessions_app.agents.events import Event, ToolFailed, ToolSucceeded
from tests.agents.acp.play import Play
from tests.agents.drive import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def told(root: Path) -> Play:
    return Play(root)


def broken(monkeypatch: pytest.MonkeyPatch, way: str, number: int) -> None:
    async def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, way, fail)


@pytest.mark.parametrize("way", ["read", "write"])
async def test_a_file_that_the_system_fails_at(
    told: Play, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A call of the bridge's own: reading, which nobody was asked about, is said when it has
    failed. The table of errors: tests/agents/test_shell.py.
    """
    broken(monkeypatch, way, errno.ETIMEDOUT)
    await told.is_refused(way)
    assert told.kinds() == ["ToolStarted" if way == "read" else "ApprovalAsked", "ToolFailed"]
    assert (told.failed.failure.code, told.failed.failure.retries) == ("TOOL_EXECUTION_FAILED", 3)
    assert told.failed.failure.message == os.strerror(errno.ETIMEDOUT)
    assert told.failed.call.tool == way.capitalize()
    assert told.failed.call.params["file_path"] == str(told.root / "a.txt")


async def test_a_command_that_the_agent_has_ended_ran_out_of_nothing(told: Play) -> None:
    """It is ended by the signal by which the system ends what takes too much memory."""
    terminal = await told.start("trap '' TERM; echo ready; while :; do sleep 1; done")
    await eventually(lambda: "ready" in told.client.terminals.text(terminal))
    await told.client.kill_terminal("s", terminal)
    await eventually(lambda: "ToolFailed" in told.kinds())
    assert (
        told.failed.failure.message.startswith("The command ") and told.failed.failure.retries == 0
    )
    await told.client.release_terminal("s", terminal)


# -- what the agent has the bridge do for a call of its own ----------------------------------------


@pytest.mark.parametrize("way", ["read", "write"])
async def test_a_file_of_the_agents_own_call(
    told: Play, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It is said once, with that call, when the agent says that it has failed."""
    path = str(told.root / "a.txt")
    if way == "read":
        where = [schema.ToolCallLocation(path=path)]
        await told.update("tool_call", title="Reading", kind="read", locations=where)
    else:
        await told.permit(kind="edit", content=[tool_diff_content(path, "text")])
    broken(monkeypatch, way, errno.ETIMEDOUT)
    await told.is_refused(way)
    assert "ToolFailed" not in told.kinds()
    await told.update(status="failed")
    assert (told.failed.failure.code, told.failed.failure.retries) == ("TOOL_EXECUTION_FAILED", 3)
    assert told.failed.call.id == "c1" and len(told.kinds()) == 2, "announced once, failed once"


@pytest.mark.parametrize(
    ("status", "expected"), [("failed", ToolFailed), ("completed", ToolSucceeded)]
)
async def test_a_command_of_the_agents_own_call(
    told: Play, status: str, expected: type[Event]
) -> None:
    """Whether its call has failed is for the agent to say; how, the bridge knows."""
    command = "echo 'HTTP 429: too many requests' >&2; exit 1"
    await told.permit(kind="execute", raw_input={"command": command})
    await told.client.release_terminal("s", await told.run(command))
    await told.update(status=status)
    last = told.hear()[-1]
    assert isinstance(last, expected)
    if isinstance(last, ToolFailed):
        told_of_it = (last.failure.code, last.failure.retries, last.call.id)
        assert told_of_it == ("TOOL_EXECUTION_FAILED", 3, "c1")
