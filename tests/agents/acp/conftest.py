"""Agents that speak ACP, as processes, in a directory that is the one allowed root; they are kept
from test to test of a module.
"""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bridge_project.kernel.config import conf
from sessions_app.agents.acp import driver
from sessions_app.agents.driver import AgentDied, Verdict
from sessions_app.agents.process import groups
from tests.agents.drive import Drive, carrying, command
from tests.conformance.agent_tools import PROGRAM

DEMO, STRANGE = "sessions_app.agents.demo.acp_agent", "tests.agents.strange"
Open = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """After these tests no process is there that they, or what they started, have started."""
    before, groups._instance = groups._instance, uuid.uuid4().hex
    yield
    left = carrying(groups._instance)
    groups.reap(groups._instance)
    groups._instance = before
    assert left == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("acp").resolve()
    (found / "root").mkdir()
    return found


@pytest.fixture
def root(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one allowed root, empty; what lies beside it is outside. Agents that work in it are kept
    from test to test.
    """
    for path in [*place.iterdir(), *(place / "root").iterdir()]:
        if path != place / "root":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    monkeypatch.setitem(conf.__dict__, "allowed_roots", (str(place / "root"),))
    return place / "root"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept() -> AsyncIterator[dict[tuple[str, str], Drive]]:
    """Agents that run, by module and mode: a start takes a second, most of it Python's."""
    drives: dict[tuple[str, str], Drive] = {}
    yield drives
    for drive in drives.values():
        await drive.close()


@pytest_asyncio.fixture(loop_scope="module")
async def opened(root: Path, kept: dict[tuple[str, str], Drive]) -> AsyncIterator[Open]:
    """Starts an agent in the root, or takes one that an earlier test has started; a ``fresh`` one
    is closed after the test.
    """
    own: list[Drive] = []

    async def open_(
        *answers: Verdict,
        module: str = STRANGE,
        mode: str = "",
        resume_id: str | None = None,
        fresh: bool = False,
    ) -> Drive:
        drive = kept.get((module, mode))
        if fresh or resume_id or drive is None or drive.closed or drive.of(AgentDied):
            drive = Drive(driver.AcpDriver("strange", command(module, mode)))
            if fresh or resume_id:
                own.append(drive)
            await drive.start(root, resume_id)
            if not (fresh or resume_id):
                kept[module, mode] = drive
        if drive not in own:
            drive.said.clear()
        drive.answers = list(answers)
        return drive

    yield open_
    for drive in own:
        await drive.close()


def scripted(journal: Path, mode: str = "plain") -> Drive:
    """The agent of the conformance tests, which starts in no time: it is nothing but the standard
    library. Its name in processes is its journal's.
    """
    return Drive(
        driver.AcpDriver("scripted", [sys.executable, "-IS", str(PROGRAM), mode, str(journal)])
    )
