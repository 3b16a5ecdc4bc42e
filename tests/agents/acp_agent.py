"""An ACP agent for tests, on the protocol's own library: ``python -m tests.agents.acp_agent MODE``.

It is the demo agent as a program of its own, and has the habits of real agents besides: a prompt's
first word says which one is to be shown.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

from acp import (
    PROTOCOL_VERSION,
    RequestError,
    run_agent,
    schema,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
)
from acp.interfaces import Agent, Client

from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import CannotResume, Start, Verdict
from sessions_app.agents.events import (
    ApprovalAsked,
    Chunk,
    Event,
    SessionIdentified,
    ToolFailed,
    ToolSucceeded,
    TurnEnded,
)
from sessions_app.approvals.tool_call import Call

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
KINDS: dict[str, schema.ToolKind] = {
    "Bash": "execute",
    "Edit": "edit",
    "Write": "edit",
    "Read": "read",
    "Delete": "delete",
    "WebFetch": "fetch",
}
MODES = [schema.SessionMode(id="auto", name="Auto"), schema.SessionMode(id="default", name="Ask")]
OPTIONS = [
    schema.PermissionOption(option_id="yes-always", name="Always", kind="allow_always"),
    schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class DemoAgent:
    """An ACP agent (``acp.interfaces.Agent``) around sessions of the demo driver."""

    client: Client

    def __init__(self) -> None:
        self.demos: dict[str, DemoDriver] = {}
        self.directories: dict[str, Path] = {}
        self.cancelled = False

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    # -- sessions ----------------------------------------------------------------------------------

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(load_session=True),
            agent_info=schema.Implementation(name="demo", title="Demo", version="1"),
        )

    async def new_session(self, cwd: str, **_: Any) -> schema.NewSessionResponse:
        session_id = await self.open(cwd, None)
        return schema.NewSessionResponse(session_id=session_id, modes=self.offer())

    async def load_session(
        self, cwd: str, session_id: str, **_: Any
    ) -> schema.LoadSessionResponse | None:
        try:
            await self.open(cwd, session_id)
        except CannotResume as error:
            raise RequestError.resource_not_found(session_id) from error
        for text in (
            "<session_context>\nfor the model\n</session_context>What was asked?",
            "[Function Response: run_shell_command]",
        ):
            prompt: Any = schema.UserMessageChunk(
                session_update="user_message_chunk", content=text_block(text)
            )
            await self.client.session_update(session_id, prompt)
            await self.say(session_id, "This is what was ")
            await self.say(session_id, "said before.")
        if MODE == "late-history":
            self.telling = asyncio.create_task(self.tell_late(session_id))
        return schema.LoadSessionResponse(modes=self.offer())

    async def open(self, cwd: str, resume_id: str | None) -> str:
        demo = DemoDriver()
        await demo.start(Start("", Path(cwd), resume_id))
        await demo.events.wait()
        [first] = demo.events.take()
        assert isinstance(first, SessionIdentified)
        self.demos[first.resume_id], self.directories[first.resume_id] = demo, Path(cwd)
        return first.resume_id

    def offer(self) -> schema.SessionModeState:
        return schema.SessionModeState(available_modes=MODES, current_mode_id="auto")

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> schema.SetSessionModeResponse:
        return schema.SetSessionModeResponse()

    async def tell_late(self, session_id: str) -> None:
        for number in range(5):
            await asyncio.sleep(0.1)
            await self.say(session_id, f"old {number} ")

    # -- turns -------------------------------------------------------------------------------------

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        text = "".join(block.text for block in prompt if isinstance(block, schema.TextContentBlock))
        command, _space, rest = text.partition(" ")
        own = getattr(self, command.replace("/", "do_", 1), None)
        if command.startswith("/") and own is not None:
            await own(session_id, rest.strip())
            return schema.PromptResponse(stop_reason="end_turn")
        demo, self.cancelled = self.demos[session_id], False
        await demo.prompt(text)
        async for event in demo.events:
            if isinstance(event, TurnEnded):
                if event.error:
                    raise RequestError.internal_error({"details": event.error})
                reason: Any = "cancelled" if self.cancelled else "end_turn"
                return schema.PromptResponse(stop_reason=reason)
            await self.report(session_id, demo, event)
        raise RequestError.internal_error({"details": "The demo agent has been closed."})

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.cancelled = True
        await self.demos[session_id].interrupt()

    async def report(self, session_id: str, demo: DemoDriver, event: Event) -> None:
        match event:
            case Chunk(content=text):
                await self.say(session_id, text)
            case ApprovalAsked(call=call):
                answer = await self.client.request_permission(session_id, _call(call), OPTIONS)
                approved = getattr(answer.outcome, "option_id", "") in ("yes", "yes-always")
                self.cancelled |= MODE == "cancelling" and not approved
                await demo.decide(call.id or "", Verdict("approved" if approved else "rejected"))
            case ToolSucceeded(call=call, content=text):
                await self.progress(session_id, call.id, "completed", text)
            case ToolFailed(call, failure):
                await self.progress(session_id, call.id, "failed", failure.message)

    async def say(self, session_id: str, text: str) -> None:
        await self.client.session_update(session_id, update_agent_message_text(text))

    async def think(self, session_id: str, text: str) -> None:
        update: Any = schema.AgentThoughtChunk(
            session_update="agent_thought_chunk", content=text_block(text)
        )
        await self.client.session_update(session_id, update)

    async def progress(
        self, session_id: str, call_id: str | None, status: Any = None, *texts: str, **more: Any
    ) -> None:
        if texts:
            more["content"] = [tool_content(text_block(text)) for text in texts]
        update = schema.ToolCallProgress(
            session_update="tool_call_update", tool_call_id=call_id or "c1", status=status, **more
        )
        await self.client.session_update(session_id, update)

    # -- what it has the bridge do -----------------------------------------------------------------

    async def try_(self, session_id: str, work: Coroutine[Any, Any, str]) -> None:
        try:
            await self.say(session_id, await work)
        except RequestError as error:
            await self.say(session_id, f"The bridge does not do it: {error}")

    async def do_read(self, session_id: str, rest: str) -> None:
        await self.try_(session_id, self.read(session_id, rest))

    async def read(self, session_id: str, path: str) -> str:
        path = str(self.directories[session_id] / path)
        return (await self.client.read_text_file(session_id, path)).content

    async def do_write(self, session_id: str, rest: str) -> None:
        path, _, text = rest.partition(" ")
        await self.try_(session_id, self.write(session_id, path, text))

    async def write(self, session_id: str, path: str, text: str) -> str:
        whole = str(self.directories[session_id] / path)
        await self.client.write_text_file(session_id, whole, text)
        return f"{path} is written."

    async def do_run(self, session_id: str, rest: str) -> None:
        await self.try_(session_id, self.run(session_id, rest))

    async def run(self, session_id: str, command: str) -> str:
        terminal = (await self.client.create_terminal(session_id, command)).terminal_id
        ended = await self.client.wait_for_terminal_exit(session_id, terminal)
        output = (await self.client.terminal_output(session_id, terminal)).output
        await self.client.release_terminal(session_id, terminal)
        how = ended.exit_code if ended.signal is None else ended.signal
        return f"It ended with {how} and said: {output}"


class StrangeAgent(DemoAgent):
    """Has the habits of real agents, one for each ``do_…``."""

    async def do_noise(self, session_id: str, rest: str) -> None:
        await self.say(session_id, "")
        echo: Any = schema.UserMessageChunk(
            session_update="user_message_chunk", content=text_block("echo")
        )
        await self.client.session_update(session_id, echo)
        await self.think(session_id, "thinking ")
        await self.say(session_id, "said \x00")

    async def do_announce(self, session_id: str, rest: str) -> None:
        await self.think(session_id, "I must ")
        await self.think(session_id, "edit.")
        call = start_tool_call("c1", "Editing", kind="edit", status="pending")
        await self.client.session_update(session_id, call)
        await self.progress(session_id, "c1", raw_input={"file_path": "a.txt"})
        await self.progress(session_id, "c1", "in_progress")
        diff = tool_diff_content("a.txt", "one\ntwo\n", "one\n")
        content = [diff, tool_content(text_block("edited"))]
        await self.progress(session_id, "c1", "completed", content=content)
        await self.progress(session_id, "c1", "completed", "edited again")

    async def do_forget(self, session_id: str, rest: str) -> None:
        call = start_tool_call("c1", "Looking", kind="search", status="in_progress")
        await self.client.session_update(session_id, call)

    async def do_broken(self, session_id: str, rest: str) -> None:
        call = start_tool_call("c1", "make", kind="execute", raw_input={"command": "make"})
        await self.client.session_update(session_id, call)
        output = {"exit_code": 2, "stderr": "no rule", "output": "make: no rule"}
        await self.progress(session_id, "c1", "failed", raw_output=output)

    async def ask(self, session_id: str, options: list[Any] = OPTIONS, **call: Any) -> str:
        update = schema.ToolCallUpdate(tool_call_id="c1", status="pending", **call)
        answer = await self.client.request_permission(session_id, update, options)
        return getattr(answer.outcome, "option_id", "cancelled")

    async def do_edit(self, session_id: str, rest: str) -> None:
        """Asks for the first path, writes the second."""
        asked, written, text = rest.split(" ", 2)
        diff = tool_diff_content(str(self.directories[session_id] / asked), text)
        chosen = await self.ask(session_id, title="Writing", kind="edit", content=[diff])
        await self.say(session_id, f"chosen {chosen} ")
        if chosen == "yes":
            await self.try_(session_id, self.write(session_id, written, text))
            await self.progress(session_id, "c1", "completed")
            await self.try_(session_id, self.write(session_id, written, "too late"))

    async def do_shell(self, session_id: str, rest: str) -> None:
        """Asks for a command and has the bridge run it, twice."""
        await self.ask(session_id, title=rest, kind="execute", raw_input={"command": rest})
        for _ in range(2):
            await self.try_(session_id, self.run(session_id, rest))

    async def do_ask(self, session_id: str, rest: str) -> None:
        """Asks for so many commands at once, and repeats what it is told afterwards."""
        calls = [
            schema.ToolCallUpdate(tool_call_id=f"c{number}", title=f"make {number}", kind="execute")
            for number in range(int(rest))
        ]
        asked = (self.client.request_permission(session_id, call, OPTIONS) for call in calls)
        await asyncio.gather(*asked)

    async def do_nonsense(self, session_id: str, rest: str) -> None:
        update = '{"sessionId":"s","update":{"sessionUpdate":"new"}}'
        for line in (
            "no json",
            "[]",
            '"x"',
            "{}",
            f'{{"jsonrpc":"2.0","method":"session/update","params":{update}}}',
            '{"jsonrpc":"2.0","id":1,"method":"fs/everything","params":{}}',
            "[" * 20_000,
        ):
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
        await self.say(session_id, "sense")

    async def do_captured(self, session_id: str, rest: str) -> None:
        """Says what another agent was heard to say: updates, and requests where no kind is said."""
        for said in json.loads(Path(rest).read_text()):
            if "sessionUpdate" not in said:
                call = schema.ToolCallUpdate.model_validate(said)
                await self.client.request_permission(session_id, call, OPTIONS)
            elif said["sessionUpdate"] == "tool_call":
                start = schema.ToolCallStart.model_validate(said)
                await self.client.session_update(session_id, start)
            else:
                update = schema.ToolCallProgress.model_validate(said)
                await self.client.session_update(session_id, update)


def _call(call: Call) -> schema.ToolCallUpdate:
    assert call.id is not None
    kind = KINDS.get(call.tool, "other")
    title = call.tool if kind == "other" else call.description
    return schema.ToolCallUpdate(
        tool_call_id=call.id, title=title, kind=kind, status="pending", raw_input=dict(call.params)
    )


def main() -> None:
    if MODE == "banner":
        sys.stdout.write("Welcome!\n\nChecking for updates …\n")
        sys.stdout.flush()
    # the methods that it lacks are those of capabilities that it does not announce
    asyncio.run(run_agent(cast(Agent, StrangeAgent())))


if __name__ == "__main__":
    main()
