"""Take part in a thread that codex's server at the desk has loaded (D80).

The thread is the desk's: how it asks is read and never set, what cannot be shown here is answered
there, and leaving it ends nothing.
"""

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.picture_files import Picture
from sessions_app.agents import events
from sessions_app.agents.codex import desk
from sessions_app.agents.codex.connection import Connection, Params, Refused
from sessions_app.agents.codex.driver import (
    NOT_ITS_SERVER,
    CodexDriver,
    message_of,
    why_not,
)
from sessions_app.agents.codex.program import NAME
from sessions_app.agents.codex.reading import part, parts, text
from sessions_app.agents.codex.transport import Frames
from sessions_app.agents.driver import CannotStart, OpenElsewhere

log = structlog.get_logger("bridge.agent")

UNASKED: Final = "At the desk {why}, so it can be watched here, and not written to."
_POLICIES: Final = ("untrusted", "on-request")
_NOT_LOADED: Final = "The desk has just closed this session. Try again."
_GONE: Final = {
    "thread/deleted": "The session was deleted at the desk.",
    "thread/closed": "The session was closed at the desk.",
}
_COMMAND: Final = "item/commandExecution/requestApproval"
_ENDED: Final = "Codex's server at the desk has ended."


class JoinedDriver(CodexDriver):
    """Join one thread, and its subagents', over a connection of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._calls.at_desk = True
        self._frames: Frames | None = None
        self._why_unasked = ""
        self._threads: set[str] = set()  # the session's, of all that the server tells about
        self._sent: set[str] = set()  # ids of the messages that came from here
        self._joined = asyncio.Event()
        self._told: set[str] = set()  # ids of the items that came while it was being joined

    @property
    def error_output(self) -> str:
        return ""

    async def start(self, directory: Path, resume_id: str | None = None) -> None:
        self._calls.directory = directory
        self._thread = resume_id or ""
        try:
            self._frames = await desk.connect()
            self._connection = Connection(
                self._frames, self._noted, self._asked, self.events.wait_for_room
            )
            self._reading = asyncio.create_task(self._connection.run())
            await self._join()
        except Refused as error:
            raise CannotStart(f"codex could not join the session: {error}") from error
        except ConnectionError as error:
            raise OpenElsewhere(f"{_NOT_LOADED} ({error})") from error
        self._watch = asyncio.create_task(self._report_end(self._reading))

    async def _join(self) -> None:
        ask = self._connection.ask
        if not await self._connection.greet():
            raise CannotStart(NOT_ITS_SERVER)
        loaded = await desk.loaded(self._connection)
        if self._thread not in loaded:
            raise OpenElsewhere(_NOT_LOADED)
        models = await ask("model/list", limit=limits.AGENT_OPTIONS)
        self._threads.add(self._thread)
        for other in {*loaded} - self._threads:  # subagents', which may ask now
            self._note_thread(part(await ask("thread/read", threadId=other), "thread"))
        answer = await ask("thread/resume", threadId=self._thread, excludeTurns=True)
        self._why_unasked = self._why_not(answer, "sandbox")
        self.asks = not self._why_unasked
        await self._begin(parts(models, "data"), answer)
        for other in self._threads - {self._thread}:
            await ask("thread/resume", threadId=other, excludeTurns=True)
        try:
            self._history = await self._read_history(self._thread)
            for one in self._threads:
                await self._take_up(one)
        except Refused as error:  # before its first prompt there is nothing to read
            log.info("history_not_read", agent=NAME, why=str(error))
        self._joined.set()

    async def _take_up(self, thread: str) -> None:
        """Take up the turn that runs in a thread; codex does not list the items that do."""
        turns = await self._connection.ask("thread/turns/list", threadId=thread, limit=1)
        for turn in parts(turns, "data"):
            if turn.get("status") == "inProgress":
                self._turns.setdefault(thread, text(turn, "id"))

    def _is_past(self, item: Params) -> bool:
        return text(item, "id") not in self._told

    # -- whether it asks ---------------------------------------------------------------------------

    def _why_not(self, answer: Params, sandbox: str) -> str:
        return why_not(answer, sandbox, _POLICIES)

    def _stopped_asking(self, why: str) -> None:
        if why != self._why_unasked:
            self._why_unasked = why
            self.asks = not why
            self.events.put(events.AsksChanged(UNASKED.format(why=why) if why else ""))

    @property
    def _may_write(self) -> bool:
        return not self._why_unasked or NAME in conf.bridge_acp_unasked

    def _take_settings(self, thread: str, settings: Params) -> None:
        if self._is_main(thread):
            self._stopped_asking(self._why_not(settings, "sandboxPolicy"))
        super()._take_settings(thread, settings)

    # -- what is written to it ---------------------------------------------------------------------

    async def prompt(self, content: str, pictures: Sequence[Picture] = ()) -> None:
        if self._may_write:
            return await super().prompt(content, pictures)
        why = UNASKED.format(why=self._why_unasked)
        return self.events.put(events.TurnEnded("error", error=why))

    async def steer(self, content: str, message_id: str, pictures: Sequence[Picture] = ()) -> None:
        if self._may_write:
            return await super().steer(content, message_id, pictures)
        return self.events.put(events.PromptMoved("refused", message_id))

    def _about_turn(self) -> Params:
        return {**self._message_id(), **self._choices.take_chosen()}

    def _message_id(self) -> Params:
        self._sent.add(id_ := str(uuid.uuid4()))
        return {"clientUserMessageId": id_}

    async def _steer(self, thread: str, given: list[Params], **more: Any) -> None:
        if self._may_write:
            await super()._steer(thread, given, **self._message_id())

    # -- what it reports ---------------------------------------------------------------------------

    def _noted(self, method: str, params: Params) -> None:
        if method == "thread/started":
            self._note_thread(part(params, "thread"))
        thread = text(params, "threadId")
        if thread and thread not in self._threads:
            return
        if method in _GONE and self._is_main(thread):
            self._die(_GONE[method])
        if method in ("item/started", "item/completed") and not self._joined.is_set():
            self._told.add(text(part(params, "item"), "id"))
        if method == "turn/started" and self._is_main(thread) and not self._prompted:
            self._interrupted = self._calls.interrupted = False  # that was the turn before
        super()._noted(method, params)

    def _note_thread(self, thread: Params) -> None:
        """Take a thread for the session's if one of that has begun it."""
        if text(thread, "parentThreadId") in self._threads:
            self._threads.add(text(thread, "id"))

    def _item_started(self, thread: str, item: Params) -> None:
        if item.get("type") == "userMessage" and self._is_main(thread):
            if (own := text(item, "clientId")) in self._sent:
                self._sent.discard(own)
            elif said := message_of(item):
                self.events.put(events.PromptTyped(said.text))
        super()._item_started(thread, item)

    # -- what it asks ------------------------------------------------------------------------------

    async def _asked(self, method: str, params: Params) -> Params:
        await self._joined.wait()
        if text(params, "threadId") not in self._threads or method not in self.SHOWN:
            await self._leave_to_desk()
        own = text(params, "approvalId") or text(params, "kind") == "writeStdin"
        if method == _COMMAND and not own:  # it may have begun before this was joined
            begun = {**params, "id": params.get("itemId"), "type": "commandExecution"}
            self._calls.begin(text(params, "threadId"), begun)
        return await super()._asked(method, params)

    async def _refuse(self, thread: str, tool: str, about: Params, said: str, why: str) -> None:
        await self._leave_to_desk()

    async def _leave_to_desk(self) -> NoReturn:
        """Give no answer: it is the desk's, and ends this task by being given."""
        while True:
            await asyncio.Event().wait()

    # -- leaving it --------------------------------------------------------------------------------

    async def end_background(self) -> None:
        """Leave what the desk's commands have left running."""

    def _die(self, why: str) -> None:
        self.approvals.withdraw()
        self.events.put(events.AgentDied(why))
        self.events.close()

    async def _report_end(self, reading: asyncio.Task[None]) -> None:
        await asyncio.wait({reading})
        if not reading.cancelled() and (fault := reading.exception()) is not None:
            log.error("driver_failed", agent=NAME, exc_info=fault)
        self._die(_ENDED)

    async def close(self) -> None:
        await super().close()
        if self._frames is not None:
            await self._frames.close()
