"""Await an agent's start, store how it went; find what can resume (D35, D48, D59)."""

import asyncio
import time
from dataclasses import dataclass

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import agent_writers, disk, readers
from sessions_app import session_view, working_directory
from sessions_app.agents import choosing, ownership, registry
from sessions_app.agents.breaker import Breaker
from sessions_app.agents.driver import AgentKind, CannotStart, with_error_output
from sessions_app.agents.host.client import HostedDriver, HostFault
from sessions_app.agents.session_runner import close
from sessions_app.agents.session_writer import OwnershipLost
from sessions_app.models import Session

log = structlog.get_logger("bridge.agent")

STOPPED = "The bridge was stopped."
SETTLE_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Launch:
    """Hold one start of a session's agent, and its failure notification's id."""

    session: Session
    driver: HostedDriver
    breaker: Breaker
    failure_id: str


async def find_kind_to_resume(session: Session) -> AgentKind:
    """Return the kind of agent that can resume a session. Raises SESS_NOT_RESUMABLE."""
    why = ""
    try:
        kind = registry.resolve(session.agent_type)
        directory = session.working_directory
        await disk.run(directory, working_directory.inside, directory)
        if not session.resume_id and await readers.run(ownership.was_prompted, session):
            why = "its agent cannot continue an earlier session."
    except BridgeError as error:
        gone = f"The directory {session.working_directory} is not there any more."
        why = gone if error.code == "FILE_NOT_FOUND" else error.message
    if why:
        words = f"The session cannot be resumed: {why}"
        raise BridgeError("SESS_NOT_RESUMABLE", words, session_id=session.session_id) from None
    return kind


async def start_agent(launch: Launch, begun: asyncio.Task[None]) -> None:
    """Await ``begun``, which starts the agent; mark its session as active.

    Raises BridgeError when that fails, having written the state down, CancelledError when it is
    cancelled; the driver is closed then.
    """
    session, driver, breaker = launch.session, launch.driver, launch.breaker
    try:
        async with asyncio.timeout(limits.AGENT_START_SECONDS):
            await begun
        await choosing.choose_again(driver, session)
        known = (driver.path, driver.asks, driver.offers, driver.picture_bytes, driver.history)
        await agent_writers.retry(ownership.activate, session.pk, *known)
    except asyncio.CancelledError:
        await close(driver, session.session_id)
        raise
    except OwnershipLost:
        breaker.started()
        await close(driver, session.session_id)
        raise await readers.run(ownership.start_error, session.pk) from None
    except Exception as error:  # noqa: BLE001 - any exception means that it did not start
        await close(driver, session.session_id)
        raise await _not_started(launch, error) from None
    breaker.started()
    about = {"session": session.session_id, "agent": session.agent_type}
    log.info("agent_started", **about, resumed=session.resume_id != "")


async def _not_started(launch: Launch, error: Exception) -> BridgeError:
    """Store why an agent did not start, and return the error for whoever asked."""
    session, agent = launch.session, launch.session.agent_type
    reason, code = str(error), "AGENT_ERROR"
    if isinstance(error, CannotStart):
        code = error.code
    elif isinstance(error, TimeoutError):
        seconds = limits.AGENT_START_SECONDS
        reason = f"The agent {agent} was not ready within {seconds:g} seconds."
    elif isinstance(error, HostFault):  # which has logged it
        reason = f"The agent {agent} could not be started: {error}"
    else:
        log.error("driver_failed", session=session.session_id, exc_info=error)
        why = getattr(error, "strerror", None) or error
        reason = f"The agent {agent} could not be started: {why}"
    if code != "AGENT_UNAVAILABLE":
        reason = with_error_output(reason, launch.driver.error_output)
    log.warning("agent_not_started", session=session.session_id, agent=agent, reason=reason)
    if code == "AGENT_ERROR":
        launch.breaker.failed()
    forgotten = code == "SESS_NOT_RESUMABLE"
    try:
        resumed = session.status != Session.Status.CREATED
        if (forgotten and resumed) or session.status == Session.Status.CLOSED:  # which stays so
            await agent_writers.retry(ownership.release, session.pk, reason, forgotten=forgotten)
        else:
            await agent_writers.retry(
                ownership.end_run, session.pk, "failed", reason, launch.failure_id
            )
    except OwnershipLost:
        return await readers.run(ownership.start_error, session.pk)
    return BridgeError(code, reason, session_id=session.session_id)


async def wait_for_start(session: Session) -> Session:
    """Wait until the session has started or failed to; return the session.

    Raises AGENT_ERROR, SESS_NOT_RESUMABLE or SESS_NOT_ACTIVE, like the start itself.
    """
    deadline = time.monotonic() + limits.AGENT_START_SECONDS + limits.AGENT_CLOSE_SECONDS
    while (  # noqa: ASYNC110 - another process sets no event here
        session_view.is_starting(found := await readers.run(ownership.get_session, session.pk))
        and time.monotonic() < deadline
    ):
        await asyncio.sleep(SETTLE_POLL_SECONDS)
    if found.reason == ownership.CANCELLED:
        raise await readers.run(ownership.start_error, session.pk)
    if found.kind == Session.Kind.BRIDGE and session_view.is_at_rest(found):
        failed = found.status == Session.Status.ERROR
        code = "AGENT_ERROR" if failed else "SESS_NOT_RESUMABLE"
        raise BridgeError(code, found.reason, session_id=found.session_id)
    return found
