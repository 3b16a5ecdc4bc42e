"""What may go wrong between a person, the log and an agent at the worst moment: nothing is told
twice, lost, or taken for a yes that nobody gave.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, transaction
from django.utils import timezone

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from sessions_app.agents import breaker, messages, ownership, registry, transcript
from sessions_app.agents.driver import Verdict
from sessions_app.agents.events import (
    AgentDied,
    ApprovalAsked,
    Chunk,
    SessionIdentified,
    TurnEnded,
)
from sessions_app.approvals import decisions
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import Process, Session
from tests.sessions.agent_driver import NAME, Agency, call, has_said, has_state, said, state, until
from tests.sessions.test_agent_conversation import say

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def unsure(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """While it is not empty, a transaction of the transcript commits, but whoever waits for that is
    told that the connection broke.
    """
    left: list[str] = []

    @contextmanager
    def breaking() -> Iterator[Outbox]:
        with outbox() as box:
            yield box
        if left:
            raise OperationalError(left.pop())

    monkeypatch.setattr(transcript, "outbox", breaking)
    return left


async def asked(session: Session, count: int) -> dict[str, Any]:
    """The last of so many ``approval_required``."""
    found: dict[str, Any] = (await has_said(session, "approval_required", count))[count - 1][
        "payload"
    ]
    return found


async def decide(agency: Agency, session: Session, tool_call_id: str) -> bool:
    done = await sync_to_async(decisions.decide)(
        agency.device, session.session_id, tool_call_id, "approved", None
    )
    return bool(done.forwarded)


# -- the database breaks off -----------------------------------------------------------------------


async def test_what_was_written_before_the_connection_broke_is_not_written_again(
    agency: Agency, unsure: list[str]
) -> None:
    """D26: each row once, also when nobody was told that it has been committed; and the calls in it
    are known by their ids all the same.
    """
    session, driver = await agency.session()
    await say(session)
    await until(lambda: driver.prompts, "the agent has the prompt")
    unsure.append("the connection broke")
    await driver.say(Chunk("once"), ApprovalAsked(call()))
    await asked(session, 1)
    await until(lambda: not unsure, "it broke")
    await driver.say(Chunk("and then"))
    await until(lambda: _chunks(session, 2), "the next piece")
    assert [message["payload"]["content"] for message in await said(session, "stream_chunk")] == [
        "once",
        "and then",
    ]
    assert len(await said(session, "approval_required")) == 1
    assert await decide(agency, session, "call-1")
    await until(lambda: ("call-1", Verdict("approved")) in driver.told, "the agent is told")


async def _chunks(session: Session, count: int) -> bool:
    return len(await said(session, "stream_chunk")) >= count


async def test_a_prompt_that_was_taken_before_the_connection_broke_is_told(
    agency: Agency, unsure: list[str]
) -> None:
    """D35: marked as taken and told once, also when nobody was told that the mark has been made."""
    session, driver = await agency.session()
    unsure.append("the connection broke")
    await say(session, "first")
    await until(lambda: driver.prompts, "the agent has the prompt")
    assert not unsure
    await driver.say(TurnEnded("stop"))
    await say(session, "second")
    await until(lambda: len(driver.prompts) == 2, "the agent has the next one")
    assert driver.prompts == ["first", "second"]
    assert len(await said(session, "stream_start")) == 2


# -- a person said yes to something ----------------------------------------------------------------


async def test_a_yes_that_comes_behind_an_interrupt_starts_nothing(agency: Agency) -> None:
    """D40: one phone stops the turn while another approves a call of it: who had stopped it has."""
    session, driver = await agency.session()
    await say(session)
    await driver.say(ApprovalAsked(call()))
    await asked(session, 1)
    await sync_to_async(_interrupt_and_approve)(agency, session)
    await until(lambda: len(driver.told) == 4, "the agent is told of both")
    assert driver.told[2] == "interrupt"
    assert driver.told[3][1].decision == "rejected"


def _interrupt_and_approve(agency: Agency, session: Session) -> None:
    with transaction.atomic():
        messages.interrupt(session.pk, device=agency.device)
        decisions.decide(agency.device, session.session_id, "call-1", "approved", None)


# -- processes that come and go --------------------------------------------------------------------


async def test_the_agent_from_before_is_ended_first(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D22, D35: a session that another process took for orphaned comes back to the process that has
    its agent yet: one agent, and only its words.
    """
    session, old = await agency.session()
    await old.say(SessionIdentified("its own id"))
    await until(lambda: _resumable(session), "it can be resumed")

    def blind(process_id: uuid.UUID, session_pks: Any) -> ownership.Look:
        return ownership.Look(set(), set(session_pks), set(session_pks))

    monkeypatch.setattr(ownership, "look", blind)  # it has not found out yet
    owner = (await state(session)).owner
    assert owner is not None
    await sync_to_async(ownership.pause)(session.pk, owner, ownership.DIED)
    closed: list[bool] = []

    async def note() -> None:
        closed.append(old.closed.is_set())

    agency.change = lambda driver: setattr(driver, "on_start", note)
    await agency.supervisor.resume(await state(session), agency.device)
    assert closed == [True]
    await agency.made[-1].say(Chunk("new"))
    await has_said(session, "stream_chunk")
    assert [message["payload"]["content"] for message in await said(session, "stream_chunk")] == [
        "new"
    ]


async def _resumable(session: Session) -> bool:
    return bool((await state(session)).resume_id)


async def test_a_process_whose_database_was_away_is_not_dead(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D46: after an outage of the database all leases have run out; whoever looks first leaves the
    others the time to renew theirs.
    """
    monkeypatch.setattr(limits, "LEASE_RENEWAL_SECONDS", 0)
    ticker, agency.supervisor._ticker = agency.supervisor._ticker, None
    assert ticker is not None
    ticker.cancel()
    now = timezone.now()
    other = await sync_to_async(Process.objects.create)(
        instance="elsewhere", lease_until=now - timedelta(seconds=1)
    )
    session, _ = await sync_to_async(ownership.reserve)(
        other.pk, "theirs", "scripted", agency.directory, agency.device
    )
    await sync_to_async(ownership.activate)(session.pk, other.pk, True)
    await agency.supervisor._look()
    assert (await state(session)).status == "active", "one look is not enough"
    await sync_to_async(Process.objects.filter(pk=other.pk).update)(
        lease_until=now + timedelta(seconds=60)
    )
    await asyncio.sleep(0.15)
    await agency.supervisor._look()
    assert (await state(session)).status == "active"
    await sync_to_async(Process.objects.filter(pk=other.pk).delete)()
    for _ in range(2):
        await agency.supervisor._look()
        await asyncio.sleep(0.15)
    await has_state(session, "paused")


# -- what is said to an agent ----------------------------------------------------------------------


async def test_a_message_that_a_dead_process_had_queued_is_not_queued_again(agency: Agency) -> None:
    """D31: a process that dies between queueing a turn and remembering that it did; the phone says
    it again, with the same id.
    """
    session, driver = await agency.session()
    begun = timezone.now()
    await say(session, "run it")
    await until(lambda: driver.prompts, "the agent has the prompt")
    await sync_to_async(messages.send_prompt)(
        session.pk, "run it", device=agency.device, message_id="m", source="device", begun=begun
    )
    await sync_to_async(messages.send_prompt)(
        session.pk,
        "run it again",
        device=agency.device,
        message_id="m",
        source="device",
        begun=begun,
    )
    await driver.say(TurnEnded("stop"))
    await until(lambda: len(driver.prompts) == 2, "the agent has the next prompt")
    assert driver.prompts == ["run it", "run it again"]


async def test_what_waits_for_an_agent_is_bounded(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue, limits: a phone that says more than the agent can take is told so, and the database is
    not filled.
    """
    monkeypatch.setattr(limits, "AGENT_PROMPTS_WAITING", 2)
    session, driver = await agency.session()
    await say(session, "runs")
    await until(lambda: driver.prompts, "the agent has the prompt")
    await say(session, "waits")
    await say(session, "waits too")
    with pytest.raises(BridgeError) as caught:
        await say(session, "one too many")
    assert caught.value.code == "RATE_LIMITED" and caught.value.fields["details"]["retry_after"] > 0
    await driver.say(TurnEnded("stop"))
    await until(lambda: len(driver.prompts) == 2, "the agent has the next prompt")
    await say(session, "has room")


async def test_text_that_the_log_has_not_taken_is_bounded(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue, limits: while the database is slow an agent waits, also one that says little at a time
    but much each time; nothing is lost.
    """
    monkeypatch.setattr(limits, "AGENT_CHARS_WAITING", 100)
    session, driver = await agency.session()
    begun, go, write = threading.Event(), threading.Event(), transcript.Transcript.write

    def slow(self: transcript.Transcript, events: Any) -> None:
        begun.set()
        assert go.wait(180)
        write(self, events)

    monkeypatch.setattr(transcript.Transcript, "write", slow)
    async with asyncio.TaskGroup() as group:
        saying = group.create_task(driver.say(*(Chunk("x" * 50) for _ in range(40))))
        await until(begun.is_set, "the database is waited for")
        assert not saying.done()
        go.set()
    await until(lambda: _characters(session, 2000), "all of it is in the log")


async def _characters(session: Session, count: int) -> bool:
    return (
        sum(len(message["payload"]["content"]) for message in await said(session, "stream_chunk"))
        == count
    )


async def test_a_decision_while_the_lease_has_run_out_is_told(agency: Agency) -> None:
    """D38: a machine that slept has no lease when it wakes, and its agent still waits for the
    decision that comes first.
    """
    session, driver = await agency.session()
    await say(session)
    await driver.say(ApprovalAsked(call()))
    await asked(session, 1)
    await sync_to_async(Process.objects.update)(lease_until=timezone.now() - timedelta(seconds=1))
    assert not await decide(agency, session, "call-1")
    await until(lambda: ("call-1", Verdict("approved")) in driver.told, "the agent is told")


async def test_the_demo_has_no_breaker(agency: Agency) -> None:
    """D48: the breaker is of real agents; however often a scripted one dies, /health stays as it
    is.
    """
    registry.KINDS[NAME] = replace(registry.KINDS[NAME], real=False)
    for _ in range(limits.CIRCUIT_BREAKER_FAILURES):
        session, driver = await agency.session()
        await driver.say(AgentDied("It fell over."))
        await has_state(session, "error")
        await until(lambda: not agency.supervisor._ending, "it has been ended")
    assert breaker.check() is None
