"""Check whether the bridge may go on with a session, and free it (D67).

The bridge never begins to write a transcript while it can see another writer, and what it cannot
see counts as one. All that can be checked is checked before a program is ended.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import NamedTuple

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import disk, readers, writers
from devices_app.models import Device
from sessions_app import working_directory
from sessions_app.agents import ownership, registry
from sessions_app.agents.continuing import NO_AGENT, kind_of
from sessions_app.agents.driver import AgentKind
from sessions_app.agents.past.store import PastSession, Store
from sessions_app.models import Session
from sessions_app.observed import desk, processes

BUSY = "It works at the machine: wait until it is idle, or asks."
IDLE = "Its program runs at the machine. Say `take_over: end_terminal` to end that."
GONE_ON = "Its program has gone on with another session: end it at the machine."


class Found(NamedTuple):
    """Hold the agent that can go on, its record, and the real directory."""

    kind: AgentKind
    past: PastSession
    directory: str


def store_of(session: Session) -> Store | None:
    """Return the store of a session that the bridge runs or has run, else None."""
    kind = registry.KINDS.get(session.agent_type) if session.resume_id else None
    return kind.store if kind is not None else None


async def find_past(agent: str, own_id: str) -> Found:
    """Find a session of an agent's store. Raises SESS_NOT_FOUND, SESS_AT_THE_DESK."""
    missing = BridgeError("SESS_NOT_FOUND", session_id=own_id)
    kinds = [kind for kind in registry.KINDS.values() if kind.store is not None]
    kind = next((one for one in kinds if agent in (one.name, *registry.ANY)), None)
    if kind is None or kind.store is None:
        raise missing
    past = await disk.run(kind.store.place, kind.store.find, own_id)
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
    while (past := await disk.run(kind.store.place, kind.store.find, session.own_id)) is None:
        if time.monotonic() < until:
            await asyncio.sleep(limits.TRANSCRIPT_SECONDS / 10)
            continue
        words = "Its transcript cannot be read here: it is damaged, or kept elsewhere."
        raise _refused(session, words)
    await disk.run(session.working_directory, working_directory.inside, session.working_directory)
    where = await disk.run(past.directory, working_directory.inside, past.directory)
    await writers.run(ownership.check_room, device)
    return Found(kind, past, where)


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
    if why := desk.unseen(session):
        raise desk.error(session.session_id, why)
    living = desk.living(session)
    if living:
        state = await readers.run(_state_of, session)
        if state == processes.BUSY or not end:
            words = BUSY if state == processes.BUSY else IDLE
            raise desk.error(session.session_id, words, state)
    pids = {one.pid for one in living}
    named = await disk.run(store.place, store.programs)
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
    """Raise SESS_AT_THE_DESK when a program at the desk runs what is resumed."""
    if session.resume_id:
        await _check_registered(kind, session.resume_id, session.session_id)


async def _check_registered(
    kind: AgentKind, own_id: str, session_id: str, *, but: Collection[int] = ()
) -> None:
    if kind.store is not None and await _registered(kind.store, own_id) - {*but}:
        raise desk.error(session_id, desk.OTHER)


async def _registered(store: Store, own_id: str) -> set[int]:
    """Return the programs, but our own, that the registry names for a session."""
    found = await disk.run(store.place, store.programs)
    named = {pid for one, pid in found if one == own_id}
    return {pid for pid in named if pid == 0 or not desk.is_ours(pid)}
