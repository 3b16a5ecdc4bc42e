"""Who runs which session: reserved before an agent is started, and taken from a process that is
gone (D22, D35, D36, D46).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import structlog
from django.db.models import Q

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from devices_app import audit
from devices_app.models import Device
from sessions_app import leases
from sessions_app.agents import inbox, transcript
from sessions_app.agents.transcript import Lost
from sessions_app.log.outbox import outbox
from sessions_app.models import Feed, LogRow, Process, Session
from sessions_app.observed import sessions as observed_sessions
from sessions_app.socket import presence

log = structlog.get_logger("bridge.agent")

DIED = "The bridge's process ended."


def found(session_pk: int) -> Session:
    """The session as it is now. Raises BridgeError SESSION_NOT_FOUND."""
    session = Session.objects.select_related("feed").filter(pk=session_pk).first()
    if session is None:
        raise BridgeError("SESSION_NOT_FOUND")
    return session


def was_told(session: Session) -> bool:
    """Whether the agent was ever given a prompt, whose answer's stream then began; one that was not
    can begin afresh, with what waits for it.
    """
    return (
        session.feed.dropped_seq > 0
        or LogRow.objects.filter(feed=session.feed_id, type="stream_start").exists()
    )


def reserve(
    owner: uuid.UUID, session_id: str | None, agent: str, directory: str, device: Device
) -> tuple[Session, bool]:
    """A new session in state ``created``, and True; or the one that has the id already. Raises
    SESS_LIMIT_REACHED.
    """
    with outbox() as box:
        known = observed_sessions.find(session_id) if session_id else None
        if known is not None:
            return known, False
        _check_limit()
        feed = Feed.objects.create(kind=Feed.Kind.BRIDGE)
        session = Session(
            session_id=session_id or str(uuid.uuid4()),
            kind=Session.Kind.BRIDGE,
            feed=feed,
            agent_type=agent,
            working_directory=directory,
        )
        session.status, session.owner, session.created_at, session.last_activity_at = (
            Session.Status.CREATED,
            owner,
            box.now,
            box.now,
        )
        observed_sessions.entitle(session, "")
        session.save()
        audit.record(
            "session_start",
            device=device,
            session_id=session.session_id,
            subject=agent,
            directory=directory,
        )
        return session, True


def reserve_again(owner: uuid.UUID, session_pk: int, device: Device) -> bool:
    """Take a session that is paused or in error; False when it runs, or somebody is at it already.
    Raises SESS_CLOSED, SESS_LIMIT_REACHED.
    """
    with outbox():
        session = found(session_pk)
        if session.status == Session.Status.CLOSED:
            raise BridgeError("SESS_CLOSED", session_id=session.session_id)
        if session.status in Session.RUNS or session.owner is not None:
            return False
        _check_limit()
        session.owner = owner
        session.save(update_fields=["owner"])
        audit.record(
            "session_resume",
            device=device,
            session_id=session.session_id,
            subject=session.agent_type,
        )
        return True


def _check_limit() -> None:
    """The head of the log is held, so nobody else takes the last place meanwhile."""
    if (
        Session.objects.filter(
            Q(status__in=Session.RUNS) | Q(owner__isnull=False), kind=Session.Kind.BRIDGE
        ).count()
        >= conf.bridge_max_sessions
    ):
        raise BridgeError(
            "SESS_LIMIT_REACHED",
            f"{conf.bridge_max_sessions} sessions run already; end one, then try again.",
        )


def pause_orphans(process_id: uuid.UUID, known: Collection[int] | None) -> int:
    """Pause what processes held that are gone; returns how many.

    ``known`` are the sessions that this process runs: what it holds besides is paused too. None: it
    cannot tell at this moment.
    """
    return _pause(_strays(process_id, known))


def _strays(process_id: uuid.UUID, known: Collection[int] | None) -> list[tuple[int, uuid.UUID]]:
    return [
        (pk, owner)
        for pk, owner in _orphans(process_id)
        if owner != process_id or (known is not None and pk not in known)
    ]


def _pause(orphans: Iterable[tuple[int, uuid.UUID]]) -> int:
    paused = 0
    for session_pk, owner in orphans:
        try:
            transcript.pause(session_pk, owner, DIED)
        except Lost:
            continue  # another process was quicker
        paused += 1
        log.warning("session_orphaned", session=session_pk, owner=str(owner))
    return paused


def pause_suspects(
    process_id: uuid.UUID,
    known: Collection[int] | None,
    suspected: Collection[tuple[int, uuid.UUID]],
) -> frozenset[tuple[int, uuid.UUID]]:
    """Pause those of the orphans that were ``suspected`` at an earlier look; returns the others,
    which are now.
    """
    found = _strays(process_id, known)
    _pause(orphan for orphan in found if orphan in suspected)
    return frozenset(orphan for orphan in found if orphan not in suspected)


def _orphans(process_id: uuid.UUID) -> list[tuple[int, uuid.UUID]]:
    """What is held by processes that do not live, or by this one."""
    living = (
        Process.objects.filter(lease_until__gt=leases.clock()).exclude(pk=process_id).values("pk")
    )
    held = Session.objects.filter(kind=Session.Kind.BRIDGE, owner__isnull=False).exclude(
        owner__in=living
    )
    return [(pk, owner) for pk, owner in held.values_list("pk", "owner") if owner is not None]


@dataclass(frozen=True, slots=True)
class Look:
    """Of the sessions that a process runs: those for which a command waits, those that somebody has
    joined, on whichever process, and those still its own.
    """

    waiting: set[int]
    watched: set[int]
    held: set[int]


def look(process_id: uuid.UUID, session_pks: Collection[int]) -> Look:
    held = Session.objects.filter(pk__in=list(session_pks), owner=process_id)
    return Look(
        inbox.waiting(session_pks),
        presence.followed(session_pks),
        set(held.values_list("pk", flat=True)),
    )
