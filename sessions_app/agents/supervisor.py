"""Start, resume, pause and end this process's agents (D22, D34 to D36, D46)."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from functools import partial
from pathlib import Path

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import agent_writers, disk, readers
from devices_app.models import Device
from sessions_app import leases, working_directory
from sessions_app.agents import breaker, ownership, registry, shared, starting, taking_over
from sessions_app.agents.driver import AgentKind, HistoryMessage
from sessions_app.agents.host import sockets
from sessions_app.agents.host.client import HostedDriver, HostFault, forker
from sessions_app.agents.process import groups
from sessions_app.agents.session_runner import How, SessionRunner
from sessions_app.agents.session_writer import OwnershipLost
from sessions_app.agents.starting import STOPPED, Launch
from sessions_app.models import Session

log = structlog.get_logger("bridge.agent")

IDLE = "Nothing happened for half an hour."
UNWATCHED = "No device was in the session for some minutes."
# Until a process counts as dead: one whose database was away must renew its lease first.
SURE_POLLS = 5


class Supervisor:
    """Own this process's agents, on the event loop."""

    def __init__(self) -> None:
        self._running: dict[int, SessionRunner] = {}
        self._launching: dict[int, asyncio.Task[None]] = {}
        # the part of each launch that may be cancelled: what follows writes how it went
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._ticker: asyncio.Task[None] | None = None
        self._orphans_checked_at = 0.0
        # Sessions whose process seemed dead at the last look, or that are on record as this
        # process's, which did not know them yet.
        self._suspected: frozenset[ownership.Owned] = frozenset()
        self.keeps_agents = False  # for the next process, when this one stops (D79)

    # -- the life of the process -------------------------------------------------------------------

    @asynccontextmanager
    async def run_agents(self) -> AsyncIterator[None]:
        """Go on with sessions that dead processes left, or pause them; check regularly.

        At the end pause or leave the sessions of this process, and cancel its starts.
        """
        registry.load()
        named = await agent_writers.run(ownership.find_hosts)
        await asyncio.to_thread(_end_strangers, named)
        await self._inherit(await agent_writers.run(ownership.find_orphans, ()))
        left = await agent_writers.run(ownership.find_hosts)
        await asyncio.to_thread(groups.reap, leases.instance(), set(map(sockets.id_of, left)))
        self._orphans_checked_at = time.monotonic()
        self._ticker = asyncio.create_task(self._tick())
        yield
        self._ticker.cancel()
        self._ticker = None
        for launch in self._launching.values():
            launch.cancel()
        kept = self.keeps_agents or await asyncio.to_thread(sockets.keep_mark().exists)
        how: How = "left" if kept else "stopped"
        for runner in tuple(self._running.values()):
            self._end(runner, how, STOPPED)
        tasks = (*self._launching.values(), *self._ending.values())
        await asyncio.gather(*tasks, return_exceptions=True)
        forker.close()

    async def _inherit(self, orphans: Collection[ownership.Owned]) -> None:
        """Go on with sessions of dead processes, or pause those without an agent."""
        await asyncio.gather(*(self._inherit_one(*one) for one in orphans))

    async def _inherit_one(self, session_pk: int, owner: uuid.UUID) -> None:
        session = await agent_writers.run(ownership.inherit, session_pk, owner)
        if session is None:  # another process was quicker
            return
        about = {"session": session.session_id, "owner": str(owner)}
        try:
            if not session.host:
                raise HostFault("its agent had not begun")
            driver = HostedDriver(session.agent_type)
            await driver.take_over(session.host, session.host_seq)
        except HostFault as error:
            with suppress(OwnershipLost):
                await agent_writers.retry(ownership.pause, session_pk, ownership.DIED)
                log.warning("session_orphaned", **about, why=str(error))
            return
        log.info("session_inherited", **about)
        kind = registry.KINDS.get(session.agent_type)
        counted = breaker.of(session.agent_type, counted=kind is not None and kind.real)
        runner = SessionRunner(session, driver, counted, self._end)
        self._running[session_pk] = runner
        runner.start()

    # -- creating and resuming ---------------------------------------------------------------------

    async def create(
        self, session_id: str | None, agent: str, directory: str, device: Device, failure_id: str
    ) -> Session:
        """Create a session and start its agent; or return the session with this id.

        It returns when the agent is ready. ``failure_id`` is that of the notification which says
        that it did not start. Raises BridgeError: AGENT_UNAVAILABLE, CIRCUIT_OPEN, the jail's,
        SESS_LIMIT_REACHED (nothing was created); AGENT_ERROR when the agent could not be started
        (the session is in state ``error``, with the reason).
        """
        self._check_running()
        kind = registry.resolve(agent)
        where = await disk.run(directory, working_directory.inside, directory)  # its disk may hang
        reserve = partial(ownership.reserve, session_id, kind.name, where, device)
        return await self._run(kind, failure_id, reserve)

    async def resume(self, session: Session, device: Device, failure_id: str) -> Session:
        """Start a resting session's agent again; return the session (D60).

        One whose agent runs is returned as it is. Raises BridgeError: SESS_NOT_RESUMABLE with the
        reason (the session stays what it was), SESS_LIMIT_REACHED, CIRCUIT_OPEN, SESS_CLOSED;
        AGENT_ERROR when the agent could not be started.
        """
        self._check_running()
        kind = await starting.find_kind_to_resume(session)
        if not (joins := await shared.is_joinable(kind, session.resume_id)):
            await taking_over.check_no_writer(session, kind)
        await self._end_lost(session.pk)
        reserve = partial(ownership.reserve_again, session.pk, device, joins=joins)
        return await self._run(kind, failure_id, reserve)

    async def begin_past(
        self, agent: str, session_id: str, directory: str, device: Device, failure_id: str
    ) -> Session:
        """Begin a session that only the agent's own store knows, where it was begun (D67).

        One that the desk has, and lets others in, is joined (D80).
        ``directory``: where the device says that was. Raises as `create`; SESS_NOT_FOUND for one
        that is not there, or outside the roots, SESS_AT_THE_DESK while a program runs it.
        """
        self._check_running()
        kind, past, where, _ = await taking_over.find_past(agent, session_id, directory)
        joins = await shared.is_joinable(kind, past.own_id)
        about = (session_id, kind.name, where, device, past)
        reserve = partial(ownership.reserve, *about, joins=joins)
        return await self._run(kind, failure_id, reserve)

    async def take_over(
        self, session: Session, agent: str, device: Device, failure_id: str, *, end: bool
    ) -> Session:
        """Go on with an observed session under the bridge (D67).

        ``end``: a program that runs it is ended. Raises as `resume`, and SESS_AT_THE_DESK.
        """
        self._check_running()
        kind, past, where, joins = await taking_over.check(session, agent, device)
        about = (session.pk, kind.name, past, where, device)
        if joins:
            reserve = partial(ownership.reserve_observed, *about, joins=True)
            return await self._run(kind, failure_id, reserve)
        async with taking_over.from_the_desk(session, kind, end=end) as ended:
            reserve = partial(ownership.reserve_observed, *about, joins=False, ended=ended)
            return await self._run(kind, failure_id, reserve)

    async def give_back(self, session: Session, device: Device | None) -> None:
        """Stop the agent of a session that goes on at its desk (D67).

        Raises SESS_CLOSED.
        """
        await agent_writers.run(ownership.give_back, session.pk, device)
        if launch := self._starting.get(session.pk):
            launch.cancel()
        await self._end_former(session.pk)

    def _check_running(self) -> None:
        if self._ticker is None:
            raise BridgeError("AGENT_UNAVAILABLE", "The bridge is stopping.")

    async def _run(
        self, kind: AgentKind, failure_id: str, reserve: Callable[[], tuple[Session, bool]]
    ) -> Session:
        """Reserve a session and start its agent; wait for a start that is under way."""
        attempted = breaker.of(kind.name, counted=kind.real)
        with attempted.attempt():
            session, ours = await agent_writers.run(reserve)
            if ours:
                driver = HostedDriver(kind.name, joins=session.shared)
                await self._launch(Launch(session, driver, attempted, failure_id))
        if not ours:
            return await starting.wait_for_start(session)
        return await readers.run(ownership.get_session, session.pk)

    def history(self, session_pk: int) -> Sequence[HistoryMessage]:
        """Return the history that an agent reported when resumed; callable in any thread."""
        runner = self._running.get(session_pk)
        return runner.driver.history if runner is not None else ()

    async def interrupt(self, session_id: str) -> None:
        """Interrupt an agent of this process directly, without the inbox."""
        for runner in tuple(self._running.values()):
            if runner.session_id == session_id:
                await runner.interrupt()

    # -- starting ----------------------------------------------------------------------------------

    async def _launch(self, launch: Launch) -> None:
        """Start the agent in a task that goes on when the phone that asked vanishes."""
        session = launch.session
        if former := self._launching.get(session.pk):  # cancelled, and not over yet
            if session.pk in self._starting:
                self._starting[session.pk].cancel()
            await asyncio.wait({former})
        task = self._launching[session.pk] = asyncio.create_task(
            self._start(launch), context=Context()
        )  # the agent outlives the request that the logs name here
        task.add_done_callback(lambda done: self._launched(session.pk, done))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise await readers.run(ownership.start_error, session.pk) from None

    def _launched(self, session_pk: int, task: asyncio.Task[None]) -> None:
        del self._launching[session_pk]
        # the check for orphans may have run between its reservation and its launch
        self._suspected = frozenset(one for one in self._suspected if one[0] != session_pk)
        if not task.cancelled():
            task.exception()  # whoever waits is told; the phone may be gone

    async def _start(self, launch: Launch) -> None:
        session = launch.session
        begun = self._starting[session.pk] = asyncio.create_task(self._begin(launch))
        try:
            await starting.start_agent(launch, begun)
        except asyncio.CancelledError:
            if self._ticker is None:  # else whoever cancelled it has written that down
                with suppress(OwnershipLost):
                    await agent_writers.retry(ownership.pause, session.pk, STOPPED)
            raise
        finally:
            del self._starting[session.pk]
        runner = SessionRunner(session, launch.driver, launch.breaker, self._end)
        self._running[session.pk] = runner
        runner.start()

    async def _begin(self, launch: Launch) -> None:
        """Start a session's driver after the former one's end."""
        session = launch.session
        await self._end_former(session.pk)
        await launch.driver.start(Path(session.working_directory), session.resume_id or None)

    async def _end_lost(self, session_pk: int) -> None:
        """End the agent of a session that this process no longer owns, before a resume.

        Otherwise its remaining output would be written to the resumed session.
        """
        if session_pk in self._running or session_pk in self._ending:
            found = await readers.run(ownership.find_in_use, [session_pk])
            if session_pk not in found.held:
                await self._end_former(session_pk)

    async def _end_former(self, session_pk: int) -> None:
        """End the former agent of a session that this process had lost and has got back."""
        if runner := self._running.get(session_pk):
            self._end(runner, "released")
        if ending := self._ending.get(session_pk):
            await asyncio.wait({ending})

    # -- ending ------------------------------------------------------------------------------------

    def _end(self, runner: SessionRunner, how: How, reason: str = "") -> None:
        pk = runner.session_pk
        if self._running.get(pk) is runner:
            del self._running[pk]
            task = self._ending[pk] = asyncio.create_task(self._end_session(runner, how, reason))
            task.add_done_callback(lambda _: self._ended(pk, task))

    def _ended(self, session_pk: int, task: asyncio.Task[None]) -> None:
        if self._ending.get(session_pk) is task:
            del self._ending[session_pk]
        if not task.cancelled() and (error := task.exception()):
            log.error("session_not_ended", exc_info=error)

    async def _end_session(self, runner: SessionRunner, how: How, reason: str) -> None:
        log.info("agent_ended", session=runner.session_id, how=how, reason=reason)
        if how == "left" or (
            how == "released"
            and await agent_writers.retry(
                ownership.is_elsewhere, runner.session_pk, runner.driver.path
            )
        ):
            await runner.stop(leave=True)
            return
        if how == "released" and runner.in_use:  # whoever has it now may write at once
            await groups.within(limits.INTERRUPTED_SECONDS, runner.driver.interrupt())
        await runner.stop()
        pk = runner.session_pk
        try:
            match how:
                case "stopped":
                    await agent_writers.retry(ownership.pause, pk, reason)
                case "idle" | "stuck" | "expired" | "failed":
                    await agent_writers.retry(ownership.end_run, pk, how, reason)
                case _ if runner.died and not runner.shared:
                    runner.breaker.failed(died=True)
        except OwnershipLost:
            log.info("session_was_taken", session=runner.session_id)

    # -- checking ----------------------------------------------------------------------------------

    async def _tick(self) -> None:
        unreachable = False
        while True:
            await asyncio.sleep(limits.POLL_SECONDS)
            try:
                await self._check_all()
                unreachable = False
            except STORAGE_ERRORS as error:
                self._suspected = frozenset()  # the others could not renew their leases either
                for runner in self._running.values():
                    runner.unwatched_since = None  # nobody could come back meanwhile
                if not unreachable:
                    log.warning("agents_wait_for_database", error=error.__class__.__name__)
                unreachable = True
            except Exception:
                log.exception("check_failed")

    async def _check_all(self) -> None:
        """Find commands, unwatched sessions, and sessions of dead processes."""
        now = time.monotonic()
        if self._running or self._starting:
            runners, starts = tuple(self._running.values()), dict(self._starting)
            ours = (*self._running, *starts)
            found = await readers.run(ownership.find_in_use, ours)
            for runner in runners:
                self._check(runner, found)
            for pk in starts.keys() - found.held:
                starts[pk].cancel()
        wait = SURE_POLLS * limits.POLL_SECONDS if self._suspected else limits.LEASE_RENEWAL_SECONDS
        if now - self._orphans_checked_at > wait:
            self._orphans_checked_at = now
            known = frozenset({*self._running, *self._launching, *self._ending})
            orphans = await agent_writers.run(ownership.find_orphans, known)
            sure, self._suspected = orphans & self._suspected, orphans - self._suspected
            await self._inherit(sure)

    def _check(self, runner: SessionRunner, found: ownership.InUse) -> None:
        """End a session that is lost, expired or idle (D35), but not during a turn.

        By the monotonic clock, which stands still while the machine sleeps.
        """
        pk, now = runner.session_pk, time.monotonic()
        if pk not in found.held:
            self._end(runner, "released")
            return
        if pk in found.waiting:
            runner.wake()
        runner.explain_silence()
        used = runner.in_use or pk in found.waiting
        if pk in found.watched:
            runner.unwatched_since = None
        elif runner.unwatched_since is None:
            runner.unwatched_since = now
        elif now - runner.unwatched_since >= conf.bridge_session_grace_seconds and not used:
            self._end(runner, "expired", UNWATCHED)
            return
        if now - runner.used_at > limits.AGENT_IDLE_SECONDS and not used:
            self._end(runner, "idle", IDLE)


def _end_strangers(named: Collection[str]) -> None:
    """End the hosts of this bridge that no session names: their starts were cut off."""
    sockets.keep_mark().unlink(missing_ok=True)
    for path in sockets.found():
        if str(path) not in named:
            HostedDriver.end(path)


supervisor = Supervisor()
