"""Check whether the bridge may go on with a session, and free it (D67).

The bridge never begins to write a transcript while it can see another writer, and what it cannot
see counts as one. All that can be checked is checked before a program is ended.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import psutil

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import disk, readers, writers
from devices_app.models import Device
from sessions_app import working_directory
from sessions_app.agents import ownership, registry, shared
from sessions_app.agents.continuing import NO_AGENT, kind_of, unseen, with_store
from sessions_app.agents.driver import AgentKind
from sessions_app.agents.past.store import ANY_SESSION, PastSession, Store
from sessions_app.models import Session
from sessions_app.observed import desk, processes

BUSY = "It works at the machine: wait until it is idle, or asks."
IDLE = "Its program runs at the machine and must be ended first."
MAY_RUN_IT = (
    "A program of this agent runs at the machine, and nothing tells which session it has open: "
    "end it there first."
)
GONE_ON = "Its program has gone on with another session: end it at the machine."


class Found(NamedTuple):
    """Hold the agent that can go on, its record, and the real directory.

    ``joins``: at the desk, which has it (D80); known by `check`.
    """

    kind: AgentKind
    past: PastSession
    directory: str
    joins: bool = False


def store_of(session: Session) -> Store | None:
    """Return the store of a session that the bridge runs or has run, else None."""
    kind = registry.KINDS.get(session.agent_type) if session.resume_id else None
    return kind.store if kind is not None else None


async def find_past(agent: str, own_id: str, place: str) -> Found:
    """Find a session of an agent's store, which may have been begun in ``place``.

    Raises SESS_NOT_FOUND, SESS_AT_THE_DESK, AGENT_UNAVAILABLE.
    """
    missing = BridgeError("SESS_NOT_FOUND", session_id=own_id)
    kind = with_store(agent)
    if kind is None or kind.store is None:
        raise missing
    if not kind.store.names_sessions:
        registry.resolve(kind.name)  # it is started to be asked
    past = await kind.store.find(own_id, place)
    if past is None:
        raise missing
    try:
        where = await disk.run(past.directory, working_directory.inside, past.directory)
    except BridgeError:
        raise missing from None
    if kind.problem() is not None:
        registry.resolve(kind.name)  # which says why
    await _check_registered(kind, own_id, own_id)
    return Found(kind, past, where)


async def check(session: Session, agent: str, device: Device) -> Found:
    """Check all but the programs that run an observed session.

    Raises SESS_NOT_RESUMABLE with the reason, AGENT_UNAVAILABLE, the jail's errors,
    SESS_LIMIT_REACHED, AUTH_FAILED.
    """
    kind = kind_of(session)
    if kind is None or kind.store is None or agent not in (kind.name, *registry.ANY):
        raise _refused(session, NO_AGENT)
    registry.resolve(kind.name)
    until = time.monotonic() + limits.TRANSCRIPT_SECONDS
    place = session.working_directory
    while (past := await kind.store.find(session.own_id, place)) is None:
        if time.monotonic() < until:
            await asyncio.sleep(limits.TRANSCRIPT_SECONDS / 10)
            continue
        words = "Its transcript cannot be read here: it is damaged, or kept elsewhere."
        raise _refused(session, words)
    await disk.run(place, working_directory.inside, place)
    where = await disk.run(past.directory, working_directory.inside, past.directory)
    joins = await shared.is_joinable(kind, past.own_id)
    await writers.run(partial(ownership.check_room, device, joins=joins))
    return Found(kind, past, where, joins)


def _refused(session: Session, why: str) -> BridgeError:
    words = f"The session cannot be continued here: {why[0].lower()}{why[1:]}"
    return BridgeError("SESS_NOT_RESUMABLE", words, session_id=session.session_id)


@asynccontextmanager
async def from_the_desk(session: Session, kind: AgentKind, *, end: bool) -> AsyncIterator[bool]:
    """Hold an observed session that no program runs; ``end`` ends one that does.

    Yields whether one was ended. Raises SESS_AT_THE_DESK, with what the program does, when one runs
    it, or may.
    """
    store = kind.store
    assert store is not None
    session = await readers.run(ownership.get_session, session.pk)
    if why := unseen(session, kind):
        raise desk.error(session.session_id, why)
    living = desk.living(session)
    if living:
        state = await readers.run(_state_of, session)
        if state == processes.BUSY or not end:
            words = BUSY if state == processes.BUSY else IDLE
            raise desk.error(session.session_id, words, state)
    pids = {one.pid for one in living}
    named = await store.programs()
    if any(pid in pids and one != session.own_id for one, pid in named):
        raise desk.error(session.session_id, GONE_ON)
    await _check_registered(kind, session.own_id, session.session_id, but=pids)
    desk.taking.add(session.session_id)
    try:
        try:
            for process in living:
                desk.check(process, store.is_program)
            for process in living:
                await desk.end(process, store.is_program)
        except desk.CannotEnd as error:
            state = await readers.run(_state_of, session)
            raise desk.error(session.session_id, str(error), state) from None
        await _check_registered(kind, session.own_id, session.session_id)
        yield bool(living)
    finally:
        desk.taking.discard(session.session_id)


def _state_of(session: Session) -> str:
    """Return what the programs at the desk do: busy if one is, else idle or waiting."""
    found = [processes.registered_state(session.own_id, one) for one in desk.living(session)]
    turn = str(ownership.get_session(session.pk).turn)
    words = [one[0] for one in found if one is not None]
    words = words or [processes.BUSY if turn == Session.Turn.WORKING else turn]
    return processes.BUSY if processes.BUSY in words else words[-1]


async def check_no_writer(session: Session, kind: AgentKind) -> None:
    """Raise SESS_AT_THE_DESK when a program at the desk runs what is resumed.

    Of a session that was begun here, a program that may run any other is no sign.
    """
    certain = kind.store is not None and kind.store.names_sessions
    if session.resume_id and (certain or session.began_elsewhere):
        await _check_registered(kind, session.resume_id, session.session_id)


async def _check_registered(
    kind: AgentKind, own_id: str, session_id: str, *, but: Collection[int] = ()
) -> None:
    if kind.store is None:
        return
    found = await _at_the_desk(kind.store)
    if any(one in (own_id, ANY_SESSION) and pid not in but for one, pid in found):
        words = desk.OTHER if kind.store.names_sessions else MAY_RUN_IT
        raise desk.error(session_id, words)


async def running(store: Store) -> set[str]:
    """Return the sessions that programs at the desk run now, or ANY_SESSION."""
    return {one for one, _ in await _at_the_desk(store)}


async def _at_the_desk(store: Store) -> list[tuple[str, int]]:
    """Return the programs that run now, but those that a bridge has started."""
    found = await store.programs()
    others = [(one, pid) for one, pid in found if pid == 0 or not desk.is_ours(pid)]
    return [(one, pid) for one, pid in others if pid == 0 or psutil.pid_exists(pid)]
