"""A runtime of agents for one test, with an agent that does what the test says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async

from bridge_project import agents, limits
from bridge_project.conf import conf
from sessions_app import log, presence
from sessions_app.agents import breaker, drivers, processes
from sessions_app.agents.runtime import Runtime
from sessions_app.hub import hub
from tests.sessions import helpers
from tests.sessions.agent_driver import Agency


@pytest.fixture
async def agency(db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agency]:
    """This process serves, may work in ``tmp_path``, and has one kind of agent. What is waited for by looking is looked for often."""
    monkeypatch.setitem(conf.__dict__, "allowed_roots", (str(tmp_path),))
    for module, name, value in (
        (drivers, "MODULES", ()),
        (drivers, "_kinds", {}),
        (agents, "_agents", {}),
        (breaker, "_breakers", {}),
        (limits, "POLL_SECONDS", 0.02),
        (processes, "reap", lambda instance: 0),
    ):
        monkeypatch.setattr(module, name, value)
    hub.open(await sync_to_async(presence.start_process)("here"), await sync_to_async(log.head_seq)())
    made = Agency(Runtime(), await sync_to_async(helpers.device)(), str(tmp_path))
    made.register()
    await made.runtime.start()
    yield made
    await made.runtime.stop()
    hub.close()
