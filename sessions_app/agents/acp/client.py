"""Take an ACP agent's reports, permission requests and questions.

It works with its own tools: the bridge writes no file and runs no command for it (D76).
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acp import RequestError, schema
from acp.meta import CLIENT_METHODS

from bridge_project.kernel import limits
from bridge_project.protocol.resources import Usage
from sessions_app.agents import events
from sessions_app.agents.acp.content import HistoryCollector, pictures_of, text_of
from sessions_app.agents.acp.permissions import Permissions
from sessions_app.agents.acp.questions import Questions
from sessions_app.agents.acp.tool_calls import ToolCalls
from sessions_app.agents.driver import PendingApprovals
from sessions_app.agents.usage import finite, limit_of


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
        takes_mode: Callable[[Any], bool],
        takes_offers: Callable[[Any], None],
    ) -> None:
        self._events = queue
        self._takes_mode, self._takes_offers = takes_mode, takes_offers
        self.calls = ToolCalls(queue, directory, approvals.withdraw)
        self.permissions = Permissions(approvals, self.calls, queue)
        self._questions = Questions(approvals, self.calls, queue)
        self.in_turn = False
        self._own: asyncio.TimerHandle | None = None  # ends the turn that the agent began itself
        self.collector: HistoryCollector | None = None  # from loading to the first prompt
        self.cost: dict[str, Any] = {}  # the session's, once the agent has told it
        self.updated = asyncio.Event()
        self.said = False  # something since the prompt was given, or given again

    def begin_turn(self) -> None:
        """Begin a turn; calls that are still open belong to it."""
        self._forget_own()
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
        self.updated.set()  # who waits for an update of the turn waits no longer
        if not self.in_turn:
            self.end_turn()
            self.calls.interrupted = False
            if self._forget_own():
                self._events.put(events.TurnEnded("stop", interrupted=True, own=True))

    # -- a turn that the agent begins itself (D76) -------------------------------------------------

    def _note_own(self, *, begins: bool) -> None:
        """Begin such a turn, or go on with it: it ends some time after the last update."""
        if not self.in_turn and (self._forget_own() or begins):
            loop = asyncio.get_running_loop()
            self._own = loop.call_later(limits.ACP_OWN_TURN_SECONDS, self._end_own)

    def _end_own(self) -> None:
        if self.calls.is_open:
            self._note_own(begins=True)
            return
        self._own = None
        self.end_turn()
        self._events.put(events.TurnEnded("stop", own=True))

    def _forget_own(self) -> bool:
        """Forget that such a turn runs; return whether one did."""
        own, self._own = self._own, None
        if own is not None:
            own.cancel()
        return own is not None

    def close(self) -> None:
        self._forget_own()

    # -- what the agent reports --------------------------------------------------------------------

    async def session_update(self, update: Any, **_: Any) -> None:
        """Report an update; of a loaded session it is history until the first prompt."""
        self.updated.set()
        self._note_own(begins=False)
        self._takes_offers(update)
        if self._takes_mode(update):
            return
        match update:
            case schema.UsageUpdate():
                self._note_usage(update)
            case schema.SessionInfoUpdate(title=str(title)):
                self._events.put(events.TitleChanged(title))
            case schema.ToolCallProgress() if self.calls.has(update.tool_call_id):
                self.calls.update(update)
            case _ if self.collector is not None:
                self.collector.take(update)
            case schema.AgentMessageChunk():
                if text := text_of(update.content):
                    self.said = True
                    self._note_own(begins=True)
                    is_picture = isinstance(update.content, schema.ImageContentBlock)
                    shown = pictures_of(update.content) if is_picture else ()
                    self._events.put(events.Chunk(text, pictures=shown))
            case schema.AgentThoughtChunk():
                self._events.note_activity()
                self.calls.think(text_of(update.content))
            case schema.ToolCallStart() | schema.ToolCallProgress():
                self.calls.update(update)
            case schema.AgentPlanUpdate():
                self.calls.plan(update.entries)
            case _:
                return  # echoed prompts: devices are told none of these

    def _note_usage(self, update: schema.UsageUpdate) -> None:
        if (cost := update.cost) is not None:
            self.cost = {"cost": {"amount": cost.amount, "currency": cost.currency}}
        limit = limit_of((update.field_meta or {}).get("_claude/rateLimit"))
        used = Usage(
            context_tokens=update.used,
            context_window=update.size or None,
            cost_usd=finite(cost.amount) if cost is not None and cost.currency == "USD" else None,
            limits=[limit] if limit is not None else None,
        )
        self._events.put(events.UsageChanged(used))

    async def request_permission(
        self, tool_call: Any, options: list[Any], **_: Any
    ) -> schema.RequestPermissionResponse:
        return await self.permissions.answer(tool_call, options)

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        return await self._questions.answer(message, mode)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ignore an agent's own notifications."""

    async def create_terminal(self, **_: Any) -> schema.CreateTerminalResponse:
        """Refuse what was not offered (D76), where the library would answer null."""
        raise RequestError.method_not_found(CLIENT_METHODS["terminal_create"])
