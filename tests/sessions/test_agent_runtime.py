"""The life of sessions that the bridge runs: created, in error, paused, resumed, closed, taken over
(D22, D35, D36, D46).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from sessions_app import leases
from sessions_app.agents import messages, ownership
from sessions_app.agents.driver import CannotStart
from sessions_app.agents.events import (
    Chunk,
    SessionIdentified,
    TurnEnded,
)
from sessions_app.models import Connection, Join, Session
from tests.sessions.agent_driver import (
    NAME,
    Agency,
    announced,
    has_state,
    said,
    state,
    until,
)
from tests.sessions.test_log import set_conf

pytestmark = pytest.mark.django_db(transaction=True)


async def refused(work: Any, code: str) -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        await work
    assert caught.value.code == code, caught.value
    return caught.value


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the supervisor looked at its sessions from now on, every 20 ms."""
    looks: list[float] = []
    look = ownership.look

    def counted(*args: Any) -> ownership.Look:
        looks.append(time.monotonic())
        return look(*args)

    monkeypatch.setattr(ownership, "look", counted)
    return looks


async def say(session: Session, content: str = "hello") -> None:
    await sync_to_async(messages.send_prompt)(
        session.pk, content, device=None, message_id="m", source="http"
    )


# -- created ---------------------------------------------------------------------------------------


async def test_two_create_the_same_id_and_it_fails(agency: Agency) -> None:
    """D35: whoever waits for an agent that somebody else starts is told that it failed, and why."""
    go = asyncio.Event()

    async def fail() -> None:
        await go.wait()
        raise CannotStart("No such program.")

    agency.change = lambda driver: setattr(driver, "on_start", fail)
    both = [
        asyncio.create_task(agency.supervisor.create("one", NAME, agency.directory, agency.device))
        for _ in range(2)
    ]
    await until(lambda: agency.made, "the agent is being started")
    go.set()
    for one in both:
        assert (await refused(one, "AGENT_ERROR")).message == "No such program."


# -- paused and resumed ----------------------------------------------------------------------------


async def test_an_idle_session_is_paused(agency: Agency, monkeypatch: pytest.MonkeyPatch) -> None:
    """D35: active → paused when idle for 30 minutes, but not while a turn runs."""
    session, driver = await agency.session()
    await say(session)
    await until(lambda: driver.prompts, "the agent has the prompt")
    monkeypatch.setattr(limits, "AGENT_IDLE_SECONDS", 0.05)
    looks = count_looks(monkeypatch)
    await until(
        lambda: len(looks) > 10,
        "the ticker has looked well past it: that nothing came of it is what is shown",
    )
    assert (await state(session)).status == "active"
    await driver.say(TurnEnded("stop"))
    paused = await has_state(session, "paused")
    assert "half an hour" in paused.reason and driver.closed.is_set()
    assert [
        message["payload"]["notification_type"] for message in await announced("notification")
    ] == ["task_complete", "agent_idle"]


# -- in error --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["events end", "prompt raises"])
async def test_a_driver_that_fails(agency: Agency, how: str) -> None:
    """Issue: an agent that exits in the middle of a turn, or speaks garbage that its driver does
    not foresee: error, with words.
    """

    async def fail() -> None:
        raise RuntimeError("what nobody foresaw")

    if how == "prompt raises":
        agency.change = lambda driver: setattr(driver, "on_prompt", fail)
    session, driver = await agency.session()
    if how == "prompt raises":
        await say(session)
    elif how == "events end":
        driver.events.close()
    broken = await has_state(session, "error")
    assert ("what nobody foresaw" in broken.reason) == (how != "events end") and broken.reason


# -- closed ----------------------------------------------------------------------------------------


async def watch(session: Session, *, replaced: bool = False) -> None:
    def join() -> None:
        from tests.sessions import helpers

        connection = Connection.objects.create(
            process_id=leases.current(),
            device=helpers.device("watcher"),
            address="",
            replaced=replaced,
        )
        Join.objects.create(connection=connection, session=session)

    await sync_to_async(join)()


async def test_a_prompt_that_comes_while_the_timer_closes(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D60: it was accepted, so it waits for the resume, as in a session that is paused."""
    closes, go = asyncio.Event(), asyncio.Event()
    session, driver = await agency.session()
    await driver.say(SessionIdentified("own"))
    real = driver.close

    async def close() -> None:
        closes.set()
        await go.wait()
        await real()

    monkeypatch.setattr(driver, "close", close)
    set_conf(monkeypatch, "bridge_session_grace_seconds", 0.1)  # type: ignore[arg-type]
    await asyncio.wait_for(closes.wait(), 60)
    await say(session, "just in time")
    go.set()
    closed = await has_state(session, "closed")
    set_conf(monkeypatch, "bridge_session_grace_seconds", 300)
    await agency.supervisor.resume(closed, agency.device)
    again = agency.made[-1]
    await until(lambda: again.prompts == ["just in time"], "it is said to the agent that resumes")
    assert again.told[0].resume_id == "own" and driver.prompts == []


async def test_a_join_of_a_dead_process_watches_nothing(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D46: what a killed process held counts only while its lease lasts; a replaced connection does
    not count either.
    """
    set_conf(monkeypatch, "bridge_session_grace_seconds", 0.1)  # type: ignore[arg-type]
    session, _ = await agency.session()
    await watch(session, replaced=True)
    await has_state(session, "closed")


# -- other processes -------------------------------------------------------------------------------


@pytest.mark.parametrize("speaks", [True, False])
async def test_a_session_that_was_taken_over_is_let_go(agency: Agency, speaks: bool) -> None:
    """D46: a process that was taken for dead writes nothing more to a session that is not its own,
    and ends the agent, whether or not that speaks.
    """
    session, driver = await agency.session()
    await sync_to_async(Session.objects.filter(pk=session.pk).update)(owner=uuid.uuid4())
    if speaks:
        await driver.say(Chunk("Am I still here?"))
    await until(driver.closed.is_set, "the agent is ended")
    assert await said(session) == [] and (await state(session)).status == "active"


async def test_a_start_that_the_stop_cuts_short(agency: Agency) -> None:
    """D35: a bridge that stops while an agent starts leaves no session in created."""
    agency.change = lambda driver: setattr(driver, "on_start", asyncio.Event().wait)
    creating = asyncio.create_task(
        agency.supervisor.create("it", NAME, agency.directory, agency.device)
    )
    await until(lambda: agency.made and agency.made[0].told, "the agent is being started")
    await agency.supervisor.stop()
    await refused(creating, "SESS_NOT_ACTIVE")
    assert (
        await sync_to_async(Session.objects.get)(session_id="it")
    ).status == "paused" and agency.made[0].closed.is_set()
    await refused(
        agency.supervisor.create(None, NAME, agency.directory, agency.device), "AGENT_UNAVAILABLE"
    )
