"""session_start, session_end, replay_request (D7, D22, D28, D29)."""

from __future__ import annotations

from django.utils import timezone

from bridge_project import agents
from bridge_project.conf import conf
from bridge_project.database import readers, writers
from bridge_project.dispatch import handles
from bridge_project.errors import BridgeError
from bridge_project.protocol import client as c
from bridge_project.protocol import server as s
from bridge_project.protocol.catalogue import encode_replay
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.types import is_uuid, parse_timestamp
from sessions_app import lifecycle, log, presence, reading, workdir
from sessions_app.consumers import BridgeConsumer
from sessions_app.hub import hub
from sessions_app.models import Feed, LogHead, LogRow, Session
from sessions_app.rows import size_of


async def session_of(socket: BridgeConsumer, message: ClientMessage) -> Session:
    """The session that a message names, checked in D7's order: unknown, then not joined; who must not act on a closed one asks its status."""
    session = await readers.run(lifecycle.find, message.payload.session_id)
    if session is None:
        raise BridgeError("SESSION_NOT_FOUND", session_id=message.payload.session_id)
    socket.talk.admit_to(session, message.type)
    return session


@handles(c.SessionStart)
async def session_start(socket: BridgeConsumer, message: ClientMessage) -> None:
    payload: c.SessionStart = message.payload
    session = await readers.run(lifecycle.find, payload.session_id) if payload.session_id else None
    if session is None:
        if payload.session_id and payload.resume:
            raise BridgeError("SESS_NOT_FOUND", session_id=payload.session_id)
        raise agents.unavailable(payload.agent)
    assert socket.connection_id is not None and socket.delivery is not None
    await writers.run(presence.join, socket.connection_id, session)
    if session.session_id not in socket.talk.joined:
        socket.talk.joined[session.session_id] = session.feed_id
        await hub.bell.join(session.feed_id)
    branch = await readers.run(workdir.branch_of, session.working_directory)
    ready = s.SessionReady(session_id=session.session_id, agent=session.agent_type, working_directory=session.working_directory, branch=branch)
    await socket.reply(message, ready)
    socket.delivery.join(session.feed_id)


@handles(c.SessionEnd)
async def session_end(socket: BridgeConsumer, message: ClientMessage) -> None:
    """Leave an observed session: hooks cannot end the agent's. The answer tells only the one who asked."""
    session = await session_of(socket, message)
    assert socket.connection_id is not None and socket.delivery is not None
    socket.delivery.leave(session.feed_id)
    socket.talk.joined.pop(session.session_id, None)
    await hub.bell.leave(session.feed_id)
    await writers.run(presence.leave, socket.connection_id, session)
    await socket.reply(message, c.SessionEnd(session_id=session.session_id, reason=message.payload.reason))


@handles(c.ReplayRequest)
async def replay_request(socket: BridgeConsumer, message: ClientMessage) -> None:
    session = await session_of(socket, message)
    frames, complete = await readers.run(_replay, session.feed_id, message.payload.after_id, message.payload.since)
    await socket.send_frame(encode_replay(session.session_id, frames, complete=complete, id=message.id))


def _replay(feed_id: int, after_id: str | None, since: str | None) -> tuple[list[str], bool]:
    """The feed's messages after one, or since a moment, or all; and whether none of those asked for has been discarded.

    As many of the newest as fit in one message. An ``after_id`` that is no longer known has been discarded, with what came before it.
    """
    now, total = timezone.now(), LogHead.objects.values_list("bytes", flat=True).get(pk=1)
    feed = Feed.objects.get(pk=feed_id)
    rows = reading.kept(feed, total, now).order_by("seq")
    known = LogRow.objects.filter(feed=feed, message_id=after_id) if after_id and is_uuid(after_id) else LogRow.objects.none()
    after = known.values_list("seq", flat=True).first()
    if after is not None:
        rows = rows.filter(seq__gt=after)
        complete = log.gap(feed, after, total, now) is None
    elif after_id is None and since is not None:
        moment = parse_timestamp(since)
        times = rows.values_list("seq", "created_at")
        oldest, first = times.first(), times.filter(created_at__gt=moment).first()
        reaches_back = oldest is not None and oldest[1] <= moment  # the oldest kept is from before it: nothing after it can be missing
        rows = rows.filter(seq__gte=first[0]) if first else rows.none()  # all from there on, whatever a clock that was set has stamped them with
        complete = reaches_back or log.gap(feed, 0, total, now) is None
    else:
        complete = after_id is None and log.gap(feed, 0, total, now) is None
    frames: list[str] = []
    size = 0
    for frame in rows.order_by("-seq").values_list("frame", flat=True).iterator(chunk_size=100):
        size += size_of(frame) + 1
        if size > conf.max_message_bytes - 4096:
            complete = False
            break
        frames.append(frame)
    return frames[::-1], complete
