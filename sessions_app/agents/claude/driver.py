"""Run one session of claude-code, through claude-agent-sdk (D35, D38, D40, D41)."""

import asyncio
import base64
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import claude_agent_sdk as sdk
import structlog
from claude_agent_sdk._errors import MessageParseError

from bridge_project.kernel import limits
from bridge_project.kernel.picture_files import Picture
from bridge_project.kernel.text import clean
from sessions_app.agents.claude import memory, owners, process
from sessions_app.agents.claude import program as installed
from sessions_app.agents.claude.choices import Choices
from sessions_app.agents.claude.translation import DENIED, UNASKED, Translation
from sessions_app.agents.driver import CannotResume, CannotStart, Driver, NotTaken
from sessions_app.agents.events import AgentDied, ApprovalWithdrawn, PromptMoved
from sessions_app.agents.process import groups

log = structlog.get_logger("bridge.agent")

_TOO_LATE = "The turn ended before anybody decided."
_CALL_SECONDS = 2.0  # the call comes before the question about it, but by another task


class ClaudeDriver(Driver):
    """Run one session of claude-code, from its start to its close."""

    picture_bytes = limits.PICTURE_BYTES

    def __init__(self) -> None:
        super().__init__()
        self._translation = Translation()
        self._message_read = asyncio.Condition()  # the agent has said something
        self._process: process.ClaudeProcess | None = None  # with it comes the client
        self._reader: asyncio.Task[None] | None = None
        self._querying: asyncio.Task[None] | None = None  # a prompt, which an agent may not read
        self._closing = False
        self._places: dict[str, str] = {}  # a call that will ask → where the agent's shell is

    @property
    def error_output(self) -> str:
        return self._process.error_output if self._process is not None else ""

    async def start(self, directory: Path, resume_id: str | None = None) -> None:
        program = installed.program()
        if program is None:
            raise CannotStart(installed.problem() or "The agent's program is not there.")
        self._translation = Translation(resume_id)
        with TemporaryDirectory(prefix="bridge-agent-", ignore_cleanup_errors=True) as place:
            # which the program reads while it starts
            text = await asyncio.to_thread(memory.write, directory, Path(place, "memory"))
            named = await asyncio.to_thread(owners.options, self._place)
            command = process.command(program, resume_id, text, self._copies, named)
            group = await groups.start(command, directory, more=process.ENVIRONMENT, stdin=True)
            hooks: Any = {"PreToolUse": [sdk.HookMatcher(hooks=[self._always_ask])]}
            options = sdk.ClaudeAgentOptions(can_use_tool=self._permit, hooks=hooks)
            self._process = process.ClaudeProcess(group)
            self._client = sdk.ClaudeSDKClient(options, self._process)
            try:
                await self._client.connect()
            except Exception as error:  # the SDK's for an error answer
                why = _reason(error)
                if resume_id and isinstance(error, sdk.ResultError):
                    raise CannotResume(f"The agent cannot continue this session: {why}") from error
                raise CannotStart(f"The agent did not start: {why}") from error
            self._choices = Choices(await self._client.get_server_info())
            self._offer(self._choices.offers)
        self._reader = asyncio.create_task(self._read(self._client))

    async def prompt(self, content: str, pictures: Sequence[Picture] = ()) -> None:
        prompt_id = str(uuid.uuid4())
        self._translation.begin(prompt_id)
        self._querying = asyncio.create_task(self._query(prompt_id, content, pictures))
        await asyncio.sleep(0)  # so that no interrupt overtakes it

    async def steer(self, content: str, message_id: str, pictures: Sequence[Picture] = ()) -> None:
        prompt_id = str(uuid.uuid4())
        self._translation.steer(prompt_id)
        await self._query(prompt_id, content, pictures, message_id)

    async def _query(
        self, prompt_id: str, content: str, pictures: Sequence[Picture], message_id: str = ""
    ) -> None:
        try:
            await self._client.query(_message(prompt_id, content, pictures))
            self.events.put(PromptMoved("given", message_id))
        except sdk.CLIConnectionError as error:
            # when it has just ended the reader reports that; else nobody would
            if not self._closing and self._process and not self._process.group.exited.is_set():
                self.events.put(AgentDied(f"The agent {installed.NAME} is gone: {error}"))
        except Exception as error:  # whatever it is, an agent that hears nothing is gone
            log.exception("driver_failed", agent=installed.NAME)
            self.events.put(AgentDied(f"The agent takes no more input: {error}"))

    async def interrupt(self) -> None:
        self._translation.interrupt()
        try:
            async with asyncio.timeout(limits.INTERRUPT_SECONDS):
                await self._client.interrupt()
        except Exception as error:
            # as above; an agent that goes on is closed by the supervisor
            log.warning("interrupt_failed", agent=installed.NAME, exc_info=error)

    async def end_background(self) -> None:
        if self._process is not None:
            await groups.end_background(self._process.group)

    async def close(self) -> None:
        self._closing = True
        if self._querying is not None:
            self._querying.cancel()
        if self._process is not None:
            await self._client.disconnect()
            await self._process.close()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        self.events.close()
        self._remove_place()

    async def _read(self, client: sdk.ClaudeSDKClient) -> None:
        """Report what it says for as long as it lives, also between turns."""
        reason = "it ended by itself"
        try:
            async for message in _messages(client):
                if isinstance(message, sdk.StreamEvent):  # its thoughts come so, and are no events
                    self.events.note_activity()
                if self._choices.take(message):
                    self._offer(self._choices.offers)
                for event in self._translation.read(message):
                    if isinstance(event, ApprovalWithdrawn):
                        self.approvals.withdraw(event.call_id)
                    else:
                        self.events.put(event)
                async with self._message_read:
                    self._message_read.notify_all()
                await self.events.wait_for_room()
        except sdk.ClaudeSDKError as error:
            reason = _reason(error)
        except Exception as error:  # whatever it is, nobody would read the agent any more
            log.exception("driver_failed", agent=installed.NAME)
            reason = f"the bridge cannot read what it says ({type(error).__name__})"
        if not self._closing:
            self.events.put(AgentDied(f"The agent {installed.NAME} is gone: {reason}"))
            if self._process is not None:
                await self._process.close()
            self.events.close()

    async def _choose(self, option_id: str, value: str) -> None:
        try:
            await self._choices.set(self._client, option_id, value)
        except Exception as error:  # the SDK's for an error answer, and for a program that is gone
            raise NotTaken(f"The agent {installed.NAME} did not take it: {error}") from error
        self._offer(self._choices.offers)

    async def _permit(
        self, tool: str, params: dict[str, Any], context: sdk.ToolPermissionContext
    ) -> sdk.PermissionResult:
        """Ask a person; the SDK waits without limit, and cancels this when the agent does."""
        call_id = context.tool_use_id or str(uuid.uuid4())
        # until all that the agent said before the question is reported
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CALL_SECONDS), self._message_read:
                await self._message_read.wait_for(lambda: self._translation.has_call(call_id))
        call = self._translation.ask(call_id, tool, params, context.decision_reason)
        call = replace(call, directory=self._places.pop(call_id, ""))
        try:
            verdict = await self.approvals.ask(call)
        except asyncio.CancelledError:
            self._translation.withdraw(call_id)
            raise
        if verdict is None:
            return sdk.PermissionResultDeny(message=_TOO_LATE)
        self._translation.decide(call_id, verdict)
        if verdict.decision == "rejected":
            return sdk.PermissionResultDeny(message=verdict.reason or DENIED)
        changed = verdict.modifications if verdict.decision == "modified" else None
        return sdk.PermissionResultAllow(updated_input=None if changed is None else dict(changed))

    async def _always_ask(
        self, event: sdk.HookInput, call_id: str | None, context: sdk.HookContext
    ) -> sdk.HookJSONOutput:
        """Make the agent ask also about commands that it believes only read."""
        if event["hook_event_name"] != "PreToolUse" or event["tool_name"] in UNASKED:
            return {}
        if call_id is not None:
            self._places[call_id] = event["cwd"]
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"}}


async def _messages(client: sdk.ClaudeSDKClient) -> AsyncIterator[sdk.Message]:
    """Yield what the agent says; log and skip what the SDK cannot read."""
    while True:
        try:
            async for message in client.receive_messages():
                yield message
        except MessageParseError as error:  # one field is missing; the next one comes all the same
            log.warning("agent_message_not_read", agent=installed.NAME, why=str(error))
        else:
            return


async def _message(
    prompt_id: str, content: str, pictures: Sequence[Picture]
) -> AsyncIterator[dict[str, Any]]:
    """Yield a prompt with an id of its own, which the result of its turn names."""
    blocks = [
        {"type": "image", "source": {"type": "base64", "media_type": one.media_type, "data": data}}
        for one in pictures
        if (data := base64.b64encode(one.data).decode())
    ]
    said = [*blocks, {"type": "text", "text": content}] if blocks else content
    yield {
        "type": "user",
        "uuid": prompt_id,
        "message": {"role": "user", "content": said},
        "parent_tool_use_id": None,
    }


def _reason(error: Exception) -> str:
    text = str(error)
    if isinstance(error, sdk.ResultError):
        text = "; ".join(error.errors) or error.result or text
    return clean(text.strip())[: limits.AGENT_REASON_MAX_CHARS]
