"""What an agent that the bridge runs says, where a real one cannot be made to say it, and when its
session is no longer its own (SPEC WebSocket operations; D13, D30, D37, D46, D60).
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from bridge_project.kernel import limits
from sessions_app import leases
from sessions_app.agents import messages as agent_messages
from sessions_app.agents.events import (
    ApprovalAsked,
    Chunk,
    SessionIdentified,
    ToolStarted,
    ToolSucceeded,
    TurnEnded,
)
from sessions_app.approvals import decisions
from sessions_app.models import Session
from sessions_app.socket import presence
from tests.sessions.agent_driver import (
    Agency,
    Scripted,
    announced,
    call,
    has_said,
    has_state,
    said,
    state,
    until,
)
from tests.sessions.test_log import set_conf

pytestmark = pytest.mark.django_db(transaction=True)


async def talk(agency: Agency, prompt: str = "hello") -> tuple[Session, Scripted]:
    """A session in the middle of a turn."""
    session, driver = await agency.session()
    await say(session, prompt)
    await until(lambda: driver.prompts == [prompt], "the agent has the prompt")
    return session, driver


async def say(session: Session, content: str = "hello") -> None:
    await sync_to_async(agent_messages.send_prompt)(
        session.pk, content, device=None, message_id="m", source="http"
    )


async def decide(
    agency: Agency, session: Session, call_id: str, decision: str, modifications: Any = None
) -> Any:
    return await sync_to_async(decisions.decide)(
        agency.device,
        session.session_id,
        call_id,
        decision,  # type: ignore[arg-type]
        modifications,
    )


# -- the stream ------------------------------------------------------------------------------------


@pytest.mark.parametrize("followed", [False, True])
async def test_the_end_of_a_turn_is_told_to_those_who_did_not_see_it(
    agency: Agency, followed: bool
) -> None:
    """D13: a notification task_complete, unless somebody follows the session."""
    session, driver = await talk(agency)
    if followed:
        connection = await sync_to_async(presence.open_connection)(
            leases.current(), agency.device, "", "127.0.0.1"
        )
        await sync_to_async(presence.join)(connection, session)
    await driver.say(Chunk("Done."), TurnEnded("stop"))
    await has_said(session, "stream_end")
    told = [
        (message["payload"]["notification_type"], message["payload"]["body"])
        for message in await announced("notification")
    ]
    assert told == ([] if followed else [("task_complete", "hello")])


async def test_large_output_comes_in_pieces_that_a_phone_can_take(agency: Agency) -> None:
    """D30: of whatever an agent says at once, each message stays small; a tool's output is cut, and
    says so. What is no Unicode does no harm.
    """
    session, driver = await talk(agency)
    text = "ü" * 100_000
    huge = "x" * (limits.TOOL_OUTPUT_BYTES + 1)
    await driver.say(
        Chunk(text),
        Chunk("\ud800"),
        ToolStarted(call("a")),
        ToolSucceeded(call("a"), huge),
        TurnEnded("stop"),
    )
    await has_said(session, "stream_end", 2)
    chunks = [message["payload"]["content"] for message in await said(session, "stream_chunk")]
    assert "".join(chunks) == text + "?" and max(map(len, chunks)) <= limits.STREAM_CHUNK_CHARS
    content = (await said(session, "tool_result"))[0]["payload"]["result"]["content"]
    assert (
        content.endswith(f"[cut: {limits.TOOL_OUTPUT_BYTES + 1} bytes in all]")
        and len(content) < limits.TOOL_OUTPUT_BYTES + 100
    )


# -- tools -----------------------------------------------------------------------------------------


async def test_garbage_in_a_call(agency: Agency) -> None:
    """Issue, bad input: an agent that speaks garbage: what is no Unicode or no JSON is made so; the
    session goes on.
    """
    session, driver = await talk(agency)
    odd = call(
        "\x00 not an id", tool="Ba\udc00sh", command="\ud800", number=float("nan"), what=object()
    )
    await driver.say(ApprovalAsked(odd))
    asked = (await has_said(session, "approval_required"))[0]["payload"]
    assert (
        asked["params"]["command"] == "?"
        and asked["params"]["number"] is None
        and asked["tool"] == "Ba?sh"
    )
    await decide(agency, session, asked["tool_call_id"], "approved")
    told = await until(
        lambda: next((told for told in driver.told if isinstance(told, tuple)), None),
        "the agent is told",
    )
    assert told[0] == odd.id
    await driver.say(
        ToolSucceeded(odd, "\x00\ud800", "\udfff", {"a": "\ud800"}),
        TurnEnded("stop", {"cost": float("nan")}, error="\x00\ud800"),
    )
    await has_said(session, "error")
    result = (await said(session, "tool_result"))[0]["payload"]
    assert result["tool_call_id"] == asked["tool_call_id"] and result["result"] == {
        "success": True,
        "content": "\x00?",
        "diff": "?",
        "metadata": {"a": "?"},
    }
    assert (await said(session, "stream_end"))[-1]["payload"]["usage"] == {"cost": None} and (
        await state(session)
    ).status == "active"


async def test_an_id_used_for_two_calls(agency: Agency) -> None:
    """D37: unique within the session: the second call of a reused id gets another, and each result
    and decision finds its own call.
    """
    session, driver = await talk(agency)
    await driver.say(
        ToolStarted(call("same", command="a")),
        ToolSucceeded(call("same", command="a"), "a"),
    )
    await driver.say(ApprovalAsked(call("same", command="b")))
    second = (await has_said(session, "approval_required"))[0]["payload"]["tool_call_id"]
    assert second != "same"
    await decide(agency, session, second, "approved")
    told = await until(
        lambda: next((told for told in driver.told if isinstance(told, tuple)), None),
        "the agent is told",
    )
    assert told[0] == "same", "the agent's own id"
    await driver.say(ToolSucceeded(call("same", command="b"), "b"))
    assert (await has_said(session, "tool_result", 2))[1]["payload"]["tool_call_id"] == second


# -- states ----------------------------------------------------------------------------------------


async def test_a_driver_that_fails(agency: Agency) -> None:
    """Issue: an agent that speaks garbage that its driver does not foresee: error, with words."""

    async def fail() -> None:
        raise RuntimeError("what nobody foresaw")

    agency.change = lambda driver: setattr(driver, "on_prompt", fail)
    session, _ = await agency.session()
    await say(session)
    assert "what nobody foresaw" in (await has_state(session, "error")).reason


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
