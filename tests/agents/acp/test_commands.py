"""Commands that an ACP agent has the bridge run: who is asked, and the spec's time (SPEC Limits,
D38; docs/agents.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from sessions_app.agents.acp import terminal as acp_terminal
from sessions_app.agents.events import ApprovalAsked, ToolFailed
from tests.agents.conftest import Open
from tests.agents.drive import APPROVED, REJECTED, only, text, within

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_command_that_nobody_was_asked_for_is_asked_for(opened: Open, root: Path) -> None:
    drive = await opened(APPROVED)
    said = await drive.turn("/command pwd; echo oops >&2; exit 3")
    assert "It ended with 3 and said:" in text(said)
    assert str(root) in text(said) and "oops" in text(said)
    call = only(ApprovalAsked, said).call
    assert (call.tool, call.params) == ("Bash", {"command": "pwd; echo oops >&2; exit 3"})
    assert only(ToolFailed, said).failure.details.exit_code == 3


async def test_a_command_that_is_rejected_is_not_run(opened: Open, root: Path) -> None:
    drive = await opened(REJECTED)
    assert "does not do it" in text(await drive.turn("/command touch made"))
    assert list(root.iterdir()) == []


async def test_an_approved_command_is_run_once_without_asking_again(
    opened: Open, root: Path
) -> None:
    drive = await opened(APPROVED, REJECTED)
    line = "echo x >>made"
    said = text(
        await drive.turn(
            f"/do allowed(ask('c1', title='Run', kind='execute', rawInput={{'command': {line!r}}}))\n"
            f"for _ in range(2): agent.command({line!r})"
        )
    )
    assert "It ended with 0" in said and "does not do it" in said
    assert (root / "made").read_text() == "x\n"
    assert len(drive.of(ApprovalAsked)) == 2


async def test_terminals_are_bounded_and_keep_the_end(root: Path) -> None:
    terminals = acp_terminal.Terminals(root)
    first, terminal = await terminals.create("seq 1000", [], None, {}, 20)
    await within(terminal.over)
    assert terminal.text.splitlines()[-1] == "1000"
    assert len(terminal.text) == 20 and terminal.output.cut
    for _ in range(limits.ACP_TERMINALS - 1):
        await terminals.create("sleep", ["1000"], None, {}, None)
    with pytest.raises(ValueError, match="release one first"):
        await terminals.create("true", [], None, {}, None)
    await within(terminals.close())
    assert terminals.text(first) == ""
    _, killed = await terminals.create("sh", ["-c", "kill -9 $$"], str(root), {"A": "b"}, None)
    await within(killed.over)
    assert killed.status is not None and killed.status.signal == "SIGKILL"
    await terminals.close()


async def test_a_terminal_outside_the_roots_is_refused(root: Path) -> None:
    with pytest.raises(BridgeError) as refused:
        await acp_terminal.Terminals(root).create("true", [], "/", {}, None)
    assert refused.value.code == "FILE_ACCESS_DENIED"
