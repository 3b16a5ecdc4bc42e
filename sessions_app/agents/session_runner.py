"""One session whose agent runs in this process: what is said goes to the log, what is commanded
goes to the agent (D35, D38, D40).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, ParamSpec, TypeVar

import structlog
from django.db import InterfaceError, OperationalError

from bridge_project.kernel import limits
from bridge_project.kernel.threads import agents as threads
from sessions_app.agents.driver import (
    AgentDied,
    Chunk,
    Driver,
    Event,
    StoppedAsking,
    TurnEnded,
    Verdict,
)
from sessions_app.agents.inbox import Kind, Taken
from sessions_app.agents.sanitize import coalesce
from sessions_app.agents.transcript import Lost, Transcript

log = structlog.get_logger("bridge.agent")
P = ParamSpec("P")
T = TypeVar("T")

INTERRUPTED = "The turn was interrupted before this decision came."
LAST_WORDS_SECONDS = 1.0  # to read what an agent that has ended had said
# After an interrupt an agent ends its own commands in its own time, and nobody is told what they
# leave then: it is looked for.
BACKGROUND_LOOKS, BACKGROUND_SECONDS = 10, 0.3

# one: with SQLite a second one would only wait for the first, and not in turn


async def stored(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run something on the database until it has worked: what an agent has said is not said
    again.
    """
    away = False
    while True:
        try:
            return await threads.run(function, *args, **kwargs)
        except (OperationalError, InterfaceError) as error:
            if not away:
                log.warning("agent_waits_for_database", error=error.__class__.__name__)
            away = True
            await asyncio.sleep(limits.POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class Over:
    """Why a running session is over, and so what is to be written of it.

    ``paused`` and ``failed`` are still to be written down; ``died`` has been, by the agent's last
    word; ``lost``: it is not this process's any more; ``expired``: nobody has watched it for the
    grace time. ``interrupted``: it would not stop when told to.
    """

    how: Literal["paused", "failed", "died", "lost", "expired"]
    reason: str = ""
    interrupted: bool = False


class SessionRunner:
    """``over`` is called when this must end, perhaps more than once; whoever it tells calls
    ``stop``.
    """

    def __init__(
        self,
        session_pk: int,
        session_id: str,
        driver: Driver,
        owner: uuid.UUID,
        over: Callable[[SessionRunner, Over], None],
    ) -> None:
        self.session_pk = session_pk
        self.session_id = session_id
        self._driver = driver
        self._over = over
        self._transcript = Transcript(session_pk, owner)
        self._wake = asyncio.Event()
        self._said: asyncio.Queue[Event | None] = asyncio.Queue(limits.AGENT_EVENTS_WAITING)
        self._chars = 0  # of text in what was said and is not in the log
        self._written = asyncio.Event()
        self._quiet = asyncio.Event()  # no turn runs
        self._quiet.set()
        self._interrupted = False
        self._stopping = False
        # the agent has, by itself; the log may have it already and whoever looks find the session
        # nobody's
        self.died = False
        self._watchdog: asyncio.Task[None] | None = None
        self._clearing: asyncio.Task[None] | None = None
        self.used_at = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether a turn runs."""
        return not self._quiet.is_set()

    def start(self) -> None:
        self._listener, self._writer, self._commander = (
            asyncio.create_task(work) for work in (self._listen(), self._write(), self._command())
        )
        for task in (self._listener, self._writer, self._commander):
            task.add_done_callback(self._ended)
        self.wake()

    def wake(self) -> None:
        """A command may be waiting."""
        self._wake.set()

    async def stop(self) -> None:
        """End the agent; what it had said is in the log when this returns, if it ended in time."""
        self._stopping = True
        for task in (self._commander, self._watchdog, self._clearing):
            if task is not None:
                task.cancel()
        await close(self._driver, self.session_id)
        # an agent that is closed says what it had said, and no more
        await asyncio.wait({self._listener}, timeout=LAST_WORDS_SECONDS)
        self._listener.cancel()
        if not self._writer.done():
            ending = asyncio.ensure_future(self._said.put(None))
            # the database may be slow, or away
            await asyncio.wait({self._writer}, timeout=limits.AGENT_CLOSE_SECONDS)
            ending.cancel()
            self._writer.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, Lost):
            self._over(self, Over("lost"))
        else:
            log.error("agent_task_failed", session=self.session_id, exc_info=error)
            self._over(
                self, Over("failed", "The bridge failed while it ran the agent; its log says how.")
            )

    # -- from the agent to the log -----------------------------------------------------------------

    async def _listen(self) -> None:
        try:
            async for event in self._driver.events():
                await self._said.put(event)
                if isinstance(event, AgentDied):
                    return
                if isinstance(event, StoppedAsking) and self.busy:  # the driver has told it to stop
                    self._interrupted = True
                    self._watch()
                if isinstance(event, Chunk):
                    await self._room_for(len(event.content))
        except Exception as error:  # whatever it is, a driver that fails is an agent that is gone
            log.exception("driver_failed", session=self.session_id)
            await self._said.put(AgentDied(f"The agent's driver failed: {error}"))
        else:
            if not self._stopping:
                await self._said.put(AgentDied("The agent ended without a word."))

    async def _room_for(self, chars: int) -> None:
        """Text is bounded not by the number of its pieces: wait until the log has what there is too
        much of.
        """
        self._chars += chars
        while self._chars >= limits.AGENT_CHARS_WAITING:
            self._written.clear()
            await self._written.wait()

    async def _write(self) -> None:
        """The first piece at once, then what came within limits.STREAM_COALESCE_SECONDS
        together.
        """
        written = 0.0
        while True:
            first = await self._said.get()
            wait = written + limits.STREAM_COALESCE_SECONDS - time.monotonic()
            if wait > 0 and not self._stopping:
                await asyncio.sleep(wait)
            batch, last = self._batch(first)
            if batch:
                if not self._stopping and any(isinstance(event, AgentDied) for event in batch):
                    self.died = True
                if self._interrupted and any(isinstance(event, TurnEnded) for event in batch):
                    # whoever sees the end of the turn finds it done
                    await self._driver.end_background()
                await stored(self._transcript.write, coalesce(batch))
                written = self.used_at = time.monotonic()
                self._chars -= sum(
                    len(event.content) for event in batch if isinstance(event, Chunk)
                )
                self._written.set()
                self._after(batch)
            if last:
                return

    def _batch(self, first: Event | None) -> tuple[list[Event], bool]:
        """What has come, up to the limit; and whether nothing will come after it."""
        batch: list[Event] = []
        event = first
        while event is not None:
            batch.append(self._as_told(event))
            if self._said.empty() or len(batch) >= limits.AGENT_EVENTS_WAITING:
                return batch, False
            event = self._said.get_nowait()
        return batch, True

    def _as_told(self, event: Event) -> Event:
        """A turn that was interrupted has stopped, whatever the agent calls it (D40)."""
        if isinstance(event, TurnEnded) and self._interrupted:
            return replace(event, finish_reason="stop", error="")
        return event

    def _after(self, batch: Sequence[Event]) -> None:
        if any(isinstance(event, TurnEnded | AgentDied) for event in batch):
            if self._interrupted:
                self._end_background()
            self._interrupted = False
            self._quiet.set()
            self.wake()
        if died := next((event for event in batch if isinstance(event, AgentDied)), None):
            self._over(self, Over("died", died.reason))

    # -- from the sockets to the agent -------------------------------------------------------------

    async def _command(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while command := await stored(self._transcript.take, busy=self.busy):
                self.used_at = time.monotonic()
                await self._obey(command)

    async def _obey(self, command: Taken) -> None:
        try:
            await self._tell(command.kind, command.payload)
        except Exception as error:  # whatever it is, an agent that cannot be told anything is gone
            log.exception("driver_failed", session=self.session_id, command=command.kind)
            await self._said.put(
                AgentDied(f"The agent could not be told anything any more: {error}")
            )

    async def _tell(self, kind: Kind, payload: dict[str, Any]) -> None:
        if kind == Kind.PROMPT:
            if self._clearing is not None and not self._clearing.done():
                self._clearing.cancel()
                # what is started from now on is not to be ended
                await self._driver.end_background()
            self._quiet.clear()
            await self._driver.prompt(payload["content"])
        elif kind == Kind.DECIDE:
            call_id = self._transcript.call_of(payload["tool_call_id"])
            verdict = (
                Verdict("rejected", reason=INTERRUPTED)
                if self._interrupted
                else Verdict(payload["decision"], payload["modifications"])
            )
            if call_id is None or not await self._driver.decide(call_id, verdict):
                log.info("decision_too_late", session=self.session_id, call=payload["tool_call_id"])
        elif self.busy:  # Kind.INTERRUPT
            self._interrupted = True
            self._watch()
            await self._driver.interrupt()
        elif kind == Kind.INTERRUPT:
            self._end_background()

    def _end_background(self) -> None:
        """End what the session's commands have left running, and for a while what they come to
        leave.
        """
        if self._clearing is None or self._clearing.done():
            self._clearing = asyncio.create_task(self._keep_ending_background())
            self._clearing.add_done_callback(self._ended)

    async def _keep_ending_background(self) -> None:
        for _ in range(BACKGROUND_LOOKS):
            await self._driver.end_background()
            await asyncio.sleep(BACKGROUND_SECONDS)

    def _watch(self) -> None:
        """An agent that does not yield is ended (D40)."""
        if self._watchdog is None or self._watchdog.done():
            self._watchdog = asyncio.create_task(self._end_if_it_goes_on())

    async def _end_if_it_goes_on(self) -> None:
        try:
            async with asyncio.timeout(limits.INTERRUPT_SECONDS):
                await self._quiet.wait()
        except TimeoutError:
            self._over(
                self,
                Over(
                    "paused",
                    "The agent did not stop when it was told to, and was ended.",
                    interrupted=True,
                ),
            )


async def close(driver: Driver, session_id: str) -> None:
    """Close a driver, for which it has limits.AGENT_CLOSE_SECONDS; what is left then ends with the
    bridge.
    """
    try:
        async with asyncio.timeout(limits.AGENT_CLOSE_SECONDS):
            await driver.close()
    except Exception:  # whatever it is, the session must be brought to its end
        log.exception("driver_not_closed", session=session_id)
