"""Acknowledgements that cannot be stored (D27)."""

import asyncio
import uuid
from typing import Any

import pytest
from django.db import OperationalError

from bridge_project.kernel import limits
from sessions_app.log import cursors
from sessions_app.socket import acknowledgements
from tests.servers import PATIENCE


async def test_nobody_waits_for_a_writer_that_has_been_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection was replaced while the database was away: its socket must end."""

    def away(*_: Any) -> None:
        raise OperationalError

    monkeypatch.setattr(cursors, "acknowledge", away)
    monkeypatch.setattr(acknowledgements, "FLUSH_SECONDS", 0.1)
    monkeypatch.setattr(limits, "ACK_MAX_IDS", 0)
    ours = acknowledgements.Acknowledgements(1)
    for _ in range(2):  # the first is being stored, the second waits
        ours.acknowledged([str(uuid.uuid4())])
        await asyncio.sleep(0)
    waiting = asyncio.create_task(ours.wait_for_room())
    await asyncio.sleep(0)
    await ours.flush()
    await asyncio.wait_for(waiting, PATIENCE)
