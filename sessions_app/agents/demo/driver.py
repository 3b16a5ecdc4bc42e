"""The demo agent: scripted, offline and honest about it; it shows everything that a session can do
(D41).
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

from bridge_project import __version__
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.protocol.resources import ToolErrorDetails, ToolOutcome
from bridge_project.protocol.risk import risk_of
from sessions_app.agents.driver import (
    ApprovalAsked,
    ApprovalWithdrawn,
    CannotResume,
    Chunk,
    Driver,
    Event,
    Events,
    SessionIdentified,
    Start,
    ToolFailed,
    ToolSucceeded,
    TurnEnded,
    Verdict,
)
from sessions_app.agents.process import groups, shell
from sessions_app.agents.registry import Kind
from sessions_app.approvals.tool_call import Call, describe

PIECES = 4
SLEEP_PIECE_SECONDS = 0.1
SLEEP_MAX_SECONDS = 3600.0
ECHO_MAX_CHARS = 20_000  # of a prompt repeated; a phone that sends megabytes need not get them back
INTERRUPTED = "The call was interrupted."


class DemoDriver(Driver):
    """Repeats the prompt. ``/tool NAME {json}`` asks for approval and reports; ``/fail`` fails;
    ``/sleep N`` streams for N seconds.
    """

    def __init__(self) -> None:
        self._events = Events()
        self._turn: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[Verdict]] = {}
        self._running: Call | None = None
        self._stopping = False
        self._groups = groups.Groups()

    async def start(self, start: Start) -> None:
        if start.resume_id is not None and not start.resume_id.startswith("demo-"):
            raise CannotResume("This is no session of the demo agent.")
        self._directory = start.directory
        await self._events.put(SessionIdentified(start.resume_id or f"demo-{uuid.uuid4()}"))

    def events(self) -> AsyncIterator[Event]:
        return aiter(self._events)

    async def prompt(self, content: str) -> None:
        self._stopping = False
        self._turn = asyncio.create_task(self._run(content))
        await asyncio.sleep(0)  # a task that is cancelled before it has begun says nothing at all

    async def decide(self, call_id: str, verdict: Verdict) -> bool:
        waiting = self._waiting.get(call_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(verdict)
        return True

    async def interrupt(self) -> None:
        # a second one would hit the turn while it says that it has stopped
        if self._turn is not None and not self._stopping:
            self._stopping = True
            self._turn.cancel()

    async def end_background(self) -> None:
        await self._groups.end()

    async def close(self) -> None:
        # first: a turn that waits for a reader who is gone could not say its last words
        self._events.close()
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.wait({self._turn})
        await self._groups.end()

    # -- a turn ------------------------------------------------------------------------------------

    async def _run(self, content: str) -> None:
        started = time.monotonic()
        try:
            ended = await self._answer(content.strip())
        except asyncio.CancelledError:
            for call_id in tuple(self._waiting):
                await self._events.put(ApprovalWithdrawn(call_id))
            self._waiting.clear()
            if self._running is not None:
                await self._events.put(
                    ToolSucceeded(
                        self._running, ToolOutcome(success=False, content="", error=INTERRUPTED)
                    )
                )
            ended = TurnEnded("stop")
        self._running = None
        await self._events.put(
            TurnEnded(
                ended.finish_reason,
                {"duration_ms": round((time.monotonic() - started) * 1000)},
                ended.error,
            )
        )

    async def _answer(self, content: str) -> TurnEnded:
        command, _, rest = content.partition(" ")
        if command == "/fail":
            await self._events.put(Chunk("This is the demo agent, and it was asked to fail."))
            return TurnEnded(
                "error", error=rest.strip() or "The demo agent failed, as it was asked to."
            )
        if command == "/sleep":
            return await self._sleep(rest)
        if command == "/tool":
            return await self._use(rest)
        said = (
            content
            if len(content) <= ECHO_MAX_CHARS
            else f"{content[:ECHO_MAX_CHARS]} … ({len(content)} characters in all)"
        )
        await self._stream(
            f"This is the demo agent; it has no model and repeats what you say: {said}"
        )
        return TurnEnded("stop")

    async def _stream(self, text: str) -> None:
        size = max(1, -(-len(text) // PIECES))
        for begin in range(0, len(text), size):
            await self._events.put(Chunk(text[begin : begin + size]))
            await asyncio.sleep(limits.STREAM_COALESCE_SECONDS)

    async def _sleep(self, rest: str) -> TurnEnded:
        try:
            seconds = float(rest)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= SLEEP_MAX_SECONDS:
            return await self._explain(
                f"/sleep takes a number of seconds, at most {SLEEP_MAX_SECONDS:g}."
            )
        until = time.monotonic() + seconds
        number = 0
        while (left := until - time.monotonic()) > 0:
            number += 1
            await self._events.put(Chunk(f"{number} "))
            await asyncio.sleep(min(SLEEP_PIECE_SECONDS, left))
        await self._events.put(Chunk(f"Slept for {seconds:g} seconds."))
        return TurnEnded("stop")

    async def _explain(self, text: str) -> TurnEnded:
        await self._stream(text)
        return TurnEnded("stop")

    # -- tools -------------------------------------------------------------------------------------

    async def _use(self, rest: str) -> TurnEnded:
        tool, _, text = rest.strip().partition(" ")
        try:
            params = json.loads(text) if text.strip() else {}
        except (ValueError, RecursionError):
            params = None
        if not tool or not isinstance(params, dict):
            return await self._explain('Say: /tool NAME {"parameter": "value"}')
        call = Call(
            f"demo-{uuid.uuid4()}",
            tool,
            params,
            describe(tool, params),
            risk_of(tool, params),
            "The demo agent was asked to use this tool.",
        )
        verdict = await self._ask(call)
        if verdict.decision == "rejected":
            await self._events.put(
                ToolSucceeded(
                    call,
                    ToolOutcome(
                        success=False, content="", error=verdict.reason or "The call was rejected."
                    ),
                )
            )
            await self._stream(f"{tool} was rejected.")
            return TurnEnded("stop")
        self._running = call
        await self._act(
            call,
            verdict.modifications
            if verdict.decision == "modified" and verdict.modifications is not None
            else params,
        )
        self._running = None
        await self._stream(f"{tool} is over.")
        return TurnEnded("stop")

    async def _ask(self, call: Call) -> Verdict:
        assert call.id is not None
        waiting: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = waiting
        await self._events.put(ApprovalAsked(call))
        verdict = await waiting
        del self._waiting[call.id]
        return verdict

    async def _act(self, call: Call, params: Mapping[str, Any]) -> None:
        started = time.monotonic()
        command = params.get("command")
        if call.tool == "Bash" and conf.bridge_demo_shell and isinstance(command, str):
            ran = await shell.run(command, self._directory, self._groups)
            took = round((time.monotonic() - started) * 1000)
            if ran.failure:
                details = ToolErrorDetails(
                    exit_code=ran.exit_code,
                    stderr=ran.stderr,
                    stdout=ran.stdout,
                    execution_time_ms=took,
                )
                await self._events.put(
                    ToolFailed(call, ran.failure, ran.code, details, ran.retries)
                )
            else:
                await self._events.put(
                    ToolSucceeded(
                        call,
                        ToolOutcome(
                            success=True,
                            content=ran.stdout or ran.stderr,
                            metadata={"exit_code": 0},
                            duration_ms=took,
                        ),
                    )
                )
            return
        said = f"A scripted result of {call.tool}: nothing was run. Parameters: {json.dumps(dict(params), ensure_ascii=False)}"
        await self._events.put(
            ToolSucceeded(
                call,
                ToolOutcome(
                    success=True,
                    content=said,
                    duration_ms=round((time.monotonic() - started) * 1000),
                ),
            )
        )


def kinds() -> list[Kind]:
    """Always there (D41)."""
    return [Kind("demo", DemoDriver, lambda: None, lambda: __version__, real=False)]
