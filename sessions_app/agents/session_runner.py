"""Run one session: log its agent's events, pass commands on (D35, D38, D40)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import agent_writers, disk
from sessions_app import attachments
from sessions_app.agents import inbox
from sessions_app.agents.breaker import Breaker
from sessions_app.agents.driver import Attached, NotOffered, NotTaken, Verdict
from sessions_app.agents.events import (
    AgentDied,
    ApprovalAsked,
    ChoiceAnswered,
    Chunk,
    Event,
    OffersChanged,
    StoppedAsking,
    ToolSucceeded,
    TurnEnded,
    TurnSilent,
    ends_prompt,
)
from sessions_app.agents.host.client import HostedDriver
from sessions_app.agents.offers import NOT_OFFERED
from sessions_app.agents.sanitize import coalesce
from sessions_app.agents.session_writer import OwnershipLost, SessionLog
from sessions_app.approvals.rules.matching import judge
from sessions_app.log.tail import tail
from sessions_app.models import Command, Session

log = structlog.get_logger("bridge.agent")
DECIDED_TOO_LATE = "The turn was interrupted before this decision came."
DID_NOT_STOP = "The agent did not stop when it was told to, and was ended."
FAULT = "The bridge failed while it ran the agent; its log says how."
# After an interrupt an agent ends its own commands in its own time, and does not say what they
# leave running: so the bridge makes several passes.
BACKGROUND_PASSES, BACKGROUND_SECONDS = 10, 0.3


# Why a session's run is over. "died": the agent ended, which the log already says; "released": the
# session was ended, or another process has it; "stuck": the agent did not stop when told to;
# "expired": nobody has watched it for the grace time; "left": its agent goes on without a bridge.
How = Literal["left", "stopped", "idle", "stuck", "failed", "died", "released", "expired"]


class SessionRunner:
    """Run one session's agent: write its events to the log, give it commands.

    When the run must end it calls ``end``, which calls ``stop``. ``end`` is given this runner, how
    its run is over, and the reason for a person.
    """

    def __init__(
        self,
        session: Session,
        driver: HostedDriver,
        breaker: Breaker,
        end: Callable[[SessionRunner, How, str], None],
    ) -> None:
        self.session_pk = session.pk
        self.session_id = session.session_id
        self.shared = session.shared  # the desk's: it is joined, and left (D80)
        self._directory = session.working_directory
        self.driver = driver
        self.breaker = breaker
        self._end = end
        self._session_log = SessionLog(session)
        self._wake = asyncio.Event()
        self._interrupted = self._session_log.interrupted
        self.busy = self._session_log.prompted or self._interrupted  # a turn runs
        self._ending = False  # the turn has ended, and its end is being stored
        self._stopping = False
        # the agent ended by itself; its session may have no owner any more
        self.died = False
        self._watchdog: asyncio.TimerHandle | None = None  # ends an agent that does not stop
        self._cleaner: asyncio.Task[None] | None = None
        self._choosing: asyncio.Task[None] | None = None  # the newest choice of an option
        self.used_at = time.monotonic()
        self.unwatched_since: float | None = None
        self._explained_at = 0.0  # when silence was last reported

    def start(self) -> None:
        """Begin to write events and to take commands."""
        self._writer, self._commander = self._task(self._write()), self._task(self._command())
        loop = asyncio.get_running_loop()
        inbox.runners[self.session_pk] = partial(loop.call_soon_threadsafe, self._wake.set)
        if self._interrupted:
            self._watch()
        self._wake.set()

    def wake(self) -> None:
        """Read the inbox: a command may be waiting."""
        self._wake.set()

    @property
    def in_use(self) -> bool:
        """Return whether a turn runs, or a call outside one."""
        return self.busy or self._session_log.acts

    def explain_silence(self) -> None:
        """Report a turn that has been silent for long, once for each silence."""
        now, last_activity = time.monotonic(), max(self.used_at, self.driver.events.last_activity)
        silent = now - last_activity > limits.TURN_SILENCE_SECONDS
        if self.busy and silent and last_activity > self._explained_at:
            self._explained_at = now
            self.driver.events.put(TurnSilent())

    async def stop(self, *, leave: bool = False) -> None:
        """End the agent, and store what it has reported, within a bounded time.

        ``leave``: its host goes on, for the next process.
        """
        self._stopping = True
        inbox.runners.pop(self.session_pk, None)
        for work in (self._commander, self._watchdog, self._cleaner, self._choosing):
            if work is not None:
                work.cancel()
        if leave:
            self.driver.leave()
        else:
            await close(self.driver, self.session_id)
        self.driver.events.close()
        # the database may be slow, or away
        await asyncio.wait({self._writer}, timeout=limits.AGENT_CLOSE_SECONDS)
        self._writer.cancel()

    def _task(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, OwnershipLost):
            self._end(self, "released", "")
        else:
            log.error("agent_task_failed", session=self.session_id, exc_info=error)
            self._end(self, "failed", FAULT)

    # -- from the agent to the log -----------------------------------------------------------------

    async def _write(self) -> None:
        """Write the first event at once, then what comes within STREAM_COALESCE_SECONDS."""
        written, events = 0.0, self.driver.events
        while await events.wait():
            wait = written + limits.STREAM_COALESCE_SECONDS - time.monotonic()
            if wait > 0 and not self._stopping:
                await asyncio.sleep(wait)
            await self._write_batch(events.take(), events.taken)
            self.driver.stored(events.taken)
            written = time.monotonic()

    async def _write_batch(self, batch: list[Event], number: int) -> None:
        kinds = {type(event) for event in batch}
        self._ending = any(map(ends_prompt, batch))
        if any(isinstance(event, StoppedAsking) and event.interrupted for event in batch):
            # outside a turn nothing shows that it has stopped: it is ended
            self._interrupted = self.busy = True
            self._watch()
        if AgentDied in kinds and not self._stopping:
            self.died = True
        if self._interrupted and self._ending:
            # whoever sees the end of the turn finds its commands ended
            await self.driver.end_background()
            # a turn that was interrupted has stopped, whatever the agent calls it (D40)
            batch = [
                replace(event, finish_reason="stop", error="", interrupted=True)
                if isinstance(event, TurnEnded)
                else event
                for event in batch
            ]
        batch = [await self._judged(event) for event in batch]
        shown = [event for event in batch if isinstance(event, Chunk | ToolSucceeded)]
        if pictures := [picture for event in shown for picture in event.pictures]:
            # before the transaction: nobody waits for the disk
            await asyncio.to_thread(attachments.write_pictures, self.session_pk, pictures)
        await agent_writers.retry(self._session_log.write, coalesce(batch), number, busy=self.busy)
        tail.changes += OffersChanged in kinds
        if kinds != {TurnSilent}:
            self.used_at = time.monotonic()
        if self._ending:
            if any(isinstance(event, TurnEnded) and not event.error for event in batch):
                self.breaker.answered()
            if self._interrupted:
                self._clean()
            self._interrupted = self.busy = self._ending = False
            if self._watchdog is not None:
                self._watchdog.cancel()
                self._watchdog = None
            self.wake()
        for event in batch:
            if isinstance(event, AgentDied):
                self._end(self, "died", event.reason)

    async def _judged(self, event: Event) -> Event:
        """Add to a call that asks which rules would cover it, as the files are now.

        Where several options allow it a person chooses, whatever rules there are. A directory that
        does not answer in time judges nothing, so the call asks.
        """
        if not isinstance(event, ApprovalAsked) or event.options:
            return event
        try:
            async with asyncio.timeout(limits.RULE_SECONDS):
                judgement = await disk.run(
                    self._directory, judge, event.call, Path(self._directory)
                )
        except (BridgeError, OSError, TimeoutError):
            return event
        return replace(event, judgement=judgement)

    # -- from the inbox to the agent ---------------------------------------------------------------

    async def _command(self) -> None:
        # what a former process had taken, and could not hand on
        received = self.driver.received
        for left in await agent_writers.retry(self._session_log.not_received, received):
            await self._try_to_obey(left)
        while True:
            await self._wake.wait()
            self._wake.clear()
            while command := await agent_writers.retry(self._session_log.take, busy=self.busy):
                self.used_at = time.monotonic()
                await self._try_to_obey(command)

    async def _try_to_obey(self, command: Command) -> None:
        try:
            await self._obey(command)
        except Exception as error:  # whatever it is, an agent that hears nothing is gone
            log.exception("driver_failed", session=self.session_id, command=command.kind)
            self.driver.events.put(AgentDied(f"The agent takes no more input: {error}"))

    async def _obey(self, command: Command) -> None:
        payload = json.loads(command.payload)
        if command.kind == inbox.Kind.PROMPT:
            self.busy = True
            if self._choosing is not None:  # what was chosen before holds for this prompt
                await asyncio.wait({self._choosing})
            if self._cleaner is not None and not self._cleaner.done():
                self._cleaner.cancel()  # what is started from now on is not to be ended
                await self.driver.end_background()
            await self._give(command.pk, payload)
        elif command.kind == inbox.Kind.STEER:
            await self._give(command.pk, payload, steering=payload["message_id"])
        elif command.kind == inbox.Kind.DECIDE:
            call_id = self._session_log.call_of(payload["tool_call_id"])
            # a command of an earlier version has no reason and no option
            said = payload.get("reason") or "", payload.get("option_id")
            verdict = Verdict(payload["decision"], payload["modifications"], *said)
            if self._interrupted:
                verdict = Verdict("rejected", reason=DECIDED_TOO_LATE)
            if call_id is None:
                log.info("decision_too_late", session=self.session_id, call=payload["tool_call_id"])
            else:
                self.driver.decide(call_id, verdict, command.pk)
        elif command.kind == inbox.Kind.SET:
            chosen = payload["option_id"], payload["value"]
            self._choosing = self._task(self._choose(command.pk, *chosen, after=self._choosing))
        else:
            await self.interrupt(command.pk)

    async def _give(
        self, key: int, payload: dict[str, Any], *, steering: str | None = None
    ) -> None:
        # a command of an earlier version has no attachments
        attached = [self._attached(one) for one in payload.get("attachments", ())]
        await self.driver.give(payload["content"], attached, key, steering=steering)

    def _attached(self, given: dict[str, Any]) -> Attached:
        names = ("attachment_id", "name", "type", "given")
        path = attachments.path_of(self.session_pk, given["attachment_id"])
        return Attached(**{name: given[name] for name in names}, path=path)

    async def _choose(
        self, command_pk: int, option_id: str, value: str, *, after: asyncio.Task[None] | None
    ) -> None:
        """Have the agent take the value of an option, and report the answer (D69).

        In a task of its own: no decision waits for it.
        """
        if after is not None:
            await asyncio.wait({after})
        answer = ChoiceAnswered(command_pk)
        try:
            await self.driver.choose(option_id, value, command_pk)
        except NotOffered:
            answer = ChoiceAnswered(command_pk, "PROTO_INVALID_MESSAGE", NOT_OFFERED)
        except NotTaken as error:
            answer = ChoiceAnswered(command_pk, "AGENT_ERROR", str(error))
        self.driver.events.put(answer)

    async def interrupt(self, key: int = 0) -> None:
        """Stop the turn, or a call outside one, and what the agent's commands left (D40)."""
        if self.busy:
            self._interrupted = True
            self._watch()
        if self.busy or self._session_log.acts or self.shared:
            await self.driver.interrupt(key)
        if not self.busy:
            self._clean()

    def _clean(self) -> None:
        """End what the session's commands have left running; look again for a while."""
        if self._cleaner is None or self._cleaner.done():
            self._cleaner = self._task(self._keep_cleaning())

    async def _keep_cleaning(self) -> None:
        for _ in range(BACKGROUND_PASSES):
            await self.driver.end_background()
            await asyncio.sleep(BACKGROUND_SECONDS)

    def _watch(self) -> None:
        """End an agent that goes on after an interrupt (D40)."""
        if self._watchdog is None:
            loop = asyncio.get_running_loop()
            self._watchdog = loop.call_later(limits.INTERRUPT_SECONDS, self._end_stuck)

    def _end_stuck(self) -> None:
        # the turn's end may wait for the database
        if not self._ending and not self.driver.events.has_end:
            self._end(self, "stuck", DID_NOT_STOP)


async def close(driver: HostedDriver, session_id: str) -> None:
    """Close a driver within AGENT_CLOSE_SECONDS; what is left is ended then."""
    try:
        async with asyncio.timeout(limits.AGENT_CLOSE_SECONDS):
            await driver.close()
    except Exception:  # whatever it is, the session must be brought to its end
        log.exception("driver_not_closed", session=session_id)
