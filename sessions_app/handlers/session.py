"""Handle the messages about a session and to its agent (D7, D22, D28 to D40)."""

import asyncio
import json
import shlex
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from bridge_project.kernel import limits
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import disk, git, readers, writers
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.catalogue import encode_replay
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.types import SessionEndReason, SessionStatus
from devices_app import audit
from devices_app.models import Device
from sessions_app import session_view, work_trees, working_directory
from sessions_app.agents import (
    choosing,
    offers,
    ownership,
    prompts,
    session_writer,
    starting,
    taking_over,
)
from sessions_app.agents.supervisor import supervisor
from sessions_app.approvals import decisions, waiting_hooks
from sessions_app.log import reader
from sessions_app.log.tail import tail
from sessions_app.models import Session
from sessions_app.observed import sessions as observed_sessions
from sessions_app.socket import dispatch, idempotency, presence
from sessions_app.socket.connection import ClientConnection, SocketRequest
from sessions_app.socket.dispatch import check_joined


async def session_of(
    connection: ClientConnection, message: ClientMessage, *, acting: bool = False
) -> Session:
    """Return the session that a message names, checked in D7's order.

    The order: unknown, closed, not joined. A closed observed session still answers messages that
    only read; ``acting``: the message is for its agent. Without having joined, any device may
    cancel a start, or end for good a session that its grace timer closed.
    """
    session = await readers.run(observed_sessions.find, message.payload.session_id)
    if session is None:
        if message.payload.session_id in connection.starting:
            check_joined(connection, message.payload.session_id, message.type)
        raise BridgeError("SESSION_NOT_FOUND", session_id=message.payload.session_id)
    if message.type in ("session_end", "session_interrupt") and session_view.is_starting(session):
        return session
    if message.type == "session_end" and session.expired:
        return session
    if session.status == Session.Status.CLOSED and (acting or session.kind == Session.Kind.BRIDGE):
        raise ownership.closed_error(session)
    check_joined(connection, session.session_id, message.type)
    return session


async def session_start(connection: ClientConnection, message: ClientMessage) -> None:
    """Join a session, at once or when its agent has started."""
    payload: c.SessionStart = message.payload
    session = await readers.run(observed_sessions.find, payload.session_id)
    if session is None and payload.session_id and payload.resume:
        session = await readers.run(ownership.find_by_own_id, payload.session_id)
    if session is None or _must_wait(session, payload):
        work = _create if session is None and payload.session_id is None else _start
        if session is None and payload.session_id:
            connection.starting.add(payload.session_id)
        connection.spawn(dispatch.guarded(connection, message, work))
    else:
        await _join(connection, message, session)


def _must_wait(session: Session, payload: c.SessionStart) -> bool:
    """Return whether the session's agent is being started, or must be."""
    taken = payload.take_over is not None and session.kind == Session.Kind.OBSERVED
    resumed = payload.resume and (taken or session_view.is_at_rest(session))
    return session.status == Session.Status.CREATED or resumed


async def _create(connection: ClientConnection, message: ClientMessage) -> None:
    """Create a session, once for repeated messages, and join it each time (D31)."""

    async def create(connection: ClientConnection, request: SocketRequest) -> s.SessionReady:
        session_id = request.own_id
        try:
            again = request.begun is not None
            made = await _new(connection, request.payload, session_id, again=again)
            return await _ready(made)
        except BridgeError:
            found = await readers.run(observed_sessions.find, session_id)
            died = request.begun is not None  # a process, while it started this session
            if not died or found is None or not session_view.is_at_rest(found):
                raise
        return await _ready(await _resumed(connection, found))

    frame = await idempotency.once(connection, message, create)
    answer = json.loads(frame)
    if answer["type"] != "session_ready":
        return await connection.send_text(frame)
    session = await readers.run(observed_sessions.find, answer["payload"]["session_id"])
    if session is None:
        raise BridgeError("SESSION_NOT_FOUND")
    return await _join(connection, message, session)


async def _new(
    connection: ClientConnection,
    payload: c.SessionStart,
    session_id: str | None,
    *,
    again: bool = False,
) -> Session:
    """Create a session; ``again``: a process may have died while it did."""
    directory = payload.working_directory
    if payload.worktree is not None:
        about = (connection.device, session_id, directory, payload.worktree, payload.trust)
        directory = await git.run(directory, work_trees.make, *about, again=again)
    what = (session_id, payload.agent, directory)
    try:
        with _notified_once(connection) as failure_id:
            return await supervisor.create(*what, connection.paired, failure_id)
    except BridgeError:
        if session_id is not None and payload.worktree is not None:
            await work_trees.remove(session_id)  # or the next try finds it there
        raise


async def _taken_over(
    connection: ClientConnection, session: Session, payload: c.SessionStart
) -> Session:
    end = payload.take_over == "end_terminal"
    with _notified_once(connection) as failure_id:
        about = (session, payload.agent, connection.paired, failure_id)
        return await supervisor.take_over(*about, end=end)


async def _begun_before(connection: ClientConnection, payload: c.SessionStart) -> Session:
    """Begin a session of the agent's own store."""
    assert payload.session_id is not None
    with _notified_once(connection) as failure_id:
        about = (payload.agent, payload.session_id, payload.working_directory)
        return await supervisor.begin_past(*about, connection.paired, failure_id)


async def _resumed(connection: ClientConnection, session: Session) -> Session:
    with _notified_once(connection) as failure_id:
        return await supervisor.resume(session, connection.paired, failure_id)


async def _start(connection: ClientConnection, message: ClientMessage) -> None:
    """Resume, wait for, or create the session with the client's id; then join it."""
    payload: c.SessionStart = message.payload
    try:
        session, resumed = await readers.run(observed_sessions.find, payload.session_id), False
        if session is None and payload.resume:
            session = await readers.run(ownership.find_by_own_id, str(payload.session_id))
        if session is None and payload.resume:
            session, resumed = await _begun_before(connection, payload), True
        elif session is None:
            session = await _new(connection, payload, payload.session_id)
        elif session.status == Session.Status.CREATED:
            session = await starting.wait_for_start(session)
        elif resumed := _must_wait(session, payload):
            if session.kind == Session.Kind.OBSERVED:
                session = await _taken_over(connection, session, payload)
            else:
                session = await _resumed(connection, session)
    finally:
        connection.starting.discard(str(payload.session_id))
    await _join(connection, message, session, resumed=resumed)


@contextmanager
def _notified_once(connection: ClientConnection) -> Iterator[str]:
    """Keep a failed start's notification from the client that gets it as its answer."""
    failure_id = str(uuid.uuid4())
    connection.delivery.withheld.add(failure_id)
    try:
        yield failure_id
    except BridgeError:
        if not connection.over:
            connection.acknowledgements.answered(failure_id)
        raise
    connection.delivery.withheld.discard(failure_id)


async def _join(
    connection: ClientConnection, message: ClientMessage, session: Session, *, resumed: bool = False
) -> None:
    """Send ``session_ready``, then the session's rows for this device (D28)."""
    if session.kind == Session.Kind.BRIDGE and session.status == Session.Status.CLOSED:
        raise ownership.closed_error(session)
    if connection.connection_id is None:
        return  # the phone vanished while its agent was started
    await writers.run(presence.join, connection.connection_id, session)
    if session.session_id not in connection.joined:
        connection.joined[session.session_id] = session.feed_id
        await tail.notifier.join(session.feed_id)
    buffer_upto = (
        await readers.run(reader.head_seq) if session.kind == Session.Kind.BRIDGE else None
    )
    connection.offered[session.session_id] = session.offered
    await connection.send_payload(await _ready(session), id=message.id)
    connection.delivery.join(session.feed_id, buffer_upto=buffer_upto, resumed=resumed)


_branch_lookups: dict[str, asyncio.Task[str]] = {}  # directory → the running look-up of its branch


async def _branch(directory: str) -> str:
    """Return a directory's branch, or an empty text while its disk hangs.

    One thread waits for that disk, however often it is asked for.
    """
    if (task := _branch_lookups.get(directory)) is None:
        task = asyncio.create_task(disk.run(directory, working_directory.branch_of, directory))
        _branch_lookups[directory] = task
        task.add_done_callback(lambda _: _branch_lookups.pop(directory))
    done, _ = await asyncio.wait({task}, timeout=limits.BRANCH_SECONDS)
    return task.result() if done else ""


async def _ready(session: Session) -> s.SessionReady:
    branch = await _branch(session.working_directory)
    store = taking_over.store_of(session)
    known = offers.from_text(session.offers)
    return s.SessionReady(
        session_id=session.session_id,
        agent=session.agent_type,
        working_directory=session.working_directory,
        branch=branch,
        session_status=cast(SessionStatus, session.status),
        asks=session.asks,
        # a person types it, and its agent has chosen the id
        resume_command=store.resume_command(shlex.quote(session.resume_id)) if store else None,
        options=[*known.options] if session.offers else None,
        commands=[*known.commands] if session.offers else None,
    )


async def session_end(connection: ClientConnection, message: ClientMessage) -> None:
    """End a session that the bridge runs; only leave an observed one.

    Hooks cannot end an observed session's agent, so only this client is answered. When the bridge
    ends a session, a row tells all devices; this client gets that row as its answer.
    """
    session, reason = await session_of(connection, message), message.payload.reason
    if session.kind == Session.Kind.OBSERVED:
        await connection.leave(session)
        answer = c.SessionEnd(session_id=session.session_id, reason=reason)
        await connection.send_payload(answer, id=message.id)
        return
    if message.payload.give_back:
        await _give_back(connection, message, session)
        return
    row_id, answers = str(uuid.uuid4()), connection.delivery.answers
    answers[row_id] = message.id  # before the row is written: it is sent as soon as it commits
    try:
        await writers.run(_end, session.pk, reason, connection.device, row_id)
    except BaseException:
        answers.pop(row_id, None)
        raise
    await work_trees.remove(session.session_id)


async def _give_back(
    connection: ClientConnection, message: ClientMessage, session: Session
) -> None:
    if taking_over.store_of(session) is None:
        words = "This agent's terminal program would not show what was said here."
        raise BridgeError("SESS_NOT_RESUMABLE", words, session_id=session.session_id)
    await supervisor.give_back(session, connection.device)
    now = await readers.run(ownership.get_session, session.pk)
    update = s.SessionUpdate(session=session_view.info_of(now))
    await connection.send_payload(update, id=message.id)


def _end(session_pk: int, reason: SessionEndReason, device: Device | None, row_id: str) -> None:
    with session_writer.writing(session_pk, owner=None) as writer:
        session_id = writer.session.session_id
        ends = session_view.is_starting(writer.session) or writer.session.expired
        if writer.session.status == Session.Status.CLOSED and not ends:
            raise BridgeError("SESS_CLOSED", session_id=session_id)
        writer.end(reason, row_id=row_id)
        audit.record("session_end", device=device, session_id=session_id, reason=reason)


async def message(connection: ClientConnection, message: ClientMessage) -> None:
    payload: c.Message = message.payload
    session = await _driven(connection, message)
    await writers.run(
        prompts.send_prompt,
        session.pk,
        payload.content,
        device=connection.device,
        message_id=message.id,
        source="device",
        row_id=idempotency.row_id_of(connection, message),
        attached=payload.attachments or (),
        not_before=payload.not_before,
        when=payload.when or "later",
    )


async def message_withdraw(connection: ClientConnection, message: ClientMessage) -> s.MessageState:
    payload: c.MessageWithdraw = message.payload
    session = await readers.run(observed_sessions.find, payload.session_id)
    if session is None:
        raise BridgeError("SESSION_NOT_FOUND", session_id=payload.session_id)
    about = (session.pk, payload.message_id)
    return await writers.run(prompts.withdraw, *about, device=connection.paired)


async def session_interrupt(connection: ClientConnection, message: ClientMessage) -> None:
    """Queue an interrupt; if that fails, stop an agent of this process all the same."""
    session_id = message.payload.session_id
    try:
        session = await _driven(connection, message)
        await writers.run(prompts.interrupt, session.pk, device=connection.device)
    except STORAGE_ERRORS:
        if session_id in connection.joined:
            await supervisor.interrupt(session_id)
        raise


async def session_set(connection: ClientConnection, message: ClientMessage) -> s.SessionOptions:
    payload: c.SessionSet = message.payload
    session = await _driven(connection, message)
    about = (payload.option_id, payload.value, connection.device)
    return await choosing.choose(session.pk, *about)


async def _driven(connection: ClientConnection, message: ClientMessage) -> Session:
    """Return the message's session, which is joined and whose agent the bridge runs."""
    session = await session_of(connection, message, acting=True)
    if session.kind != Session.Kind.BRIDGE:
        words = "This session is only observed through hooks. Answer in the agent's own terminal."
        raise BridgeError("AGENT_UNAVAILABLE", words)
    return session


async def approval_response(
    connection: ClientConnection, message: ClientMessage
) -> s.ApprovalRecorded:
    recorded, hook = await writers.run(decisions.decide, connection.paired, message.payload)
    return await waiting_hooks.deliver(recorded, hook)


async def rule_remove(connection: ClientConnection, message: ClientMessage) -> s.SessionUpdate:
    payload: c.RuleRemove = message.payload
    about = (connection.paired, payload.session_id, payload.rule_id)
    session = await writers.run(decisions.remove_rule, *about)
    return s.SessionUpdate(session=session_view.info_of(session))


async def replay_request(connection: ClientConnection, message: ClientMessage) -> None:
    session = await session_of(connection, message)
    found = await readers.run(reader.requested, session.feed_id, message.payload)
    answer = encode_replay(
        session.session_id,
        found.frames,
        complete=found.complete,
        older=found.older,
        id=message.id,
    )
    await connection.send_frame(answer)
