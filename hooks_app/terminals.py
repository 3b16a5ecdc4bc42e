"""Follow the agents in terminals where their hooks say nothing (D65).

Esc, a closed terminal and a killed program send no event. What is seen instead: silence after a
Stop that a hook may have continued, the agent's own registry of its sessions, and its processes.
"""

import asyncio
import time
from datetime import datetime, timedelta

import structlog
from django.db.models import Q

from bridge_project.kernel import failure_alerts, limits
from bridge_project.kernel.ages import ages
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.processes import lives
from bridge_project.kernel.threads import terminals
from bridge_project.protocol.catalogue import encode
from hooks_app.producer.server_forwarder import spool
from hooks_app.producer.spool import spool_status
from sessions_app import away, notifications
from sessions_app.approvals import waiting_hooks
from sessions_app.log.outbox import outbox
from sessions_app.models import Session
from sessions_app.observed import processes
from sessions_app.observed import sessions as observed_sessions

log = structlog.get_logger("bridge.terminals")

_OPEN = Q(kind=Session.Kind.OBSERVED, status=Session.Status.ACTIVE)
_BUSY = Q(turn__in=(Session.Turn.WORKING, Session.Turn.WAITING))
_READ = ("pk", "session_id", "resume_id", "turn", "processes", "held_stop", "last_sign_at")
_ENDED = ("turn", "doing", "pending_approvals", "decided_by_device", "held_stop", "tasks")
# events that wait in the spool may say more of a session whose processes are gone; no longer
SPOOL_PATIENCE_SECONDS = 300.0


async def follow() -> None:
    """Look at busy sessions, and at the processes of all, until it is cancelled."""
    gone: dict[int, float] = {}  # session key → when its processes were first seen to be gone
    looked_at = 0.0
    while True:
        await asyncio.sleep(limits.TERMINAL_CHECK_SECONDS)
        try:
            await terminals.run(_follow_turns)
            if time.monotonic() - looked_at >= limits.PROCESS_CHECK_SECONDS:
                looked_at = time.monotonic()
                await terminals.run(waiting_hooks.settle_orphans)
                await terminals.run(away.follow)
                gone = await terminals.run(_close_gone, gone)
        except STORAGE_ERRORS:
            continue  # polling reports it
        except Exception:
            log.exception("terminals_failed")
            failure_alerts.report("INTERNAL_ERROR", "terminals_failed")


def _follow_turns() -> None:
    silent = ages.now() - timedelta(seconds=limits.TURN_END_SECONDS)
    for session in Session.objects.filter(_OPEN & _BUSY).only(*_READ):
        state = _registered(session)
        if state == processes.IDLE or (session.held_stop and state is None):
            if session.last_sign_at <= silent:
                _end_turn(session, silent)
        elif state is not None:
            _keep_awake(session)


def _registered(session: Session) -> str | None:
    """Return what the registry says; idle only after TURN_END_SECONDS of it."""
    for process in reversed(processes.running(session)):
        if not lives(process):
            continue
        found = processes.registered_state(session.own_id, process)
        if found is None:
            continue
        state, since = found
        fresh = time.time() - since < limits.TURN_END_SECONDS
        return processes.BUSY if state == processes.IDLE and fresh else state
    return None


def _end_turn(seen: Session, silent: datetime) -> None:
    """End a turn whose Stop does not come, or is held, if nothing has come meanwhile."""
    with outbox() as box:
        session = Session.objects.select_related("feed").get(pk=seen.pk)
        busy = session.turn != Session.Turn.IDLE and session.status == Session.Status.ACTIVE
        if not busy or session.last_sign_at > silent:
            return
        if session.held_stop:
            observed_sessions.count_stop(box, session)
        elif not session.tasks:
            observed_sessions.end_turn(box, session)
        else:
            return
        session.last_activity_at = box.now
        session.save(update_fields=(*_ENDED, "last_activity_at"))


def _keep_awake(session: Session) -> None:
    """Take the registry's word that an agent works for a sign of life, now and then."""
    now = ages.now()
    if now - session.last_sign_at > timedelta(seconds=limits.QUIET_SECONDS / 5):
        Session.objects.filter(pk=session.pk, last_sign_at=session.last_sign_at).update(
            last_sign_at=now
        )


def _close_gone(before: dict[int, float]) -> dict[int, float]:
    """Close sessions whose processes were gone at two looks; return those gone now."""
    now, gone = time.time(), {}
    for session in Session.objects.filter(_OPEN).exclude(processes="").only(*_READ):
        if processes.all_gone(processes.running(session)):
            gone[session.pk] = before.get(session.pk, now)
    known = [key for key in gone if key in before]
    if known:
        age = spool_status(spool())["oldest_age_seconds"] or 0.0
        for key in known:
            since = now - gone[key]
            if age < since or since > SPOOL_PATIENCE_SECONDS:
                _close(key)
    return gone


def _close(key: int) -> None:
    with outbox() as box:
        session = Session.objects.select_related("feed").filter(_OPEN, pk=key).first()
        if session is None or not processes.all_gone(processes.running(session)):
            return  # it ended, or goes on in another process
        finished = session.turn == Session.Turn.IDLE or session.held_stop != ""
        observed_sessions.close(box, session, "completed" if finished else "error")
        if not finished:
            box.append_to_all(
                encode(
                    notifications.happened(session, "gone", "Its program does not run any more.")
                )
            )
        processes.end_all(session)
        session.last_activity_at = box.now
        changed = (*observed_sessions.CLOSED, "last_activity_at", "processes")
        session.save(update_fields=changed)
