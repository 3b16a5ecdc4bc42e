"""A runtime of agents for one test, with an agent that does what the test says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from sessions_app import leases
from sessions_app.agents import breaker, registry
from sessions_app.agents.process import groups
from sessions_app.agents.supervisor import Supervisor
from sessions_app.log import reader
from sessions_app.log.tail import tail
from sessions_app.socket.registry import registry as sockets
from tests.sessions import helpers
from tests.sessions.agent_driver import Agency


@pytest.fixture
async def agency(
    db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Agency]:
    """This process serves, may work in ``tmp_path``, and has one kind of agent. What is waited for
    by looking is looked for often.
    """
    monkeypatch.setitem(conf.__dict__, "allowed_roots", (str(tmp_path),))
    for module, name, value in (
        (registry, "KINDS", {}),
        (breaker, "_breakers", {}),
        (limits, "POLL_SECONDS", 0.02),
        (limits, "LEASE_SECONDS", 3600),  # nobody renews it here, and a busy machine takes its time
        (groups, "reap", lambda instance: 0),
    ):
        monkeypatch.setattr(module, name, value)
    await sync_to_async(leases.start)("here")
    sockets.open()
    tail.open(await sync_to_async(reader.head_seq)())
    made = Agency(Supervisor(), await sync_to_async(helpers.device)(), str(tmp_path))
    made.register()
    await made.supervisor.start()
    yield made
    await made.supervisor.stop()
    tail.close()
    sockets.close()
