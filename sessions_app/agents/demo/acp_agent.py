"""The demo agent as an ACP agent in a process of its own: ``python -m
sessions_app.agents.demo.acp_agent``. What is true of ``demo`` is true of it (D41).

It shows the other side of ``acp``, and lets the bridge be tried with an agent that is a program:
``BRIDGE_ACP_AGENTS="demo-acp=env PYTHONPATH=PROJECT PROJECT/.venv/bin/python -m
sessions_app.agents.demo.acp_agent"``. Two commands more than ``demo`` has use what the bridge
offers such agents: ``/read PATH``, ``/write PATH TEXT`` and ``/run COMMAND``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

from acp import (
    PROTOCOL_VERSION,
    RequestError,
    run_agent,
    schema,
    text_block,
    tool_content,
    update_agent_message_text,
)
from acp.interfaces import Agent, Client

from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import (
    ApprovalAsked,
    CannotResume,
    Chunk,
    Event,
    SessionIdentified,
    Start,
    ToolFailed,
    ToolSucceeded,
    TurnEnded,
    Verdict,
)
from sessions_app.approvals.tool_call import Call

KINDS: dict[str, schema.ToolKind] = {
    "Bash": "execute",
    "Edit": "edit",
    "Write": "edit",
    "Read": "read",
    "Delete": "delete",
    "WebFetch": "fetch",
}
MODES = [
    schema.SessionMode(id="auto", name="Auto"),
    schema.SessionMode(id="default", name="Default", description="Asks before it does anything"),
]
OPTIONS = [
    schema.PermissionOption(option_id="yes-always", name="Always", kind="allow_always"),
    schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class DemoAcp:
    """An ACP agent (``acp.interfaces.Agent``) around sessions of the demo driver."""

    client: Client

    def __init__(self) -> None:
        self.sessions: dict[str, DemoDriver] = {}
        self.directories: dict[str, Path] = {}
        self.modes: dict[str, str] = {}
        self._cancelled: set[str] = set()

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: Any = None,
        client_info: Any = None,
        **_: Any,
    ) -> schema.InitializeResponse:
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(load_session=True),
            agent_info=schema.Implementation(name="demo", title="Demo", version="1"),
        )

    async def new_session(
        self, cwd: str, additional_directories: Any = None, mcp_servers: Any = None, **_: Any
    ) -> schema.NewSessionResponse:
        session_id = await self._open(cwd, None)
        return schema.NewSessionResponse(session_id=session_id, modes=self._modes())

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Any = None,
        additional_directories: Any = None,
        **_: Any,
    ) -> schema.LoadSessionResponse | None:
        try:
            await self._open(cwd, session_id)
        except CannotResume as error:
            raise RequestError.resource_not_found(session_id) from error
        await self.client.session_update(
            session_id, update_agent_message_text("This is what was said before.")
        )
        return schema.LoadSessionResponse(modes=self._modes())

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> schema.SetSessionModeResponse:
        self.modes[session_id] = mode_id
        return schema.SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        text = "".join(block.text for block in prompt if isinstance(block, schema.TextContentBlock))
        command, rest = [*text.split(" ", 1), ""][:2]
        if (own := self.commands.get(command)) is not None:
            await own(session_id, rest)
            return schema.PromptResponse(stop_reason="end_turn")
        demo = self.sessions[session_id]
        self._cancelled.discard(session_id)
        await demo.prompt(text)
        async for event in demo.events():
            if isinstance(event, TurnEnded):
                if event.error:
                    raise RequestError.internal_error({"details": event.error})
                return schema.PromptResponse(
                    stop_reason="cancelled" if session_id in self._cancelled else "end_turn"
                )
            await self._tell(session_id, demo, event)
        raise RequestError.internal_error({"details": "The demo agent has been closed."})

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._cancelled.add(session_id)
        await self.sessions[session_id].interrupt()

    @property
    def commands(self) -> dict[str, Callable[[str, str], Coroutine[Any, Any, None]]]:
        """What the demo does through the bridge, by the word that a prompt begins with."""
        return {"/read": self._read, "/write": self._write, "/run": self._command}

    # -- sessions ----------------------------------------------------------------------------------

    async def _open(self, cwd: str, resume_id: str | None) -> str:
        demo = DemoDriver()
        await demo.start(Start("", Path(cwd), resume_id))
        first = await anext(demo.events())
        assert isinstance(first, SessionIdentified)
        self.sessions[first.resume_id], self.directories[first.resume_id] = demo, Path(cwd)
        return first.resume_id

    def _modes(self) -> schema.SessionModeState:
        return schema.SessionModeState(available_modes=MODES, current_mode_id="auto")

    # -- what it says ------------------------------------------------------------------------------

    async def say(self, session_id: str, text: str) -> None:
        await self.client.session_update(session_id, update_agent_message_text(text))

    async def _tell(self, session_id: str, demo: DemoDriver, event: Event) -> None:
        match event:
            case Chunk(content=text):
                await self.say(session_id, text)
            case ApprovalAsked(call=call):
                answer = await self.client.request_permission(
                    session_id, _call(call, "pending"), OPTIONS
                )
                chosen = answer.outcome
                approved = isinstance(chosen, schema.AllowedOutcome) and chosen.option_id in (
                    "yes",
                    "yes-always",
                )
                await demo.decide(call.id or "", Verdict("approved" if approved else "rejected"))
            case ToolSucceeded(call=call, outcome=outcome) if outcome.success:
                await self._update(session_id, call, "completed", outcome.content)
            case ToolFailed(call=call, message=message):
                await self._update(session_id, call, "failed", message)

    async def _update(
        self, session_id: str, call: Call, status: schema.ToolCallStatus, text: str
    ) -> None:
        merged = _call(call, status)
        await self.client.session_update(
            session_id,
            schema.ToolCallProgress(
                session_update="tool_call_update",
                tool_call_id=merged.tool_call_id,
                status=status,
                content=[tool_content(text_block(text))],
            ),
        )

    # -- what it has the bridge do -----------------------------------------------------------------

    async def _read(self, session_id: str, rest: str) -> None:
        await self._report(session_id, self._content(session_id, rest.strip()))

    async def _content(self, session_id: str, path: str) -> str:
        return (
            await self.client.read_text_file(session_id, str(self.directories[session_id] / path))
        ).content

    async def _write(self, session_id: str, rest: str) -> None:
        path, _, text = rest.strip().partition(" ")
        await self._report(session_id, self._put(session_id, path, text))

    async def _put(self, session_id: str, path: str, text: str) -> str:
        await self.client.write_text_file(
            session_id, str(self.directories[session_id] / path), text
        )
        return f"{path} is written."

    async def _command(self, session_id: str, rest: str) -> None:
        await self._report(session_id, self._ran(session_id, rest.strip()))

    async def _ran(self, session_id: str, command: str) -> str:
        terminal = (await self.client.create_terminal(session_id, command)).terminal_id
        ended = await self.client.wait_for_terminal_exit(session_id, terminal)
        output = (await self.client.terminal_output(session_id, terminal)).output
        await self.client.release_terminal(session_id, terminal)
        return f"It ended with {ended.exit_code if ended.signal is None else ended.signal} and said: {output}"

    async def _report(self, session_id: str, work: Coroutine[Any, Any, str]) -> None:
        try:
            await self.say(session_id, await work)
        except RequestError as error:
            await self.say(session_id, f"The bridge does not do it: {error}")


def _call(call: Call, status: schema.ToolCallStatus) -> schema.ToolCallUpdate:
    assert call.id is not None
    kind = KINDS.get(call.tool, "other")
    title = call.tool if kind == "other" else call.description
    return schema.ToolCallUpdate(
        tool_call_id=call.id, title=title, kind=kind, status=status, raw_input=dict(call.params)
    )


def main() -> None:
    # the methods that it lacks are those of capabilities that it does not announce
    asyncio.run(run_agent(cast(Agent, DemoAcp())))


if __name__ == "__main__":
    main()
