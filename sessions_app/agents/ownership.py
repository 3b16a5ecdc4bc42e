"""Decide which process runs a session, and store its state.

A session is reserved before its agent is started, and taken from a process that is gone (D22, D35,
D36, D46).
"""

import uuid
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import structlog
from django.db.models import Q

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.catalogue import encode
from devices_app import audit, pairing
from devices_app.models import Device
from sessions_app import leases, notifications, session_view
from sessions_app.agents import inbox, session_writer, shared
from sessions_app.agents.driver import HistoryMessage
from sessions_app.agents.offers import Offers, from_text
from sessions_app.agents.past.store import PastSession
from sessions_app.agents.sanitize import storable_reason
from sessions_app.agents.session_writer import writing
from sessions_app.approvals import service as approvals
from sessions_app.log.outbox import outbox
from sessions_app.models import Feed, LogRow, Process, Session, ToolCall
from sessions_app.observed import desk
from sessions_app.observed import processes as observed_processes
from sessions_app.observed import sessions as observed_sessions
from sessions_app.socket import presence

log = structlog.get_logger("bridge.agent")

DIED = "The bridge was restarted."
CANCELLED = "Its start was cancelled."
Owned = tuple[int, uuid.UUID]  # a session and its owner


def get_session(session_pk: int) -> Session:
    """Return the session as it is now. Raises BridgeError SESSION_NOT_FOUND."""
    session = Session.objects.select_related("feed").filter(pk=session_pk).first()
    if session is None:
        raise BridgeError("SESSION_NOT_FOUND")
    return session


def closed_error(session: Session) -> BridgeError:
    """Return the error SESS_CLOSED, which says to resume it, if it can be (D60)."""
    words = "The session was closed, for no device had joined it. Resume it first."
    message = words if session_view.is_resumable(session) else ""
    return BridgeError("SESS_CLOSED", message, session_id=session.session_id)


def start_error(session_pk: int) -> BridgeError:
    """Return the error of a start that somebody has ended or cancelled."""
    session = get_session(session_pk)
    if session.status == Session.Status.CLOSED and not session.expired:
        return closed_error(session)
    why = session.reason or CANCELLED
    return BridgeError("SESS_NOT_ACTIVE", why, session_id=session.session_id)


def was_prompted(session: Session) -> bool:
    """Return whether the agent was ever prompted; else it can begin afresh."""
    answers = LogRow.objects.filter(feed=session.feed_id, type="stream_start")
    return session.titled and (session.feed.dropped_seq > 0 or answers.exists())


# -- reserving -------------------------------------------------------------------------------------


def reserve(
    session_id: str | None,
    agent: str,
    directory: str,
    device: Device,
    past: PastSession | None = None,
    *,
    joins: bool = False,
) -> tuple[Session, bool]:
    """Create a session owned by this process; return it and whether it is new.

    ``past``: one of the agent's store, which goes on here; what was before is told from its records
    (D67). ``joins``: the desk has it (D80). Raises AUTH_FAILED for a device that was revoked
    meanwhile, SESS_LIMIT_REACHED.
    """
    with outbox() as box:
        if known := observed_sessions.find(session_id):
            return known, False
        pairing.check_not_revoked(device.pk)
        _check_limit(joins=joins)
        session = Session(
            session_id=session_id or str(uuid.uuid4()),
            kind=Session.Kind.BRIDGE,
            feed=Feed.objects.create(kind=Feed.Kind.BRIDGE),
            agent_type=agent,
            working_directory=directory,
            status=Session.Status.CREATED,
            owner=leases.current(),
            shared=joins,
            created_at=box.now,
            last_activity_at=box.now,
        )
        observed_sessions.set_title(session, past.title if past else "")
        session.resume_id, session.began_elsewhere = past.own_id if past else "", bool(past)
        session.save()
        details = {"subject": agent, "directory": directory}
        audit.record("session_start", device=device, session_id=session.session_id, **details)
        return session, True


def reserve_again(session_pk: int, device: Device, *, joins: bool) -> tuple[Session, bool]:
    """Take over a session at rest; return it and whether it was taken over.

    Raises AUTH_FAILED as ``reserve``, SESS_CLOSED, SESS_LIMIT_REACHED.
    """
    with outbox():
        session = get_session(session_pk)
        if session.status == Session.Status.CLOSED and not session.expired:
            raise closed_error(session)
        if session.status in Session.RUNS or session.owner is not None:
            return session, False
        pairing.check_not_revoked(device.pk)
        _check_limit(joins=joins)
        session.owner, session.shared = leases.current(), joins
        session.save(update_fields=["owner", "shared"])
        ids = {"session_id": session.session_id, "subject": session.agent_type}
        audit.record("session_resume", device=device, **ids)
        return session, True


def reserve_observed(
    session_pk: int,
    agent: str,
    past: PastSession,
    directory: str,
    device: Device,
    *,
    joins: bool,
    ended: bool = False,
) -> tuple[Session, bool]:
    """Take over an observed session that no program runs, or join it.

    The rest is as `reserve`. ``ended``: its program was ended for it, which every device is told.
    """
    with outbox() as box:
        session = get_session(session_pk)
        if session.kind == Session.Kind.BRIDGE:  # another device was quicker
            return session, False
        if not joins and desk.living(session):  # one began meanwhile
            raise desk.error(session.session_id, desk.OTHER)
        pairing.check_not_revoked(device.pk)
        _check_limit(joins=joins)
        approvals.close_calls(box, session, by=ToolCall.DecidedBy.BRIDGE, reason="taken_over")
        session.set_turn(Session.Turn.IDLE)
        session.tasks = session.held_stop = ""
        observed_processes.end_all(session)
        session_writer.set_kind(session, Session.Kind.BRIDGE)
        session.agent_type, session.working_directory = agent, directory
        session.status, session.closed_at = Session.Status.PAUSED, None
        session.owner, session.resume_id = leases.current(), past.own_id
        session.began_elsewhere, session.expired, session.forgotten = True, False, False
        session.shared = joins
        session.last_activity_at = box.now
        session.save()
        if ended:
            words = f"{device.name} has ended its program at the machine, and goes on."
            box.append_to_all(encode(notifications.happened(session, "taken_over", words)))
        about: dict[str, Any] = {"session_id": session.session_id, "subject": agent, "ended": ended}
        audit.record("session_take_over", device=device, **about)
        return session, True


def check_room(device: Device, *, joins: bool) -> None:
    """Raise what `reserve` would raise now."""
    with outbox():
        pairing.check_not_revoked(device.pk)
        _check_limit(joins=joins)


def find_by_own_id(own_id: str) -> Session | None:
    """Return the session that the bridge runs, or ran, under the agent's id."""
    return Session.objects.filter(resume_id=own_id).select_related("feed").first()


def _check_limit(*, joins: bool) -> None:
    """Raise SESS_LIMIT_REACHED; the lock on the log's head makes the count exact."""
    if joins:
        return shared.check_limit()
    runs = Q(status__in=Session.RUNS) | Q(owner__isnull=False)
    ours = Session.objects.filter(runs, kind=Session.Kind.BRIDGE, shared=False)
    if ours.count() >= conf.bridge_max_sessions:
        words = f"{conf.bridge_max_sessions} sessions run already; end one, then try again."
        raise BridgeError("SESS_LIMIT_REACHED", words)
    return None


# -- states (D35); each raises OwnershipLost -----------------------------------------------------


def activate(
    session_pk: int,
    host: str,
    asks: bool | None,
    offers: Offers,
    picture_bytes: int,
    history: Sequence[HistoryMessage],
) -> None:
    """Mark the session as active; tell all devices if it is new or was closed.

    They are warned once when its agent does not ask, or when that is unknown (D59). ``host``: where
    its agent runs; ``offers``: what a person may choose; ``picture_bytes``: of the largest picture
    that it takes; ``history``: what the agent has kept.
    """
    with writing(session_pk, leases.current()) as writer:
        session, before = writer.session, writer.session.asks
        if session.shared:
            writer.catch_up(history)
        former, session.status, session.reason = session.status, Session.Status.ACTIVE, ""
        session.expired, session.forgotten, session.closed_at = False, False, None
        if former in (Session.Status.CREATED, Session.Status.CLOSED):
            observed_sessions.announce_start(writer.box, session)
        if former == Session.Status.CREATED:
            before = True
        session.asks, session.picture_bytes = asks, picture_bytes
        session.host, session.host_seq, session.host_state = host, 0, ""
        if former != Session.Status.CREATED and not session.shared:
            chosen = from_text(session.offers).options
            for words in filter(None, map(offers.words_of_lost, chosen)):
                writer.notify(notifications.happened(session, "chosen_lost", words))
        writer.take_offers(offers)
        if asks is not True and asks is not before:
            writer.notify(notifications.acts_without_asking(session))


def pause(session_pk: int, reason: str, owner: uuid.UUID | None = None) -> None:
    """Mark the session as paused: its process has ended, or does.

    Every device is told when the agent had not answered yet, or rules end with it.
    """
    with writing(session_pk, owner or leases.current()) as writer:
        session, cut, ruled = writer.session, writer.in_turn, writer.session.rules
        if session.status not in Session.RUNS:  # it was being resumed
            session.owner = None
            return
        if cut:
            reason = f"{reason.rstrip('.')} in the middle of a turn."
        writer.stop(Session.Status.PAUSED, reason, "session_paused")
        if cut or inbox.prompts_waiting(session_pk)[0]:
            writer.notify(notifications.happened(session, "cut_off", _why(session)))
        elif ruled:
            writer.notify(notifications.happened(session, "idle", _why(session)))


def end_run(session_pk: int, how: str, reason: str, notification_id: str = "") -> None:
    """Pause, fail or close a session whose run ended: idle, stuck, expired or failed.

    An expired one is closed, and can be resumed (D40, D60). ``notification_id``: of a failure.
    """
    with writing(session_pk, leases.current()) as writer:
        match how:
            case "expired":
                return writer.end("timeout", expired=True)
            case "failed":  # its agent did not start, or the bridge failed
                writer.stop(Session.Status.ERROR, reason, "agent_died")
                return writer.report_failure(writer.session.reason, notification_id)
            case "stuck":
                writer.stop(Session.Status.PAUSED, reason, "interrupted", "stop")
            case _:
                writer.stop(Session.Status.PAUSED, reason, "session_paused")
        return writer.notify(notifications.happened(writer.session, how, _why(writer.session)))


def _why(session: Session) -> str:
    """Return why it was paused, and what a person can do about it."""
    go_on = " Resume the session to go on." if session_view.is_resumable(session) else ""
    return f"{session.reason}{go_on}"


def give_back(session_pk: int, device: Device | None) -> None:
    """Give a session back to its desk: observed, and paused until that goes on."""
    with writing(session_pk, owner=None) as writer:
        session = writer.session
        ours = session.kind == Session.Kind.BRIDGE and not session.shared
        if not ours or session.status == Session.Status.CLOSED:
            raise BridgeError("SESS_CLOSED", session_id=session.session_id)
        writer.leave("given_back")
        session.status, session.closed_at = Session.Status.PAUSED, writer.box.now
        audit.record("session_give_back", device=device, session_id=session.session_id)


def release(session_pk: int, reason: str, *, forgotten: bool) -> None:
    """Give up a session whose resume failed; ``forgotten``: its agent lost it."""
    with writing(session_pk, leases.current()) as writer:
        writer.session.owner, writer.session.reason = None, storable_reason(reason)
        writer.session.forgotten = forgotten


def cancel_start(session_pk: int, device: Device | None) -> bool:
    """Cancel the start of a session's agent; False when none is starting.

    The process that starts it then ends it. A resumed session is again what it was, a new one is
    paused.
    """
    if not session_view.is_starting(get_session(session_pk)):
        return False
    with writing(session_pk, owner=None) as writer:
        session = writer.session
        if not session_view.is_starting(session):  # it has begun just now
            return False
        if session.status == Session.Status.CREATED:
            writer.stop(Session.Status.PAUSED, CANCELLED, "session_paused")
        session.owner, session.reason = None, CANCELLED
        audit.record("interrupt", device=device, session_id=session.session_id, start=True)
        return True


# -- sessions whose process is gone ----------------------------------------------------------------


def find_orphans(known: Collection[int]) -> frozenset[Owned]:
    """Find sessions of dead processes, and those of this one that it does not run.

    ``known``: those that it runs.
    """
    ours = leases.current()
    living = Process.objects.filter(lease_until__gt=leases.clock()).exclude(pk=ours)
    held = Session.objects.filter(kind=Session.Kind.BRIDGE, owner__isnull=False)
    found = held.exclude(owner__in=living.values("pk")).values_list("pk", "owner")
    return frozenset(
        (pk, owner) for pk, owner in found if owner and (owner != ours or pk not in known)
    )


def inherit(session_pk: int, owner: uuid.UUID) -> Session | None:
    """Take a session over from a dead process, whose agent may run (D79).

    Return None when another process was quicker.
    """
    held = Session.objects.filter(pk=session_pk, owner=owner)
    return get_session(session_pk) if held.update(owner=leases.current()) else None


def find_hosts() -> frozenset[str]:
    """Return the paths of the hosts in which sessions run."""
    return frozenset(
        Session.objects.exclude(host="").exclude(owner=None).values_list("host", flat=True)
    )


def is_elsewhere(session_pk: int, host: str) -> bool:
    """Return whether another process runs the session, in the same host."""
    held = Session.objects.filter(pk=session_pk, host=host).exclude(owner=None)
    return held.exclude(owner=leases.current()).exists()


class InUse(NamedTuple):
    """Keep the key sets: sessions with commands, with devices joined, and our own."""

    waiting: set[int]
    watched: set[int]
    held: set[int]


def find_in_use(session_pks: Collection[int]) -> InUse:
    """Find which sessions have commands, joined devices, or this process as owner."""
    held = Session.objects.filter(pk__in=list(session_pks), owner=leases.current())
    return InUse(
        inbox.waiting(session_pks),
        presence.followed(session_pks),
        set(held.values_list("pk", flat=True)),
    )
