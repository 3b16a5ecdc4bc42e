"""What devices are told when the bridge fails at what an ACP agent has it do: the code and the
retry table (SPEC Tool retry policy, D50).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError, schema, start_tool_call, tool_diff_content

from sessions_app.agents.acp import files
from sessions_app.agents.acp import terminal as acp_terminal
from sessions_app.agents.acp.client import Host
from sessions_app.agents.demo.acp_agent import OPTIONS
from sessions_app.agents.driver import ApprovalAsked, Event, ToolFailed, ToolStarted, ToolSucceeded
from tests.agents.drive import APPROVED, eventually, within
from tests.agents.test_shell import RETRIES

pytestmark = pytest.mark.asyncio(loop_scope="module")

ERRORS = [(errno.ETIMEDOUT, 3), (errno.ENOMEM, 1), (errno.EIO, 0), (errno.ENOSPC, 0)]


class Told:
    """The bridge's side without an agent's process; whatever is asked is approved."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said: list[Event] = []
        self.host = Host(self.say, root, lambda mode: None)
        self.host.in_turn = True

    def say(self, event: Event) -> None:
        self.said.append(event)
        if isinstance(event, ApprovalAsked):
            self.host.asking.decide(event.call.id or "", APPROVED)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.said]

    @property
    def failed(self) -> ToolFailed:
        [found] = [event for event in self.said if isinstance(event, ToolFailed)]
        return found

    async def refuses(self, way: str) -> None:
        """Read or write a.txt, which the agent is told cannot be done."""
        path = str(self.root / "a.txt")
        with pytest.raises(RequestError):
            await (
                self.host.read_text_file("s", path)
                if way == "read"
                else self.host.write_text_file("s", path, "text")
            )

    async def runs(self, command: str, cwd: str | None = None) -> str:
        """Run a command to its end; the terminal's id."""
        terminal = (await self.host.create_terminal("s", command, cwd=cwd)).terminal_id
        await within(20, self.host.wait_for_terminal_exit("s", terminal))
        return terminal

    async def update(self, status: Any) -> None:
        """What the agent itself says of its call c1."""
        await self.host.session_update(
            "s",
            schema.ToolCallProgress(
                session_update="tool_call_update", tool_call_id="c1", status=status
            ),
        )


@pytest.fixture
def told(root: Path) -> Told:
    return Told(root)


def broken(monkeypatch: pytest.MonkeyPatch, way: str, number: int) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, f"_{way}", fail)


@pytest.mark.parametrize("way", ["read", "write"])
@pytest.mark.parametrize(
    ("number", "retries"), ERRORS, ids=[errno.errorcode[number] for number, _ in ERRORS]
)
async def test_a_file_that_the_system_fails_at(
    told: Told, monkeypatch: pytest.MonkeyPatch, way: str, number: int, retries: int
) -> None:
    """A call of the bridge's own: reading, which nobody was asked about, is said when it has
    failed.
    """
    broken(monkeypatch, way, number)
    await told.refuses(way)
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


async def test_what_may_not_be_read_is_said_and_what_is_not_there_is_not(told: Told) -> None:
    """Agents look whether a file is there before they write it."""
    await told.refuses("read")
    assert told.said == []
    with pytest.raises(RequestError):
        await told.host.read_text_file("s", "/etc/passwd")
    assert (
        told.kinds() == ["ToolStarted", "ToolFailed"]
        and isinstance(told.said[0], ToolStarted)
        and told.said[0].call == told.failed.call
    )
    assert (told.failed.code, told.failed.retries) == ("TOOL_EXECUTION_FAILED", 0)


@pytest.mark.parametrize(("command", "retries"), RETRIES)
async def test_a_command_that_fails(told: Told, command: str, retries: int) -> None:
    terminal = await told.runs(command)
    await eventually(lambda: "ToolFailed" in told.kinds())
    assert (told.failed.code, told.failed.retries) == ("TOOL_EXECUTION_FAILED", retries)
    await told.host.release_terminal("s", terminal)


async def test_a_command_that_the_agent_has_ended_ran_out_of_nothing(told: Told) -> None:
    """It is ended by the signal by which the system ends what takes too much memory."""
    terminal = (
        await told.host.create_terminal("s", "trap '' TERM; echo ready; while :; do sleep 1; done")
    ).terminal_id
    await eventually(lambda: "ready" in told.host.terminals.text(terminal))
    await told.host.kill_terminal("s", terminal)
    await eventually(lambda: "ToolFailed" in told.kinds())
    assert told.failed.message.startswith("The command ") and told.failed.retries == 0
    await told.host.release_terminal("s", terminal)


# -- what the agent has the bridge do for a call of its own ----------------------------------------


async def permitted(told: Told, **call: Any) -> None:
    """The agent's own call c1, which is allowed."""
    await told.host.request_permission(
        "s", schema.ToolCallUpdate(tool_call_id="c1", title="x", status="pending", **call), OPTIONS
    )


@pytest.mark.parametrize("way", ["read", "write"])
async def test_a_file_of_the_agents_own_call(
    told: Told, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It is said once, with that call, when the agent says that it has failed."""
    path = str(told.root / "a.txt")
    if way == "read":
        await told.host.session_update(
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
        await permitted(told, kind="edit", content=[tool_diff_content(path, "text")])
    broken(monkeypatch, way, errno.ETIMEDOUT)
    await told.refuses(way)
    assert "ToolFailed" not in told.kinds()
    await told.update("failed")
    assert (told.failed.code, told.failed.retries) == ("TOOL_EXECUTION_FAILED", 3)
    assert (
        told.failed.call.id == "c1"
        and len([event for event in told.said if isinstance(event, ApprovalAsked | ToolStarted)])
        == 1
    )


async def test_a_time_out_of_the_agents_own_call(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_terminal.Terminals.__init__, "__kwdefaults__", {"seconds": 0.2})
    told = Told(told.root)
    await permitted(told, kind="execute", raw_input={"command": "sleep 60"})
    terminal = await told.runs("sleep 60")
    assert "ToolFailed" not in told.kinds()
    await told.update("failed")
    assert (told.failed.code, told.failed.retries, told.failed.call.id) == ("TOOL_TIMEOUT", 0, "c1")
    await told.host.release_terminal("s", terminal)


@pytest.mark.parametrize(
    ("status", "expected"), [("failed", ToolFailed), ("completed", ToolSucceeded)]
)
async def test_a_command_of_the_agents_own_call(
    told: Told, status: str, expected: type[Event]
) -> None:
    """Whether its call has failed is for the agent to say; how, the bridge knows."""
    command = "echo 'HTTP 429: too many requests' >&2; exit 1"
    await permitted(told, kind="execute", raw_input={"command": command})
    await told.host.release_terminal("s", await told.runs(command))
    await told.update(status)
    last = told.said[-1]
    assert isinstance(last, expected)
    assert not isinstance(last, ToolFailed) or (last.code, last.retries, last.call.id) == (
        "TOOL_EXECUTION_FAILED",
        3,
        "c1",
    )
