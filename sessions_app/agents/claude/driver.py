"""One session of claude-code, through claude-agent-sdk (D35, D38, D40, D41)."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import structlog
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    CLIConnectionError,
    HookContext,
    HookInput,
    HookJSONOutput,
    HookMatcher,
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ProcessError,
    ResultError,
    ToolPermissionContext,
)

from bridge_project.kernel import limits
from sessions_app.agents.claude import agent, process
from sessions_app.agents.claude import events as claude_events
from sessions_app.agents.claude.events import Translation
from sessions_app.agents.driver import (
    AgentDied,
    ApprovalWithdrawn,
    CannotResume,
    CannotStart,
    Driver,
    Event,
    Events,
    Start,
    Verdict,
)
from sessions_app.agents.sanitize import clean

log = structlog.get_logger("bridge.agent")

_TOO_LATE = Verdict("rejected", reason="The turn ended before anybody decided.")
_KNOWN_SECONDS = 2.0  # the call comes before the question about it, but by another task


class ClaudeDriver(Driver):
    """``program``: another one than that of the SDK."""

    def __init__(self, program: Path | None = None) -> None:
        self._program = program
        self._events = Events()
        self._talk = Translation()
        self._news = asyncio.Condition()  # the agent has said something
        self._waiting: dict[str, asyncio.Future[Verdict]] = {}
        self._cli: process.Cli | None = None
        self._client: ClaudeSDKClient | None = None
        self._reader: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def pid(self) -> int | None:
        """The program's process, which leads a group of its own."""
        return self._cli.pid if self._cli is not None else None

    async def start(self, start: Start) -> None:
        program = self._program or agent.program()
        if program is None:
            raise CannotStart(agent.why_not() or "The agent's program is not there.")
        self._talk = Translation(start.resume_id)
        self._cli = process.Cli(process.command(program, start.resume_id), start.directory)
        options = ClaudeAgentOptions(
            can_use_tool=self._permit, hooks={"PreToolUse": [HookMatcher(hooks=[_have_it_ask])]}
        )
        self._client = ClaudeSDKClient(options, self._cli)
        try:
            await self._client.connect()
        except ResultError as error:
            if start.resume_id:
                raise CannotResume(
                    f"The agent cannot continue this session: {_reason(error)}"
                ) from error
            raise CannotStart(f"The agent did not start: {_reason(error)}") from error
        except Exception as error:  # an answer that is an error comes from the SDK as a plain one
            raise CannotStart(
                f"The agent did not start: {_reason(error, self._cli.last_words)}"
            ) from error
        self._reader = asyncio.create_task(self._read(self._client))

    def events(self) -> AsyncIterator[Event]:
        return aiter(self._events)

    async def prompt(self, content: str) -> None:
        prompt_id = str(uuid.uuid4())
        self._talk.begin(prompt_id)
        with contextlib.suppress(CLIConnectionError):  # it has just ended: the reader says so
            await self._told().query(_message(prompt_id, content))

    async def decide(self, call_id: str, verdict: Verdict) -> bool:
        waiting = self._waiting.get(call_id)
        if waiting is None or waiting.done():
            return False
        self._talk.decide(call_id, verdict)
        waiting.set_result(verdict)
        return True

    async def interrupt(self) -> None:
        self._talk.interrupt()
        try:
            async with asyncio.timeout(limits.INTERRUPT_SECONDS):
                await self._told().interrupt()
        except Exception as error:
            # as above; an agent that goes on is closed by the runtime, one that has ended says so
            # itself
            log.warning("interrupt_failed", agent=agent.NAME, exc_info=error)

    async def end_background(self) -> None:
        if self._cli is not None:
            await self._cli.end_background()

    async def close(self) -> None:
        self._closing = True
        if self._client is not None:
            await self._client.disconnect()
        if self._cli is not None:
            await self._cli.close()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        self._events.close()

    # -- what it says ------------------------------------------------------------------------------

    async def _read(self, client: ClaudeSDKClient) -> None:
        """For as long as it lives: it also speaks between turns, when something in the background
        is done.
        """
        try:
            async for message in client.receive_messages():
                for event in self._talk.read(message):
                    if (
                        isinstance(event, ApprovalWithdrawn)
                        and (waiting := self._waiting.get(event.call_id))
                        and not waiting.done()
                    ):
                        waiting.set_result(_TOO_LATE)  # should the agent wait for it all the same
                    await self._events.put(event)
                async with self._news:
                    self._news.notify_all()
            reason = "It ended by itself."
        except ClaudeSDKError as error:
            reason = _reason(error)
        if not self._closing:
            await self._events.put(AgentDied(f"The agent {agent.NAME} is gone: {reason}"))
            if self._cli is not None:
                await self._cli.close()
            self._events.close()

    # -- approvals ---------------------------------------------------------------------------------

    async def _permit(
        self, tool: str, params: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResult:
        """The SDK waits for the answer as long as it takes; it cancels this when the agent no
        longer waits.
        """
        call_id = context.tool_use_id or str(uuid.uuid4())
        await self._known(call_id)
        waiting = self._waiting[call_id] = asyncio.get_running_loop().create_future()
        try:
            for event in self._talk.ask(call_id, tool, params, context.decision_reason):
                await self._events.put(event)
            verdict = await waiting
        except asyncio.CancelledError:
            for event in self._talk.withdraw(call_id):
                await self._events.put(event)
            raise
        finally:
            del self._waiting[call_id]
        return _answer(verdict)

    async def _known(self, call_id: str) -> None:
        """Have what was said before the question written down before it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KNOWN_SECONDS), self._news:
                await self._news.wait_for(lambda: self._talk.knows(call_id))

    def _told(self) -> ClaudeSDKClient:
        assert self._client is not None, "start comes first"
        return self._client


async def _have_it_ask(
    event: HookInput, call_id: str | None, context: HookContext
) -> HookJSONOutput:
    """Without it the agent would not ask about commands that it thinks only read."""
    if event["hook_event_name"] != "PreToolUse" or not claude_events.asks(event["tool_name"]):
        return {}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"}}


def _answer(verdict: Verdict) -> PermissionResult:
    if verdict.decision == "rejected":
        return PermissionResultDeny(message=verdict.reason or claude_events.REJECTED)
    changed = verdict.modifications if verdict.decision == "modified" else None
    return PermissionResultAllow(updated_input=None if changed is None else dict(changed))


async def _message(prompt_id: str, content: str) -> AsyncIterator[dict[str, Any]]:
    """A prompt with an id of its own, which the result of its turn names."""
    yield {
        "type": "user",
        "uuid": prompt_id,
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
    }


def _reason(error: Exception, last_words: str = "") -> str:
    """What went wrong, for a person; ``last_words``: what the program wrote itself, said if the
    error does not have it.
    """
    if isinstance(error, ResultError):
        text = "; ".join(error.errors) or error.result or str(error)
    elif isinstance(error, ProcessError) and (error.exit_code or 0) < 0:
        text = f"It was ended by signal {-(error.exit_code or 0)}."
    else:
        text = str(error)
    text = text if last_words in text else f"{text} {last_words}"
    return clean(text.strip())[: limits.AGENT_REASON_MAX_CHARS]
