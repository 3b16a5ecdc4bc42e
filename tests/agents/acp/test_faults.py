"""What devices are told when the bridge fails at what an ACP agent has it do: the code and the
retry table (SPEC Tool retry policy, D50).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from acp import schema, start_tool_call, tool_diff_content

from sessions_app.agents.acp import files
from sessions_app.agents.events import ApprovalAsked, Event, ToolFailed, ToolStarted, ToolSucceeded
from tests.agents.acp.play import Play
from tests.agents.drive import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

ERRORS = [(errno.ETIMEDOUT, 3), (errno.ENOMEM, 1), (errno.EIO, 0)]


@pytest.fixture
def told(root: Path) -> Play:
    return Play(root)


def broken(monkeypatch: pytest.MonkeyPatch, way: str, number: int) -> None:
    async def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, way, fail)


@pytest.mark.parametrize("way", ["read", "write"])
@pytest.mark.parametrize(
    ("number", "retries"), ERRORS, ids=[errno.errorcode[number] for number, _ in ERRORS]
)
async def test_a_file_that_the_system_fails_at(
    told: Play, monkeypatch: pytest.MonkeyPatch, way: str, number: int, retries: int
) -> None:
    """A call of the bridge's own: reading, which nobody was asked about, is said when it has
    failed.
    """
    broken(monkeypatch, way, number)
    await told.is_refused(way)
    assert told.kinds() == (
        ["ToolStarted", "ToolFailed"] if way == "read" else ["ApprovalAsked", "ToolFailed"]
    )
    assert (told.failed.code, told.failed.retries, told.failed.message) == (
        "TOOL_EXECUTION_FAILED",
        retries,
        os.strerror(number),
    )
    assert told.failed.call.tool == way.capitalize() and told.failed.call.params[
        "file_path"
    ] == str(told.root / "a.txt")


async def test_a_command_that_the_agent_has_ended_ran_out_of_nothing(told: Play) -> None:
    """It is ended by the signal by which the system ends what takes too much memory."""
    terminal = await told.start("trap '' TERM; echo ready; while :; do sleep 1; done")
    await eventually(lambda: "ready" in told.client.terminals.text(terminal))
    await told.client.kill_terminal("s", terminal)
    await eventually(lambda: "ToolFailed" in told.kinds())
    assert told.failed.message.startswith("The command ") and told.failed.retries == 0
    await told.client.release_terminal("s", terminal)


# -- what the agent has the bridge do for a call of its own ----------------------------------------


@pytest.mark.parametrize("way", ["read", "write"])
async def test_a_file_of_the_agents_own_call(
    told: Play, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It is said once, with that call, when the agent says that it has failed."""
    path = str(told.root / "a.txt")
    if way == "read":
        await told.client.session_update(
            "s",
            start_tool_call(
                "c1",
                "Reading",
                kind="read",
                status="in_progress",
                locations=[schema.ToolCallLocation(path=path)],
            ),
        )
    else:
        await told.permit(kind="edit", content=[tool_diff_content(path, "text")])
    broken(monkeypatch, way, errno.ETIMEDOUT)
    await told.is_refused(way)
    assert "ToolFailed" not in told.kinds()
    await told.update(status="failed")
    assert (told.failed.code, told.failed.retries) == ("TOOL_EXECUTION_FAILED", 3)
    assert (
        told.failed.call.id == "c1"
        and len([event for event in told.hear() if isinstance(event, ApprovalAsked | ToolStarted)])
        == 1
    )


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
    assert not isinstance(last, ToolFailed) or (last.code, last.retries, last.call.id) == (
        "TOOL_EXECUTION_FAILED",
        3,
        "c1",
    )
