"""The ACP driver and what agents do with the protocol: pieces of calls, echoes, noise, modes,
floods (docs/agents.md).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from sessions_app.agents.acp import driver as acp_driver
from sessions_app.agents.driver import (
    ApprovalAsked,
    CannotStart,
    Chunk,
    Start,
    ToolFailed,
    ToolStarted,
    ToolSucceeded,
    TurnEnded,
)
from tests.agents.acp.conftest import Open, scripted
from tests.agents.drive import APPROVED, eventually, kinds, text

pytestmark = pytest.mark.asyncio(loop_scope="module")
# the agent of most tests here: one that greets whoever starts it before it speaks the protocol
BANNER = "banner"


@pytest.mark.parametrize(("mode", "set_to"), [(BANNER, "default"), ("config", "m=default")])
async def test_the_asking_mode_is_set(opened: Open, mode: str, set_to: str) -> None:
    """docs/agents.md: whatever mode the agent would begin in."""
    drive = await opened(mode=mode)
    assert text(await drive.turn("/mode")) == set_to


async def test_an_agent_that_cannot_be_made_to_ask_is_not_run(opened: Open) -> None:
    with pytest.raises(CannotStart, match="this mode is locked"):
        await opened(mode="stubborn")


async def test_empty_chunks_echoes_and_thoughts_are_not_said(opened: Open) -> None:
    """docs/agents.md, Turns."""
    drive = await opened(mode=BANNER)
    assert [event for event in await drive.turn("/noise") if isinstance(event, Chunk)] == [
        Chunk("said \ufffd")
    ]


async def test_the_pieces_of_a_call_are_put_together(opened: Open) -> None:
    """docs/agents.md: one Used and one Done, with the parameters that came later, the thoughts and
    the diff.
    """
    drive = await opened(mode=BANNER)
    said = await drive.turn("/announce")
    assert kinds(said) == ["ToolStarted", "ToolSucceeded", "TurnEnded"]
    [used], [done] = drive.of(ToolStarted), drive.of(ToolSucceeded)
    assert (used.call.id, used.call.tool, used.call.params, used.call.reasoning) == (
        "c1",
        "Edit",
        {"file_path": "a.txt"},
        "I must edit.",
    )
    assert used.call.description == "Editing"
    assert done.outcome.content == "edited"
    assert done.outcome.diff == "@@ -1 +1,2 @@\n one\n+two\n"


async def test_a_call_without_a_result_is_closed_at_the_end(opened: Open) -> None:
    drive = await opened(mode=BANNER)
    assert kinds(await drive.turn("/forget")) == ["ToolStarted", "ToolSucceeded", "TurnEnded"]
    assert drive.of(ToolSucceeded)[0].outcome.error == "The agent reported no result of this call."


async def test_a_failed_call_has_its_details(opened: Open) -> None:
    drive = await opened(mode=BANNER)
    assert kinds(await drive.turn("/broken")) == ["ToolStarted", "ToolFailed", "TurnEnded"]
    [failed] = drive.of(ToolFailed)
    assert (failed.message, failed.details.exit_code, failed.details.stderr) == (
        "make: no rule",
        2,
        "no rule",
    )
    assert (failed.call.tool, failed.call.params) == ("Bash", {"command": "make"})


async def test_a_call_is_never_allowed_for_good(opened: Open) -> None:
    """docs/agents.md: a person decides on one call; an agent that offers only "always" is refused,
    and the reason is said.
    """
    drive = await opened(APPROVED, mode=BANNER)
    said = await drive.turn("/always")
    assert text(said) == "no"
    assert (
        drive.of(ApprovalAsked) == [] and "allow this call once" in drive.of(ToolFailed)[0].message
    )


async def test_nonsense_between_messages_does_no_harm(opened: Open) -> None:
    drive = await opened(mode=BANNER)
    assert text(await drive.turn("/nonsense")) == "sense"


async def test_everything_is_said_in_order_however_slowly_it_is_read(
    root: Path, tmp_path: Path
) -> None:
    """An agent that nobody listens to is not read: what the bridge holds stays bounded, and nothing
    is lost.
    """
    driver, count = scripted(tmp_path / "journal").driver, 3 * limits.AGENT_EVENTS_WAITING
    assert isinstance(driver, acp_driver.AcpDriver)
    await driver.start(Start("s", root))
    await driver.prompt(f"/rate n {count} 1000000")
    await eventually(lambda: driver._said.qsize() >= limits.AGENT_EVENTS_WAITING)
    await asyncio.sleep(0.5)  # time in which an agent that is read on would get further
    assert driver._said.qsize() <= limits.AGENT_EVENTS_WAITING + 100
    said = []
    async for event in driver.events():
        said.append(event)
        if isinstance(event, TurnEnded):
            break
    assert text(said).split() == [f"n-{number}" for number in range(count)]
    await driver.close()


async def test_an_agent_sees_nothing_of_the_bridges(opened: Open) -> None:
    drive = await opened(mode=BANNER)
    assert text(await drive.turn("/env")) == "BRIDGE_AGENT_OF BRIDGE_AGENT_RUN"
