"""An ACP agent with the habits of real ones, on the protocol's own library: ``python -m
tests.agents.strange MODE``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, cast

from acp import (
    RequestError,
    run_agent,
    schema,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
)
from acp.interfaces import Agent

from sessions_app.agents.demo.acp_agent import MODES, OPTIONS, DemoAcp

MODE = sys.argv[1] if len(sys.argv) > 1 else ""


class Strange(DemoAcp):
    """A prompt's first word says which habit is to be shown."""

    async def new_session(self, *arguments: Any, **more: Any) -> schema.NewSessionResponse:
        answer = await super().new_session(*arguments, **more)
        if MODE == "config":
            choices = [
                schema.SessionConfigSelectOption(value=mode.id, name=mode.name) for mode in MODES
            ]
            option = schema.SessionConfigOptionSelect(
                id="m",
                name="Mode",
                category="mode",
                type="select",
                current_value="auto",
                options=choices,
            )
            return schema.NewSessionResponse(session_id=answer.session_id, config_options=[option])
        return answer

    async def set_config_option(
        self, config_id: str, session_id: str, value: str, **_: Any
    ) -> schema.SetSessionConfigOptionResponse:
        self.modes[session_id] = f"{config_id}={value}"
        return schema.SetSessionConfigOptionResponse(config_options=[])

    async def set_session_mode(
        self, session_id: str, mode_id: str, **more: Any
    ) -> schema.SetSessionModeResponse:
        if MODE == "stubborn":
            raise RequestError.invalid_params({"details": "this mode is locked"})
        return await super().set_session_mode(session_id, mode_id, **more)

    async def load_session(
        self, cwd: str, session_id: str, *arguments: Any, **more: Any
    ) -> schema.LoadSessionResponse | None:
        answer = await super().load_session(cwd, session_id, *arguments, **more)
        if MODE == "late-history":
            self.telling = asyncio.create_task(self._tell_late(session_id))
        return answer

    async def _tell_late(self, session_id: str) -> None:
        for number in range(5):
            await asyncio.sleep(0.1)
            await self.say(session_id, f"old {number} ")

    @property
    def commands(self) -> dict[str, Callable[[str, str], Coroutine[Any, Any, None]]]:
        return {
            **super().commands,
            "/mode": self._mode,
            "/noise": self._noise,
            "/announce": self._announce,
            "/forget": self._forget,
            "/broken": self._broken,
            "/edit": self._edit,
            "/shell": self._shell,
            "/always": self._always,
            "/nonsense": self._nonsense,
            "/env": self._env,
        }

    async def _mode(self, session_id: str, rest: str) -> None:
        await self.say(session_id, self.modes.get(session_id, "none"))

    async def _noise(self, session_id: str, rest: str) -> None:
        await self.say(session_id, "")
        await self.client.session_update(
            session_id,
            schema.UserMessageChunk(
                session_update="user_message_chunk", content=text_block("echo")
            ),
        )
        await self._think(session_id, "thinking ")
        await self.say(session_id, "said \x00")

    async def _think(self, session_id: str, text: str) -> None:
        await self.client.session_update(
            session_id,
            schema.AgentThoughtChunk(
                session_update="agent_thought_chunk", content=text_block(text)
            ),
        )

    async def _announce(self, session_id: str, rest: str) -> None:
        await self._think(session_id, "I must ")
        await self._think(session_id, "edit.")
        await self.client.session_update(
            session_id, start_tool_call("c1", "Editing", kind="edit", status="pending")
        )
        await self._progress(session_id, raw_input={"file_path": "a.txt"})
        await self._progress(session_id, status="in_progress")
        await self._progress(
            session_id,
            status="completed",
            content=[
                tool_diff_content("a.txt", "one\ntwo\n", "one\n"),
                tool_content(text_block("edited")),
            ],
        )
        await self._progress(
            session_id, status="completed", content=[tool_content(text_block("edited again"))]
        )

    async def _progress(self, session_id: str, **more: Any) -> None:
        await self.client.session_update(
            session_id,
            schema.ToolCallProgress(session_update="tool_call_update", tool_call_id="c1", **more),
        )

    async def _forget(self, session_id: str, rest: str) -> None:
        await self.client.session_update(
            session_id, start_tool_call("c1", "Looking", kind="search", status="in_progress")
        )

    async def _broken(self, session_id: str, rest: str) -> None:
        await self.client.session_update(
            session_id, start_tool_call("c1", "make", kind="execute", raw_input={"command": "make"})
        )
        await self._progress(
            session_id,
            status="failed",
            raw_output={"exit_code": 2, "stderr": "no rule", "output": "make: no rule"},
        )

    async def _edit(self, session_id: str, rest: str) -> None:
        """Asks for the first path, writes the second."""
        asked, written, text = rest.split(" ", 2)
        directory = self.directories[session_id]
        call = schema.ToolCallUpdate(
            tool_call_id="c1",
            title=f"Writing to {asked}",
            kind="edit",
            content=[tool_diff_content(str(directory / asked), text)],
            status="pending",
        )
        answer = await self.client.request_permission(session_id, call, OPTIONS)
        chosen = getattr(answer.outcome, "option_id", "cancelled")
        await self.say(session_id, f"chosen {chosen} ")
        if chosen == "yes":
            await self._report(session_id, self._put(session_id, written, text))
            await self._progress(session_id, status="completed")
            await self._report(session_id, self._put(session_id, written, "too late"))

    async def _shell(self, session_id: str, rest: str) -> None:
        """Asks for a command and has the bridge run it, twice."""
        call = schema.ToolCallUpdate(
            tool_call_id="c1",
            title=rest,
            kind="execute",
            raw_input={"command": rest},
            status="pending",
        )
        await self.client.request_permission(session_id, call, OPTIONS)
        for _ in range(2):
            await self._report(session_id, self._ran(session_id, rest))

    async def _always(self, session_id: str, rest: str) -> None:
        options = [option for option in OPTIONS if option.kind != "allow_once"]
        answer = await self.client.request_permission(
            session_id, schema.ToolCallUpdate(tool_call_id="c1", title="x"), options
        )
        await self.say(session_id, getattr(answer.outcome, "option_id", "cancelled"))

    async def _nonsense(self, session_id: str, rest: str) -> None:
        for line in (
            "no json",
            "[]",
            '"x"',
            "{}",
            '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"new"}}}',
        ):
            sys.stdout.write(line + "\n")
        sys.stdout.write(
            '{"jsonrpc":"2.0","id":1,"method":"fs/everything","params":{}}\n' + "[" * 20_000 + "\n"
        )
        sys.stdout.flush()
        await self.say(session_id, "sense")

    async def _env(self, session_id: str, rest: str) -> None:
        await self.say(
            session_id, " ".join(sorted(name for name in os.environ if name.startswith("BRIDGE_")))
        )


def main() -> None:
    if MODE == "banner":
        sys.stdout.write("Welcome!\n\nChecking for updates …\n")
        sys.stdout.flush()
    asyncio.run(run_agent(cast(Agent, Strange())))


if __name__ == "__main__":
    main()
