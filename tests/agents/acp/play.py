"""Plays an ACP agent against the bridge's client, without a process of its own."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from acp import RequestError, schema

from sessions_app.agents.acp.client import AcpClient
from sessions_app.agents.driver import PendingApprovals, Verdict
from sessions_app.agents.events import ApprovalAsked, Event, EventQueue, ToolFailed
from tests.agents.drive import APPROVED, only, within

OPTIONS = [
    schema.PermissionOption(option_id="yes-always", name="Always", kind="allow_always"),
    schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
]
CALL = "c1"  # the agent's own call


class Play:
    """What the client asks is answered as ``verdicts`` say, without any with a yes."""

    def __init__(self, root: Path, *verdicts: Verdict) -> None:
        self.root = root
        self.verdicts = list(verdicts)
        self.events = EventQueue()
        self.approvals = PendingApprovals(self.events)
        self.client = AcpClient(self.events, self.approvals, root, lambda mode: None)
        self.client.in_turn = True
        self.said: list[Event] = []

    def hear(self) -> list[Event]:
        for event in self.events.take():
            self.said.append(event)
            if isinstance(event, ApprovalAsked):
                verdict = self.verdicts.pop(0) if self.verdicts else APPROVED
                self.approvals.decide(event.call.id or "", verdict)
        return self.said

    @property
    def asked(self) -> list[ApprovalAsked]:
        return [event for event in self.hear() if isinstance(event, ApprovalAsked)]

    @property
    def failed(self) -> ToolFailed:
        return only(ToolFailed, self.hear())

    async def _done(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            self.hear()
        return await task

    async def update(self, what: str = "tool_call_update", **parts: Any) -> None:
        model: Any = schema.ToolCallStart if what == "tool_call" else schema.ToolCallProgress
        update = model(session_update=what, tool_call_id=CALL, **parts)
        await self.client.session_update(update)

    async def permit(self, **parts: Any) -> None:
        call = schema.ToolCallUpdate(**{"tool_call_id": CALL} | parts)
        await self._done(self.client.request_permission(call, OPTIONS))

    async def write(self, path: str, content: str) -> None:
        await self._done(self.client.write_text_file(path, content))

    async def start(self, command: str, *arguments: str, **more: Any) -> str:
        made = self.client.create_terminal(command, list(arguments), **more)
        return str((await self._done(made)).terminal_id)

    async def run(self, command: str, *arguments: str, **more: Any) -> str:
        terminal = await self.start(command, *arguments, **more)
        await within(self.client.wait_for_terminal_exit(terminal))
        return terminal

    async def ran(self, command: str, *arguments: str, **more: Any) -> bool:
        try:
            await self.run(command, *arguments, **more)
        except RequestError:
            return False
        return True

    async def output(self, command: str, **more: Any) -> str:
        terminal = await self.run(command, **more)
        return (await self.client.terminal_output(terminal)).output
