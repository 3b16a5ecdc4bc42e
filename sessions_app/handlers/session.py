"""session_start, session_end, replay_request (D7, D22, D28, D29, D31, D35)."""

from __future__ import annotations

import json

from django.utils import timezone

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import readers, writers
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.catalogue import encode_replay
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.types import SessionEndReason, is_uuid, parse_timestamp
from devices_app import audit
from devices_app.models import Device
from sessions_app import working_directory
from sessions_app.agents import transcript
from sessions_app.agents.supervisor import supervisor
from sessions_app.log import reader, retention
from sessions_app.log.outbox import outbox
from sessions_app.log.row import size_of
from sessions_app.log.tail import tail
from sessions_app.models import Feed, LogHead, LogRow, Session
from sessions_app.observed import sessions as observed_sessions
from sessions_app.socket import idempotency, inbound, presence
from sessions_app.socket.consumer import BridgeConsumer
from sessions_app.socket.dispatch import handles


async def session_of(
    socket: BridgeConsumer, message: ClientMessage, *, acting: bool = False
) -> Session:
    """The session that a message names, checked in D7's order: unknown, closed, not joined.

    A closed observed session takes what only looks; ``acting``: the message is for its agent.
    """
    session = await readers.run(observed_sessions.find, message.payload.session_id)
    if session is None:
        raise BridgeError("SESSION_NOT_FOUND", session_id=message.payload.session_id)
    if session.status == Session.Status.CLOSED and (acting or session.kind == Session.Kind.BRIDGE):
        raise BridgeError("SESS_CLOSED", session_id=session.session_id)
    socket.talk.admit_to(session, message.type)
    return session


# -- joining ---------------------------------------------------------------------------------------


@handles(c.SessionStart)
async def session_start(socket: BridgeConsumer, message: ClientMessage) -> None:
    """Join a session at once; starting an agent takes its time, beside the conversation."""
    payload: c.SessionStart = message.payload
    session = (
        await readers.run(observed_sessions.find, payload.session_id)
        if payload.session_id
        else None
    )
    if session is None and payload.session_id and payload.resume:
        raise BridgeError("SESS_NOT_FOUND", session_id=payload.session_id)
    if session is None or _must_wait(session, resume=payload.resume):
        work = _create if session is None and payload.session_id is None else _start
        socket.spawn(inbound.beside(socket, message, work))
    else:
        await _join(socket, message, session)


def _must_wait(session: Session, *, resume: bool) -> bool:
    """Whether an agent is being started, or is to be."""
    resting = session.kind == Session.Kind.BRIDGE and session.status in (
        Session.Status.PAUSED,
        Session.Status.ERROR,
    )
    return session.status == Session.Status.CREATED or (resting and resume)


async def _create(socket: BridgeConsumer, message: ClientMessage) -> None:
    """A new session, once however often this message comes; joined each time (D31)."""
    frame = await idempotency.once(
        socket, message, lambda: idempotency.answer_of(socket, message, _created)
    )
    answer = json.loads(frame)
    if answer["type"] != "session_ready":
        return await socket.send_text(frame)
    session = await readers.run(observed_sessions.find, answer["payload"]["session_id"])
    if session is None:
        raise BridgeError("SESSION_NOT_FOUND")
    return await _join(socket, message, session)


async def _created(socket: BridgeConsumer, message: ClientMessage) -> s.SessionReady:
    payload: c.SessionStart = message.payload
    assert socket.device is not None
    return await _ready(
        await supervisor.create(None, payload.agent, payload.working_directory, socket.device)
    )


async def _start(socket: BridgeConsumer, message: ClientMessage) -> None:
    """A session whose id the client knows, or has chosen: resumed, waited for, or created with that
    id.
    """
    payload: c.SessionStart = message.payload
    assert socket.device is not None and payload.session_id is not None
    session = await readers.run(observed_sessions.find, payload.session_id)
    if session is None:
        session = await supervisor.create(
            payload.session_id, payload.agent, payload.working_directory, socket.device
        )
    elif session.status == Session.Status.CREATED:
        session = await supervisor.settled(session)
    elif _must_wait(session, resume=payload.resume):
        session = await supervisor.resume(session, socket.device)
    await _join(socket, message, session)


async def _join(socket: BridgeConsumer, message: ClientMessage, session: Session) -> None:
    """``session_ready``, then what the log holds of it for this device (D28)."""
    assert socket.delivery is not None
    if session.kind == Session.Kind.BRIDGE and session.status == Session.Status.CLOSED:
        raise BridgeError("SESS_CLOSED", session_id=session.session_id)
    if socket.connection_id is None:
        return  # the phone vanished while its agent was started
    await writers.run(presence.join, socket.connection_id, session)
    if session.session_id not in socket.talk.joined:
        socket.talk.joined[session.session_id] = session.feed_id
        await tail.notifier.join(session.feed_id)
    buffer_upto = (
        await readers.run(reader.head_seq) if session.kind == Session.Kind.BRIDGE else None
    )
    await socket.reply(message, await _ready(session))
    socket.delivery.join(session.feed_id, buffer_upto=buffer_upto)


async def _ready(session: Session) -> s.SessionReady:
    branch = await readers.run(working_directory.branch_of, session.working_directory)
    return s.SessionReady(
        session_id=session.session_id,
        agent=session.agent_type,
        working_directory=session.working_directory,
        branch=branch,
        asks=session.asks,
    )


# -- leaving and ending ----------------------------------------------------------------------------


@handles(c.SessionEnd)
async def session_end(socket: BridgeConsumer, message: ClientMessage) -> None:
    """End a session that the bridge runs, which all devices are told; leave an observed one: hooks
    cannot end the agent's.

    The answer tells only the one who asked.
    """
    session = await session_of(socket, message)
    if session.kind == Session.Kind.BRIDGE:
        await writers.run(_end, session.pk, message.payload.reason, socket.device)
    else:
        await _leave(socket, session)
    await socket.reply(
        message, c.SessionEnd(session_id=session.session_id, reason=message.payload.reason)
    )


def _end(session_pk: int, reason: SessionEndReason, device: Device | None) -> None:
    with outbox() as box:
        page = transcript.Page(box, session_pk, {}, None)
        if page.session.status == Session.Status.CLOSED:
            raise BridgeError("SESS_CLOSED", session_id=page.session.session_id)
        transcript.close(page, reason)
        audit.record(
            "session_end", device=device, session_id=page.session.session_id, reason=reason
        )


async def _leave(socket: BridgeConsumer, session: Session) -> None:
    assert socket.connection_id is not None and socket.delivery is not None
    socket.delivery.leave(session.feed_id)
    socket.talk.joined.pop(session.session_id, None)
    await tail.notifier.leave(session.feed_id)
    await writers.run(presence.leave, socket.connection_id, session)


# -- looking back ----------------------------------------------------------------------------------


@handles(c.ReplayRequest)
async def replay_request(socket: BridgeConsumer, message: ClientMessage) -> None:
    session = await session_of(socket, message)
    frames, complete = await readers.run(
        _replay, session.feed_id, message.payload.after_id, message.payload.since
    )
    await socket.send_frame(
        encode_replay(session.session_id, frames, complete=complete, id=message.id)
    )


def _replay(feed_id: int, after_id: str | None, since: str | None) -> tuple[list[str], bool]:
    """The feed's messages after one, or since a moment, or all; and whether none of those asked for
    has been discarded.

    As many of the newest as fit in one message. An ``after_id`` that is no longer known has been
    discarded, with what came before it.
    """
    now, total = timezone.now(), LogHead.objects.values_list("bytes", flat=True).get(pk=1)
    feed = Feed.objects.get(pk=feed_id)
    rows = retention.kept(feed, total, now).order_by("seq")
    known = (
        LogRow.objects.filter(feed=feed, message_id=after_id)
        if after_id and is_uuid(after_id)
        else LogRow.objects.none()
    )
    after = known.values_list("seq", flat=True).first()
    if after is not None:
        rows = rows.filter(seq__gt=after)
        complete = reader.gap(feed, after, total, now) is None
    elif after_id is None and since is not None:
        moment = parse_timestamp(since)
        times = rows.values_list("seq", "created_at")
        oldest, first = times.first(), times.filter(created_at__gt=moment).first()
        # the oldest kept is from before it: nothing after it can be missing
        reaches_back = oldest is not None and oldest[1] <= moment
        # all from there on, whatever a clock that was set has stamped them with
        rows = rows.filter(seq__gte=first[0]) if first else rows.none()
        complete = reaches_back or reader.gap(feed, 0, total, now) is None
    else:
        complete = after_id is None and reader.gap(feed, 0, total, now) is None
    frames: list[str] = []
    size = 0
    for frame in rows.order_by("-seq").values_list("frame", flat=True).iterator(chunk_size=100):
        size += size_of(frame) + 1
        if size > conf.max_message_bytes - 4096:
            complete = False
            break
        frames.append(frame)
    return frames[::-1], complete
