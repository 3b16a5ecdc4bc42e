"""Describe a session for a client's list of sessions (D54, D60)."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from bridge_project.kernel import limits
from bridge_project.kernel.ages import ages
from bridge_project.protocol.resources import SessionInfo
from bridge_project.protocol.types import now_text
from sessions_app.agents.continuing import continue_of
from sessions_app.approvals.rules import store as rules
from sessions_app.models import Session

# The only columns read of thousands of sessions: recent events would take longer than all the rest.
COLUMNS = (
    *("pk", "session_id", "agent_type", "title", "working_directory"),
    *("kind", "status", "turn", "doing", "pending_approvals", "last_activity_at", "last_sign_at"),
    *("expired", "forgotten", "resume_id", "titled", "rules", "usage", "processes", "answerable"),
    *("offered", "pinned", "archived", "shared", "asks"),
)


def is_at_rest(session: Any) -> bool:
    """Return whether a bridge-run session is paused, failed or closed by its timer."""
    rests = session.status in (Session.Status.PAUSED, Session.Status.ERROR)
    expired = session.status == Session.Status.CLOSED and session.expired
    return session.kind == Session.Kind.BRIDGE and (rests or expired)


def is_resumable(session: Any) -> bool:
    """Return whether its agent can be started again, as far as is known (D60)."""
    # without a prompt, which would have titled it, the agent can begin afresh
    known = session.resume_id != "" and not session.forgotten
    return is_at_rest(session) and (known or not session.titled)


def is_starting(session: Session) -> bool:
    """Return whether its agent is being started, for the first time or again."""
    return session.owner is not None and session.status != Session.Status.ACTIVE


def doing_of(session: Any) -> dict[str, Any] | None:
    """Return the newest call that waits, else the newest that runs, or None (D54)."""
    calls = json.loads(session.doing or "[]")
    waiting = [call for call in calls if call["waits"] and session.turn == Session.Turn.WAITING]
    shown = next(reversed(waiting or calls), None)
    return shown and {name: shown[name] for name in ("tool", "summary", "since")}


def quiet_since(session: Any) -> datetime | None:
    """Return the last sign of a silent observed session that is busy (D65)."""
    observed = session.kind == Session.Kind.OBSERVED and session.status == Session.Status.ACTIVE
    if not observed or session.turn == Session.Turn.IDLE:
        return None
    at: datetime = session.last_sign_at
    return at if ages.now() - at >= timedelta(seconds=limits.QUIET_SECONDS) else None


def fingerprint(session: Any) -> int:
    """Return a number that changes with what a session, a row of COLUMNS, shows."""
    return hash((session._replace(last_sign_at=None, offered=0), quiet_since(session)))


def listed(sessions: Iterable[Any]) -> tuple[list[Any], int]:
    """Order sessions for a home screen; return how many were left out (D65).

    What waits comes first, then what is pinned (D73), what works, the newest. Of idle observed
    sessions older than IDLE_SESSION_FOLD_SECONDS the newest IDLE_SESSIONS_SHOWN are kept, of idle
    archived ones none.
    """
    ranks = {str(Session.Turn.WAITING): 0, str(Session.Turn.WORKING): 2}

    def rank(one: Any) -> int:
        return min(ranks.get(one.turn, 3), 1 if one.pinned else 3)

    newest = sorted(sessions, key=lambda one: one.last_activity_at, reverse=True)
    shown: list[Any] = []
    old: list[Any] = []
    before = ages.now() - timedelta(seconds=limits.IDLE_SESSION_FOLD_SECONDS)
    for one in newest:
        if one.archived and one.turn not in ranks:
            continue
        idle = one.kind == Session.Kind.OBSERVED and rank(one) == 3
        (old if idle and one.last_activity_at < before else shown).append(one)
    shown += old[: limits.IDLE_SESSIONS_SHOWN]
    shown.sort(key=rank)
    return shown, len(old[limits.IDLE_SESSIONS_SHOWN :])


def state_of(session: Any) -> dict[str, Any]:
    """Return the fields that the bridge adds to a session (model or row of COLUMNS)."""
    over = session.status == Session.Status.CLOSED  # its late events may have set another
    quiet, resumable = quiet_since(session), is_resumable(session)
    return {
        "kind": str(session.kind),
        "session_status": str(session.status),
        "turn": "idle" if over else str(session.turn),
        "doing": None if over else doing_of(session),
        "pending_approvals": session.pending_approvals,
        "resumable": resumable,
        "continue": continue_of(session, resumable=resumable).wire(),
        "last_activity_at": now_text(session.last_activity_at),
        "quiet_since": quiet and now_text(quiet),
        "rules": rules.shown(session),
        "usage": json.loads(session.usage) if session.usage else None,
        "pinned": session.pinned,
        "archived": session.archived,
        "shared": session.shared,
        "asks": session.asks,
    }


def info_of(session: Any) -> SessionInfo:
    """Return a session as WebSocket messages list it."""
    return SessionInfo(
        session_id=session.session_id,
        agent=session.agent_type,
        title=session.title,
        working_directory=session.working_directory or None,
        **state_of(session),
    )
