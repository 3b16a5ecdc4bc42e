"""Every agent that has a recipe asks before it acts: real agents against a scripted model (D59;
`make test-agents`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessions_app.agents.acp.driver import AcpDriver
from sessions_app.agents.events import ApprovalAsked, SessionIdentified
from tests.agents.drive import APPROVED, REJECTED, Drive
from tests.agents.real.conftest import Real
from tests.agents.real.test_npm_agents import make_older

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]

# codex tries a command in its read-only sandbox first, and does not always see in time that it
# failed for that
TRIES = 10


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine opencode takes half a minute to start."""
    monkeypatch.setattr("tests.agents.drive.SECONDS", 120.0)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return (tmp_path / "work").resolve()


@pytest.fixture
async def drives() -> AsyncIterator[list[Drive]]:
    found: list[Drive] = []
    yield found
    for drive in found:
        if not drive.closed:
            await drive.close()


async def started(
    agent: Real, work: Path, drives: list[Drive], resume_id: str | None = None
) -> Drive:
    # its name here is no reason to know it
    drives.append(Drive(AcpDriver("an-agent", agent.command), REJECTED))
    return await drives[-1].start(work, resume_id)


async def test_a_command_asks_and_a_refused_one_does_not_run(
    asking: Real, work: Path, drives: list[Drive]
) -> None:
    drive = await started(asking, work, drives)
    assert drive.driver.asks is True
    await drive.turn("do: run touch refused")
    [asked] = drive.of(ApprovalAsked)
    assert asked.call.tool == "Bash" and "touch refused" in asked.call.params["command"]
    assert "touch refused" in asked.call.description and "call_id" not in asked.call.params
    assert not (work / "refused").exists()
    drive.answers = [APPROVED]
    turns = 0
    while not (work / "approved").exists() and turns < TRIES:
        turns += 1
        await drive.turn("do: run touch approved")
    assert (work / "approved").exists() and len(drive.of(ApprovalAsked)) == 1 + turns, drive.said[
        -6:
    ]
    drive.answers = [REJECTED]
    await drive.turn("do: run touch again")
    assert len(drive.of(ApprovalAsked)) == 2 + turns and not (work / "again").exists(), (
        "what was approved once was not allowed for good"
    )
    (work / "kept").write_text("as it was")
    await drive.turn(f"do: write {work}/kept overwritten")
    assert (work / "kept").read_text() == "as it was"
    await drive.close()

    make_older(work.parent / "home")
    resumed = await started(asking, work, drives, drive.of(SessionIdentified)[-1].resume_id)
    assert resumed.driver.asks is True
    await resumed.turn("do: run touch later")
    assert len(resumed.of(ApprovalAsked)) == 1, "it asks when its session goes on, too"
    assert sorted(path.name for path in work.iterdir()) == ["approved", "kept"]


async def test_a_repository_allows_nothing(asking: Real, work: Path, drives: list[Drive]) -> None:
    """Its rules, hooks, servers and plug-ins are not the user's: nothing of it runs, and a command
    asks all the same.
    """
    (work / ".git").mkdir()
    ran = work.parent / "ran"
    for name, text in asking.allowing.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{ran}", str(ran)))
    drive = await started(asking, work, drives)
    await drive.turn("do: run touch refused")
    assert len(drive.of(ApprovalAsked)) == 1
    assert not (work / "refused").exists() and not ran.exists()
