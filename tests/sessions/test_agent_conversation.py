"""Talking with an agent that the bridge runs: turns, streams, tools, decisions, interrupts (SPEC
WebSocket operations; D31, D37, D38, D40, D51).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.resources import ToolErrorDetails
from devices_app.models import AuditEntry
from sessions_app import leases
from sessions_app.agents import inbox, sanitize, session_runner
from sessions_app.agents import messages as agent_messages
from sessions_app.agents.events import (
    ApprovalAsked,
    ApprovalWithdrawn,
    Chunk,
    Event,
    ToolFailed,
    ToolStarted,
    ToolStopped,
    ToolSucceeded,
    TurnEnded,
)
from sessions_app.approvals import decisions
from sessions_app.models import Command, Session, ToolCall
from sessions_app.socket import presence
from tests.sessions import helpers
from tests.sessions.agent_driver import (
    Agency,
    Scripted,
    announced,
    approval,
    call,
    has_said,
    has_state,
    said,
    state,
    until,
)

pytestmark = pytest.mark.django_db(transaction=True)


async def talk(agency: Agency, prompt: str = "hello") -> tuple[Session, Scripted]:
    """A session in the middle of a turn."""
    session, driver = await agency.session()
    await say(session, prompt)
    await until(lambda: driver.prompts == [prompt], "the agent has the prompt")
    return session, driver


async def say(session: Session, content: str) -> None:
    await sync_to_async(agent_messages.send_prompt)(
        session.pk, content, device=None, message_id="m", source="http"
    )


async def interrupt(session: Session) -> None:
    await sync_to_async(agent_messages.interrupt)(session.pk, device=None)


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


def shape(messages: list[dict[str, Any]]) -> list[str]:
    """Types, with what tells streams apart."""
    return [
        message["payload"].get("finish_reason")
        or message["payload"].get("content")
        or message["type"]
        for message in messages
    ]


# -- the stream ------------------------------------------------------------------------------------


async def test_a_turn(agency: Agency) -> None:
    """Spec: message → stream_start, stream_chunk..., stream_end, all of one message_id; usage comes
    with the end (issue).
    """
    session, driver = await talk(agency)
    await driver.say(
        Chunk("Hel"),
        Chunk("lo"),
        Chunk(""),
        Chunk('{"a"', is_tool_use=True),
        TurnEnded("length", {"output_tokens": 3}),
    )
    await has_said(session, "stream_end")
    messages = (await said(session))[1:]  # after the prompt
    assert (
        shape(messages)[0] == "stream_start"
        and "".join(shape(messages)[1:-2]) == "Hello"
        and shape(messages)[-2:] == ['{"a"', "length"]
    )
    assert len({message["payload"]["message_id"] for message in messages}) == 1
    assert (
        messages[-1]["payload"]["usage"] == {"output_tokens": 3}
        and messages[-2]["payload"]["is_tool_use"] is True
    )
    assert (await state(session)).open_message == ""


async def test_a_tool_call_interrupts_the_text(agency: Agency) -> None:
    """Spec: finish_reason tool_call; what the agent says after the tool is a stream of its own."""
    session, driver = await talk(agency)
    await driver.say(
        Chunk("before"),
        ToolStarted(call("a")),
        ToolSucceeded(call("a"), "done", "@@ -1 +1 @@"),
        Chunk("after"),
        TurnEnded("stop"),
    )
    await has_said(session, "stream_end", 2)
    messages = (await said(session))[1:]
    assert shape(messages) == [
        "stream_start",
        "before",
        "tool_call",
        "tool_call",
        "tool_result",
        "stream_start",
        "after",
        "stop",
    ]
    assert (
        messages[2]["type"] == "stream_end"
        and messages[0]["payload"]["message_id"] != messages[5]["payload"]["message_id"]
    )
    assert messages[4]["payload"]["result"] == {
        "success": True,
        "content": "done",
        "diff": "@@ -1 +1 @@",
    }
    assert messages[3]["payload"]["tool_call_id"] == messages[4]["payload"]["tool_call_id"] == "a"


async def test_turns_queue_in_order(agency: Agency) -> None:
    """Issue: turns queue in order; the next prompt is given when the turn before it has ended, and
    what was said is in the log.
    """
    session, driver = await talk(agency, "one")
    await say(session, "two")
    await say(session, "three")
    await driver.say(Chunk("1"))
    await has_said(session, "stream_chunk")
    assert driver.prompts == ["one"]
    for number, prompts in ((1, ["one", "two"]), (2, ["one", "two", "three"])):
        await driver.say(TurnEnded("stop"))
        await until(lambda prompts=prompts: driver.prompts == prompts, "the next prompt")  # type: ignore[misc]
        assert len(await said(session, "stream_end")) == number
    assert (await state(session)).title == "one", "D6: the first prompt"


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


async def test_a_turn_that_fails(agency: Agency) -> None:
    """Spec, D35, D51: AGENT_ERROR in the session and a notification to all; the session stays
    active.
    """
    session, driver = await talk(agency)
    await driver.say(Chunk("I try"), TurnEnded("error", error="The model\nis overloaded."))
    error = (await has_said(session, "error"))[0]["payload"]
    assert error == {
        "code": "AGENT_ERROR",
        "message": "The model\nis overloaded.",
        "session_id": session.session_id,
        "recoverable": True,
    }
    assert shape(await said(session))[-2] == "error" and (await state(session)).status == "active"
    notice = (await announced("notification"))[-1]["payload"]
    assert (notice["notification_type"], notice["body"]) == ("error", "The model is overloaded.")
    await say(session, "again")
    await until(lambda: driver.prompts == ["hello", "again"], "the session goes on")


async def test_output_is_coalesced(agency: Agency) -> None:
    """Issue: output is coalesced (about 50 ms): hundreds of tiny pieces are a few rows, nothing is
    lost, in order.
    """
    session, driver = await talk(agency)
    pieces = [f"{number} " for number in range(500)]
    for piece in pieces:
        await driver.say(Chunk(piece))
    await driver.say(TurnEnded("stop"))
    await has_said(session, "stream_end")
    chunks = [message["payload"]["content"] for message in await said(session, "stream_chunk")]
    assert "".join(chunks) == "".join(pieces) and len(chunks) < 50


class Clock:
    """What ``running`` knows of time: it stands still but for ``advance``."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)  # what of it is not about time is as it is

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        wakes = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.now + seconds, wakes))
        await wakes

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for at, wakes in tuple(self.sleepers):
            if at <= self.now + 1e-6:
                self.sleepers.remove((at, wakes))
                wakes.set_result(None)


async def test_a_piece_waits_for_others_for_50_ms(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue: output is coalesced (about 50 ms): of a second in which a piece comes every 10 ms, the
    first is sent at once, none later than 50 ms.
    """
    clock = Clock()
    monkeypatch.setattr(session_runner, "time", clock)
    monkeypatch.setattr(session_runner, "asyncio", clock)
    session, driver = await talk(agency)
    pieces = [f"{number} " for number in range(100)]
    runner = agency.supervisor._running[session.pk]
    put_at = clock.now

    async def said_so_far() -> str:
        return "".join(
            message["payload"]["content"] for message in await said(session, "stream_chunk")
        )

    async def is_written(text: str) -> bool:
        # and the writer has looked at the clock
        return runner.used_at >= put_at and await said_so_far() == text

    async def later(condition: Callable[[], Awaitable[object]], what: str) -> None:
        """Time goes on while it is waited for: whoever sleeps may not have begun yet."""

        async def look() -> object:
            clock.advance(0.01)
            return await condition()

        await until(look, what)

    for number, piece in enumerate(pieces):
        put_at = clock.now
        await driver.say(Chunk(piece))
        so_far = "".join(pieces[: number + 1])

        async def settled(so_far: str = so_far) -> bool:
            return bool(clock.sleepers) or await is_written(so_far)

        await until(settled, "it is written, or waits")
        written = len((await said_so_far()).split())
        assert number - written < 5, "the oldest that waits has done so for less than 50 ms"
        assert number > 0 or written == 1, "the first waits for nothing"
        clock.advance(0.01)
    await later(lambda: is_written("".join(pieces)), "the last of them")
    assert 18 <= len(await said(session, "stream_chunk")) <= 22

    clock.advance(1)
    put_at = clock.now
    await driver.say(Chunk("after a pause"))
    await until(
        lambda: is_written("".join(pieces) + "after a pause"),
        "it waits for nothing either: the clock stands still",
    )
    await driver.say(TurnEnded("stop"))
    await later(lambda: said(session, "stream_end"), "the end")


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


def test_coalescing_keeps_what_separates() -> None:
    """Only adjacent chunks of one kind are joined; empty ones vanish."""
    events: list[Event] = [
        Chunk("a"),
        Chunk("b"),
        Chunk("c", is_tool_use=True),
        Chunk("d"),
        TurnEnded("stop"),
        Chunk(""),
        Chunk("e"),
        Chunk("f"),
    ]
    assert sanitize.coalesce(events) == [
        Chunk("ab"),
        Chunk("c", is_tool_use=True),
        Chunk("d"),
        TurnEnded("stop"),
        Chunk("ef"),
    ]


# -- tools -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "modifications"),
    [("approved", None), ("rejected", None), ("modified", {"command": "make -n"})],
)
async def test_a_decision_reaches_the_agent(
    agency: Agency, decision: str, modifications: Any
) -> None:
    """D38: first decision, forwarded to the agent session that waits for it; spec:
    approval_required with source agent_sdk.
    """
    session, driver = await talk(agency)
    await driver.say(ApprovalAsked(call("ask-1")))
    asked = (await has_said(session, "approval_required"))[0]["payload"]
    assert (
        asked["source"] == "agent_sdk" and asked["description"] and asked["tool_call_id"] == "ask-1"
    )
    recorded = await decide(agency, session, "ask-1", decision, modifications)
    assert recorded.forwarded is True
    call_id, verdict = await until(
        lambda: next((told for told in driver.told if isinstance(told, tuple)), None),
        "the agent is told",
    )
    assert (call_id, verdict.decision, verdict.modifications) == ("ask-1", decision, modifications)
    with pytest.raises(BridgeError, match="TOOL_ALREADY_DECIDED"):
        await decide(agency, session, "ask-1", "rejected" if decision == "approved" else "approved")
    assert (await approval(session)).forwarded is True


async def test_a_refusal_has_a_result_and_raises_no_alarm(agency: Agency) -> None:
    """D37, D38: a rejected call that ran anyway is an alarm; its refusal, reported by the agent, is
    none, nor a failure of the tool.
    """
    session, driver = await talk(agency)
    await driver.say(ApprovalAsked(call("ask-1")))
    await has_said(session, "approval_required")
    await decide(agency, session, "ask-1", "rejected")
    await driver.say(
        ToolStopped(call("ask-1"), "The user said no."),
        TurnEnded("stop"),
    )
    await has_said(session, "stream_end", 2)
    assert len(await said(session, "tool_result")) == 1 and await said(session, "tool_error") == []
    told = [message["payload"]["notification_type"] for message in await announced("notification")]
    assert told == ["approval_required", "approval_decided", "task_complete"]


async def test_a_tool_that_fails(agency: Agency) -> None:
    """Spec: tool_error with tool_call_id, tool, code, message, details, retryable, max_retries."""
    session, driver = await talk(agency)
    details = ToolErrorDetails(exit_code=137, stderr="Killed", stdout="", execution_time_ms=12.5)
    await driver.say(
        ToolStarted(call("a")),
        ToolFailed(call("a"), "It ended with 137.", details=details, retries=1),
        TurnEnded("stop"),
    )
    error = (await has_said(session, "tool_error"))[0]["payload"]
    assert error == {
        "session_id": session.session_id,
        "tool_call_id": "a",
        "tool": "Bash",
        "code": "TOOL_EXECUTION_FAILED",
        "message": "It ended with 137.",
        "details": {"exit_code": 137, "stderr": "Killed", "stdout": "", "execution_time_ms": 12.5},
        "retryable": True,
        "max_retries": 1,
    }
    result = (await said(session, "tool_result"))[0]["payload"]["result"]
    assert (result["success"], result["content"], result["error"]) == (
        False,
        "Killed",
        "It ended with 137.",
    )


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


async def test_a_call_that_is_withdrawn(agency: Agency) -> None:
    """D40: what the agent no longer waits for is rejected, and is not forwarded to it
    afterwards.
    """
    session, driver = await talk(agency)
    await driver.say(ApprovalAsked(call("ask-1")), ApprovalWithdrawn("ask-1"))
    await has_said(session, "approval_required")
    record = await until(lambda: _decided(session), "it is rejected")
    assert (record.decision, record.reason) == ("rejected", "interrupted")


async def _decided(session: Session) -> ToolCall | None:
    record: ToolCall = await approval(session)
    return record if record.decision != "pending" else None


# -- interrupts ------------------------------------------------------------------------------------


async def test_an_interrupt_stops_the_turn(agency: Agency) -> None:
    """D40: stream_end with finish_reason stop, whatever the agent calls it; pending approvals are
    rejected, reason interrupted; the session goes on.
    """
    session, driver = await talk(agency)
    driver.on_interrupt = lambda: driver.say(TurnEnded("error", error="aborted by user"))  # type: ignore[method-assign]
    await driver.say(Chunk("I will"), ApprovalAsked(call()), Chunk("and"))
    await has_said(session, "stream_chunk", 2)
    await interrupt(session)
    ends = await has_said(session, "stream_end", 2)
    assert ends[1]["payload"]["finish_reason"] == "stop" and await said(session, "error") == []
    assert ((await approval(session)).decision, (await approval(session)).reason) == (
        "rejected",
        "interrupted",
    )
    await say(session, "go on")
    await until(lambda: driver.prompts == ["hello", "go on"], "the next turn")
    await driver.say(TurnEnded("error", error="of the next turn"))
    assert (await has_said(session, "error"))[0]["payload"]["message"] == "of the next turn"


async def test_an_interrupt_where_no_turn_runs(agency: Agency) -> None:
    """D40: there is nothing to stop: the agent is not told, and the next turn is not stopped by
    it.
    """
    session, driver = await agency.session()
    await interrupt(session)
    await say(session, "hello")
    await until(lambda: driver.prompts == ["hello"], "the agent has the prompt")
    assert "interrupt" not in driver.told


async def test_an_agent_that_does_not_yield(
    agency: Agency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D40: killed and the session paused after 5 seconds; its stream ends with stop all the
    same.
    """
    monkeypatch.setattr(limits, "INTERRUPT_SECONDS", 0.05)
    session, driver = await talk(agency)
    driver.on_interrupt = asyncio.Event().wait  # type: ignore[method-assign, assignment]
    await driver.say(Chunk("on and on"))
    await has_said(session, "stream_chunk")
    await interrupt(session)
    paused = await has_state(session, "paused")
    assert driver.closed.is_set() and "did not stop" in paused.reason
    assert [
        message["payload"]["finish_reason"] for message in await said(session, "stream_end")
    ] == ["stop"]


# -- what is on record -----------------------------------------------------------------------------


async def test_commands_are_taken_once_and_in_order(agency: Agency) -> None:
    """D35, D46: marked before the agent is told; prompts wait while a turn runs, an interrupt and a
    decision do not.
    """
    session, _ = await agency.session()
    await agency.supervisor.stop()

    def take() -> list[tuple[str, Any]]:
        for kind in ("prompt", "interrupt", "prompt"):
            inbox.add(session, inbox.Kind(kind), content=kind)
        found = [inbox.take(session.pk, busy=True), inbox.take(session.pk, busy=True)]
        found += [inbox.take(session.pk, busy=False) for _ in range(3)]
        return [(one.kind, one.payload["content"]) if one else None for one in found]  # type: ignore[misc]

    assert await sync_to_async(take)() == [
        ("interrupt", "interrupt"),
        None,
        ("prompt", "prompt"),
        ("prompt", "prompt"),
        None,
    ]
    assert await sync_to_async(Command.objects.filter(taken_at=None).count)() == 0


async def test_the_audit_trail(agency: Agency) -> None:
    """Issue 4: every client action that changes something: the session's start, its messages by
    size, not by what they say.
    """
    session, _ = await talk(agency, "a secret word")
    entries = await sync_to_async(
        lambda: list(AuditEntry.objects.filter(session_id=session.session_id).order_by("pk"))
    )()
    assert [(entry.action, entry.actor) for entry in entries] == [
        ("session_start", "device"),
        ("message", "admin"),
    ]
    assert entries[1].details == {"characters": 13} and "secret" not in str(
        [entry.__dict__ for entry in entries]
    )


async def test_hook_events_with_its_id_change_nothing(agency: Agency) -> None:
    """D34: a hook event with a bridge-run session's id is stored and sent as agent_event and
    changes no state and no approval.
    """
    session, driver = await talk(agency)
    await driver.say(ApprovalAsked(call("ask-1")))
    await has_said(session, "approval_required")
    events = [
        helpers.event(session.session_id, "UserPromptSubmit", prompt="from hooks"),
        helpers.event(
            session.session_id,
            "PreToolUse",
            tool="X",
            params={},
            risk_level="low",
            requires_approval=True,
        ),
        helpers.event(
            session.session_id,
            "PostToolUse",
            tool="Bash",
            params={"command": "make"},
            result="x",
            success=True,
        ),
        helpers.event(session.session_id, "Stop", reason="task_completed"),
        helpers.event(session.session_id, "SessionStart", working_directory="/elsewhere"),
        helpers.event(session.session_id, "SessionEnd"),
    ]
    before, notified = await state(session), len(await announced())
    await sync_to_async(helpers.store)(*events)
    after = await state(session)
    assert (after.status, after.title, after.working_directory, after.owner) == (
        before.status,
        before.title,
        before.working_directory,
        before.owner,
    )
    assert len(await said(session, "agent_event")) == 1 + 6 and len(await announced()) == notified
    record = await approval(session)
    assert record.decision == "pending" and after.pending_approvals == 1
    await decide(agency, session, "ask-1", "approved")
    await until(
        lambda: any(isinstance(told, tuple) for told in driver.told), "the agent still waits for it"
    )
