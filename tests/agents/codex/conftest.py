"""What tests of the codex driver share: the stand-in, found as ``codex``."""

import json
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sessions_app.agents.codex.driver import CodexDriver
from sessions_app.agents.driver import Verdict
from tests.agents.drive import Drive

STAND_IN = Path(__file__).with_name("app_server.py")
Open = Callable[..., Any]


@pytest.fixture
def journal(root: Path) -> Path:
    return root.parent / "journal"


@pytest.fixture
def install(root: Path, journal: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts the stand-in where codex is looked for, with this SPEC."""

    def install_(**spec: Any) -> None:
        words = [sys.executable, "-IS", str(STAND_IN), json.dumps(spec), str(journal)]
        program = root.parent / "bin" / "codex"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    return install_


@pytest_asyncio.fixture(loop_scope="module")
async def opened(root: Path, install: Callable[..., None]) -> AsyncIterator[Open]:
    """Starts a session with the stand-in; it ends with the test."""
    own: list[Drive] = []

    async def open_(*answers: Verdict, resume_id: str | None = None, **spec: Any) -> Drive:
        install(**spec)
        own.append(Drive(CodexDriver(), *answers))
        return await own[-1].start(root, resume_id)

    yield open_
    for drive in own:
        await drive.close()


def heard(journal: Path, method: str) -> list[dict[str, Any]]:
    """The parameters of what the stand-in was asked by this method."""
    lines = map(json.loads, journal.read_text().splitlines())
    return [one["in"]["params"] for one in lines if one.get("in", {}).get("method") == method]
