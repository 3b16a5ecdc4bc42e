"""Take an ACP agent's reports and its permission requests (``permissions.py``).

It works with its own tools: the bridge writes no file and runs no command for it (D76).
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acp import RequestError, schema
from acp.meta import CLIENT_METHODS

from sessions_app.agents import events
from sessions_app.agents.acp.content import HistoryCollector, text_of
from sessions_app.agents.acp.modes import mode_in
from sessions_app.agents.acp.permissions import Permissions
from sessions_app.agents.acp.tool_calls import ToolCalls
from sessions_app.agents.driver import PendingApprovals
from sessions_app.agents.sanitize import clean


class AcpClient:
    """Handle what one session's ACP agent reports and requests.

    The ACP library calls this. Handlers begin in the order of the messages, and report before they
    first wait.
    """

    def __init__(
        self,
        queue: events.EventQueue,
        approvals: PendingApprovals,
        directory: Path,
        mode_reported: Callable[[str], None],
    ) -> None:
        self._events = queue
        self._mode_reported = mode_reported
        self.calls = ToolCalls(queue, directory)
        self.permissions = Permissions(approvals, self.calls, queue)
        self.in_turn = False
        self.collector: HistoryCollector | None = None  # from loading to the first prompt
        self.cost: dict[str, Any] = {}  # the session's, once the agent has told it
        self.updated = asyncio.Event()

    def begin_turn(self) -> None:
        """Begin a turn; calls that are still open belong to it."""
        self.collector, self.calls.interrupted, self.in_turn = None, False, True

    def end_turn(self) -> None:
        """Withdraw the requests and close the calls that the agent left open."""
        self.permissions.withdraw()
        self.calls.end_turn()
        self.in_turn = False

    def interrupt(self) -> None:
        """Withdraw all questions; outside a turn close the calls too."""
        self.calls.interrupt()
        self.permissions.withdraw()
        if not self.in_turn:
            self.end_turn()
            self.calls.interrupted = False

    # -- what the agent reports --------------------------------------------------------------------

    async def session_update(self, update: Any, **_: Any) -> None:
        """Report an update; outside a turn only one of a call that was asked about.

        Another one is history then, or an echoed prompt.
        """
        self.updated.set()
        if (mode := mode_in(update)) is not None:
            self._mode_reported(mode)
            return
        match update:
            case schema.UsageUpdate(cost=cost) if cost is not None:
                self.cost = {"cost": {"amount": cost.amount, "currency": cost.currency}}
            case schema.ToolCallProgress() if self.calls.has(update.tool_call_id):
                self.calls.update(update)
            case _ if not self.in_turn:
                if self.collector is not None:
                    self.collector.take(update)
            case schema.AgentMessageChunk():
                if text := clean(text_of(update.content)):
                    self._events.put(events.Chunk(text))
            case schema.AgentThoughtChunk():
                self._events.note_activity()
                self.calls.think(clean(text_of(update.content)))
            case schema.ToolCallStart() | schema.ToolCallProgress():
                self.calls.update(update)
            case _:
                return  # echoed prompts, plans, commands: devices are told none of these

    async def request_permission(
        self, tool_call: Any, options: list[Any], **_: Any
    ) -> schema.RequestPermissionResponse:
        return await self.permissions.answer(tool_call, options)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ignore an agent's own notifications."""

    async def create_terminal(self, **_: Any) -> schema.CreateTerminalResponse:
        """Refuse what was not offered (D76), where the library would answer null."""
        raise RequestError.method_not_found(CLIENT_METHODS["terminal_create"])
