"""The agents that run in this process: started, resumed, paused, ended; and the sessions that a
dead process left behind (D22, D34 to D36, D46).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path

import structlog
from django.db import Error as DatabaseError

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import agents as threads
from bridge_project.kernel.threads import readers
from devices_app.models import Device
from sessions_app import leases, working_directory
from sessions_app.agents import breaker, inbox, ownership, registry, transcript
from sessions_app.agents.breaker import Attempt
from sessions_app.agents.driver import CannotResume, CannotStart, Driver, Start, WillNotAsk
from sessions_app.agents.process import groups
from sessions_app.agents.registry import Kind
from sessions_app.agents.session_runner import Over, SessionRunner, close, stored
from sessions_app.agents.transcript import Lost
from sessions_app.models import Session

log = structlog.get_logger("bridge.agent")

STOPPED = "The bridge was stopped."
IDLE = "Nothing happened for half an hour."
SETTLE_POLL_SECONDS = 0.1
# before a process counts as dead: one whose database was away renews its lease at its first look
SURE_POLLS = 5


class Supervisor:
    """Owns this process's agents. Everything here runs on the event loop, but for what ``stored``
    does.
    """

    def __init__(self) -> None:
        self._running: dict[int, SessionRunner] = {}
        self._launching: dict[int, asyncio.Task[None]] = {}
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._unwatched: dict[int, float] = {}  # session → since when nobody watches it
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._looked_for_orphans = 0.0
        # sessions whose process seemed dead at the last look
        self._suspected: frozenset[tuple[int, uuid.UUID]] = frozenset()
        self._reservations = 0

    # -- the life of the process -------------------------------------------------------------------

    async def start(self) -> None:
        """Take over what a predecessor left: its agents are ended, its sessions paused."""
        registry.load()
        await asyncio.to_thread(groups.reap, leases.instance())
        await threads.run(ownership.pause_orphans, leases.current(), frozenset())
        self._loop = asyncio.get_running_loop()
        inbox.woken.append(self.wake)
        self._looked_for_orphans = time.monotonic()
        self._ticker = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """Pause every session."""
        self._loop = None
        if self.wake in inbox.woken:
            inbox.woken.remove(self.wake)
        if self._ticker is not None:
            self._ticker.cancel()
        for launch in self._launching.values():
            launch.cancel()
        for running in tuple(self._running.values()):
            self._over(running, Over("paused", STOPPED))
        await asyncio.gather(
            *self._launching.values(), *self._ending.values(), return_exceptions=True
        )

    def wake(self, session_pk: int) -> None:
        """A command has been committed; callable from any thread. If the session runs elsewhere,
        its process finds the command by looking.
        """
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake, session_pk)

    def _wake(self, session_pk: int) -> None:
        if running := self._running.get(session_pk):
            running.wake()

    # -- the life of a session ---------------------------------------------------------------------

    async def create(
        self, session_id: str | None, agent: str, directory: str, device: Device
    ) -> Session:
        """A new session whose agent is ready; if somebody else has created that id meanwhile,
        theirs.

        Raises BridgeError: AGENT_UNAVAILABLE, CIRCUIT_OPEN, the jail's, SESS_LIMIT_REACHED (nothing
        was created); AGENT_ERROR when the agent could not be started (the session is in state
        ``error``, with the reason).
        """
        self._admit()
        kind = registry.resolve(agent)
        where = await readers.run(working_directory.inside, directory)
        with self._reserving(), Attempt(kind.name, counted=kind.real) as attempt:
            session, new = await threads.run(
                ownership.reserve, leases.current(), session_id, kind.name, where, device
            )
            if not new:
                return await self.settled(session)
            await self._launch(session, kind.make(), None, attempt)
        return await self._found(session)

    async def resume(self, session: Session, device: Device) -> Session:
        """A session that was paused or in error, whose agent is ready again; one that runs, as it
        is.

        Raises BridgeError: SESS_NOT_RESUMABLE with the reason (the session stays what it was),
        SESS_LIMIT_REACHED, CIRCUIT_OPEN, SESS_CLOSED; AGENT_ERROR when the agent could not be
        started.
        """
        self._admit()
        kind, driver = await self._checked(session)
        with self._reserving(), Attempt(kind.name, counted=kind.real) as attempt:
            if not await threads.run(ownership.reserve_again, leases.current(), session.pk, device):
                return await self.settled(session)
            await self._launch(session, driver, session.resume_id or None, attempt)
        return await self._found(session)

    @contextmanager
    def _reserving(self) -> Iterator[None]:
        """A session is on record as this process's before this process knows it."""
        self._reservations += 1
        try:
            yield
        finally:
            self._reservations -= 1

    def _admit(self) -> None:
        if self._loop is None:
            raise BridgeError("AGENT_UNAVAILABLE", "The bridge is stopping.")

    async def _checked(self, session: Session) -> tuple[Kind, Driver]:
        """What is to run a session again. Raises SESS_NOT_RESUMABLE."""
        try:
            kind = registry.resolve(session.agent_type)
            await readers.run(working_directory.inside, session.working_directory)
        except BridgeError as error:
            raise BridgeError(
                "SESS_NOT_RESUMABLE",
                f"The session cannot be resumed: {error.message}",
                session_id=session.session_id,
            ) from None
        driver = kind.make()
        if not (driver.can_resume and session.resume_id) and await readers.run(
            ownership.was_told, session
        ):
            why = (
                "its agent has said nothing by which it could go on"
                if driver.can_resume
                else f"the agent {kind.name} cannot resume"
            )
            raise BridgeError(
                "SESS_NOT_RESUMABLE",
                f"The session cannot be resumed: {why}.",
                session_id=session.session_id,
            )
        return kind, driver

    async def settled(self, session: Session) -> Session:
        """The session when whoever starts its agent has done so. Raises AGENT_ERROR or
        SESS_NOT_RESUMABLE, as they were told.
        """
        deadline = time.monotonic() + limits.AGENT_START_SECONDS + limits.AGENT_CLOSE_SECONDS
        while (  # noqa: ASYNC110 - another process sets no event here
            (found := await self._found(session)).owner is not None
            and found.status != Session.Status.ACTIVE
            and time.monotonic() < deadline
        ):
            await asyncio.sleep(SETTLE_POLL_SECONDS)
        if found.kind == Session.Kind.BRIDGE and found.status in (
            Session.Status.PAUSED,
            Session.Status.ERROR,
        ):
            code = "AGENT_ERROR" if found.status == Session.Status.ERROR else "SESS_NOT_RESUMABLE"
            raise BridgeError(code, found.reason, session_id=found.session_id)
        return found

    async def _found(self, session: Session) -> Session:
        return await readers.run(ownership.found, session.pk)

    # -- starting ----------------------------------------------------------------------------------

    async def _launch(
        self, session: Session, driver: Driver, resume_id: str | None, attempt: Attempt
    ) -> None:
        task = self._launching[session.pk] = asyncio.create_task(
            self._launched(session, driver, resume_id, attempt), context=Context()
        )  # the agent outlives the request that the logs name here
        task.add_done_callback(lambda done: self._launch_over(session.pk, done))
        try:
            await asyncio.shield(task)  # it goes on when the phone that asked vanishes
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise BridgeError("SESS_NOT_ACTIVE", STOPPED, session_id=session.session_id) from None

    def _launch_over(self, session_pk: int, task: asyncio.Task[None]) -> None:
        del self._launching[session_pk]
        if not task.cancelled():
            task.exception()  # whoever waits is told; the phone may be gone

    async def _launched(
        self, session: Session, driver: Driver, resume_id: str | None, attempt: Attempt
    ) -> None:
        owner = leases.current()
        try:
            async with asyncio.timeout(limits.AGENT_START_SECONDS):
                await self._without(session.pk)
                await driver.start(
                    Start(session.session_id, Path(session.working_directory), resume_id)
                )
            await stored(transcript.ready, session.pk, owner, driver.asks)
        except asyncio.CancelledError:
            await close(driver, session.session_id)
            await stored(transcript.pause, session.pk, owner, STOPPED)
            raise
        except Lost:
            attempt.succeeded()
            await close(driver, session.session_id)
            raise BridgeError("SESS_CLOSED", session_id=session.session_id) from None
        except Exception as error:  # noqa: BLE001 - whatever it is, an agent that did not start is one that failed to
            await close(driver, session.session_id)
            raise await self._not_started(session, attempt, error) from None
        attempt.succeeded()
        running = self._running[session.pk] = SessionRunner(
            session.pk, session.session_id, driver, owner, self._over
        )
        running.start()
        log.info(
            "agent_started",
            session=session.session_id,
            agent=session.agent_type,
            resumed=resume_id is not None,
        )

    async def _without(self, session_pk: int) -> None:
        """Of a session that this process had lost and has got back, the agent from before is ended
        first, and says nothing more.
        """
        if running := self._running.get(session_pk):
            self._over(running, Over("lost"))
        if ending := self._ending.get(session_pk):
            await asyncio.wait({ending})

    async def _not_started(
        self, session: Session, attempt: Attempt, error: Exception
    ) -> BridgeError:
        """Write down why, and the answer for whoever asked."""
        reason = str(error)
        if isinstance(error, TimeoutError):
            reason = f"The agent {session.agent_type} was not ready within {limits.AGENT_START_SECONDS:g} seconds."
        elif not isinstance(error, CannotStart):
            log.error("driver_failed", session=session.session_id, exc_info=error)
            reason = f"The agent {session.agent_type} could not be started: {error}"
        log.warning(
            "agent_not_started", session=session.session_id, agent=session.agent_type, reason=reason
        )
        resumable = isinstance(error, CannotResume)
        # what is settled by its modes is no failure that passes
        if not resumable and not isinstance(error, WillNotAsk):
            attempt.failed()
        try:
            await stored(
                transcript.release if resumable else transcript.broken,
                session.pk,
                leases.current(),
                reason,
            )
        except Lost:
            return BridgeError("SESS_CLOSED", session_id=session.session_id)
        code = (
            "SESS_NOT_RESUMABLE"
            if resumable
            else "AGENT_UNAVAILABLE"
            if isinstance(error, WillNotAsk)
            else "AGENT_ERROR"
        )
        return BridgeError(code, reason, session_id=session.session_id)

    # -- ending ------------------------------------------------------------------------------------

    def _over(self, running: SessionRunner, over: Over) -> None:
        if self._running.get(running.session_pk) is running:
            del self._running[running.session_pk]
            self._unwatched.pop(running.session_pk, None)
            task = self._ending[running.session_pk] = asyncio.create_task(self._end(running, over))
            task.add_done_callback(lambda _: self._forget(running.session_pk, task))

    def _forget(self, session_pk: int, task: asyncio.Task[None]) -> None:
        if self._ending.get(session_pk) is task:
            del self._ending[session_pk]
        if not task.cancelled() and (error := task.exception()):
            log.error("session_not_ended", exc_info=error)

    async def _end(self, running: SessionRunner, over: Over) -> None:
        log.info("agent_ended", session=running.session_id, how=over.how, reason=over.reason)
        await running.stop()
        pk, owner = running.session_pk, leases.current()
        try:
            if over.how == "paused":
                notice = (
                    None
                    if over.reason == STOPPED
                    else "error"
                    if over.interrupted
                    else "agent_idle"
                )
                await stored(
                    transcript.pause,
                    pk,
                    owner,
                    over.reason,
                    finish="stop" if over.interrupted else "error",
                    notice=notice,  # type: ignore[arg-type]
                )
            elif over.how == "failed":
                await stored(transcript.broken, pk, owner, over.reason)
            elif over.how == "expired":
                await stored(transcript.expire, pk, owner)
            elif running.died:
                agent = (await readers.run(ownership.found, pk)).agent_type
                if any(kind.name == agent and kind.real for kind in registry.kinds()):
                    breaker.of(agent).failed()
        except Lost:
            log.info("session_was_taken", session=running.session_id)

    # -- what time does ----------------------------------------------------------------------------

    async def _tick(self) -> None:
        away = False
        while True:
            await asyncio.sleep(limits.POLL_SECONDS)
            try:
                await self._look()
                away = False
            except DatabaseError as error:
                self._suspected = frozenset()  # the others could not renew their leases either
                if not away:
                    log.warning("agents_wait_for_database", error=error.__class__.__name__)
                away = True
            except Exception:
                log.exception("look_failed")

    async def _look(self) -> None:
        """Commands that no bell told of, sessions that nobody watches, and sessions whose process
        is gone.
        """
        now = time.monotonic()
        if self._running:
            looked_at = tuple(self._running.values())
            found = await readers.run(ownership.look, leases.current(), tuple(self._running))
            for running in looked_at:
                self._seen(running, found)
        if now - self._looked_for_orphans > (
            SURE_POLLS * limits.POLL_SECONDS if self._suspected else limits.LEASE_RENEWAL_SECONDS
        ):
            self._looked_for_orphans = now
            known = (
                None
                if self._reservations
                else frozenset({*self._running, *self._launching, *self._ending})
            )
            self._suspected = await threads.run(
                ownership.pause_suspects, leases.current(), known, self._suspected
            )

    def _seen(self, running: SessionRunner, found: ownership.Look) -> None:
        pk = running.session_pk
        if pk not in found.held:
            self._over(running, Over("lost"))
            return
        if pk in found.waiting:
            running.wake()
        self._age(
            running,
            time.monotonic(),
            watched=pk in found.watched,
            used=running.busy or pk in found.waiting,
        )

    def _age(self, running: SessionRunner, now: float, *, watched: bool, used: bool) -> None:
        """Close what nobody has watched for the grace time, pause what nobody has used; a turn in
        progress is waited for (D35).

        The clock is the monotonic one, which stands still while the machine sleeps.
        """
        if watched:
            self._unwatched.pop(running.session_pk, None)
        elif (
            now - self._unwatched.setdefault(running.session_pk, now)
            >= conf.bridge_session_grace_seconds
            and not used
        ):
            return self._over(
                running, Over("expired", "Nobody has watched the session for the grace time.")
            )
        if now - running.used_at > limits.AGENT_IDLE_SECONDS and not used:
            self._over(running, Over("paused", IDLE))
        return None


supervisor = Supervisor()
