"""Create observed sessions; announce, title, close, forget any (D6, D34, D60)."""

import json
import re
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from bridge_project.kernel import limits
from bridge_project.kernel.ages import ages
from bridge_project.kernel.config import conf
from bridge_project.kernel.text import printable
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.client_messages import SessionEnd
from bridge_project.protocol.server_messages import Notification, SessionStarted
from bridge_project.protocol.types import SessionEndReason
from sessions_app import attachments, session_view
from sessions_app.approvals import service as approvals
from sessions_app.log.outbox import Outbox, discard_before, outbox
from sessions_app.models import Feed, Session, ToolCall

DEFAULT_AGENT = "primary-agent"
CLOSED_AT_ONCE = 50  # in one transaction, which takes some 50 ms
# what closing a session changes of it
CLOSED = (
    *("status", "closed_at", "pending_approvals", "turn", "doing", "decided_by_device"),
    *("tasks", "held_stop"),
)


def find(session_id: str | None) -> Session | None:
    """Return a session with its feed, whose counters are true only inside an outbox."""
    if not session_id:
        return None
    return Session.objects.filter(session_id=session_id).select_related("feed").first()


def create_observed(session_id: str, now: datetime) -> Session:
    """Create a session that the bridge knows only by its hooks."""
    feed = Feed.objects.create(kind=Feed.Kind.OBSERVED)
    return Session.objects.create(
        session_id=session_id,
        kind=Session.Kind.OBSERVED,
        feed=feed,
        agent_type=DEFAULT_AGENT,
        created_at=now,
        last_activity_at=now,
    )


def announce_start(box: Outbox, session: Session) -> None:
    """Send ``session_started`` to all devices."""
    started = SessionStarted(session_id=session.session_id, session=session_view.info_of(session))
    box.append_to_all(encode(started))


def reopen(session: Session) -> None:
    session.status, session.closed_at = Session.Status.ACTIVE, None
    session.set_turn(Session.Turn.IDLE)


def close(
    box: Outbox,
    session: Session,
    reason: SessionEndReason,
    *,
    by: str = ToolCall.DecidedBy.BRIDGE,
    row_id: str | None = None,
) -> None:
    """Close a session, reject its pending calls, and tell all devices.

    The caller saves it. ``by``: who rejects; ``row_id``: the id of the ``session_end``.
    """
    if session.held_stop:
        count_stop(box, session)
    approvals.close_calls(box, session, by=by)
    session.status, session.closed_at = Session.Status.CLOSED, box.now
    session.set_turn(Session.Turn.IDLE)
    session.tasks = ""
    end = SessionEnd(session_id=session.session_id, reason=reason, title=session.title)
    box.append_to_all(encode(end, id=row_id))


def hold_stop(
    session: Session, notification: Notification | None, *, leaves_subagents: bool
) -> None:
    """Keep a Stop that counts when nothing follows it (D65); the caller saves."""
    if not session.waits:
        session.set_calls(session.calls)
    told = notification and notification.wire()
    session.held_stop = json.dumps({"leaves_subagents": leaves_subagents, "notification": told})


def count_stop(box: Outbox, session: Session) -> None:
    """End the turn as the held Stop said, and notify; the caller saves the session."""
    held, session.held_stop = json.loads(session.held_stop), ""
    if not held["leaves_subagents"]:
        end_turn(box, session)
    if held["notification"]:
        box.append_to_all(encode(Notification(**held["notification"])))


def end_turn(box: Outbox, session: Session) -> None:
    """End an observed session's turn, with its calls; the caller saves it."""
    approvals.reject_passed_over(box, session)
    session.set_turn(Session.Turn.IDLE)


def set_title(session: Session, prompt: str) -> None:
    """Set a title: the first prompt's first line, else the directory's name (D6)."""
    if session.titled or session.named:
        return
    line = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    directory = re.split(r"[/\\]", session.working_directory.rstrip("/\\"))[-1]
    session.title, session.titled = _title(line or directory), line != ""


def take_title(session: Session, title: str) -> None:
    """Set the title that an agent gives its session, over that of its first prompt."""
    if not session.named:
        session.title = _title(" ".join(title.split())) or session.title


def name(session: Session, title: str) -> None:
    """Give a session a person's title, which stays (D73)."""
    session.title, session.named = _title(" ".join(title.split())) or session.title, True


def _title(text: str) -> str:
    return printable(text, keep="\N{ZERO WIDTH JOINER}")[: limits.TITLE_MAX_CHARS]  # of emoji


def close_idle() -> int:
    """Close unused sessions; return how many.

    Observed ones after 24 hours without an event, paused and failed ones after 30 days; these are
    forgotten next.
    """
    now = ages.now()
    day = now - timedelta(seconds=limits.OBSERVED_IDLE_SECONDS)
    month = now - timedelta(seconds=limits.RESUMABLE_SESSION_KEEP_SECONDS)
    observed = Q(kind=Session.Kind.OBSERVED, status=Session.Status.ACTIVE)
    quiet = observed & Q(last_activity_at__lt=day)
    at_rest = Q(status__in=(Session.Status.PAUSED, Session.Status.ERROR), owner=None)
    idle = Session.objects.filter(quiet | (at_rest & Q(last_activity_at__lt=month))).exclude(
        status=Session.Status.CLOSED
    )
    closed = 0
    while idle.exists():
        with outbox() as box:  # a few at a time: events wait for each transaction
            for session in idle.select_related("feed").order_by("pk")[:CLOSED_AT_ONCE]:
                close(box, session, "timeout")
                session.closed_at = None  # nobody ended it: its next event opens it again
                session.save(update_fields=CLOSED)
                closed += 1
    return closed


def forget_closed() -> int:
    """Delete closed sessions and their rows; return how many.

    With their last row (D73), or after 30 days when they can be resumed (D60).
    """
    now = ages.now()
    kept_since = now - timedelta(seconds=conf.history_seconds)
    month = now - timedelta(seconds=limits.RESUMABLE_SESSION_KEEP_SECONDS)
    ended = Q(session__expired=False, session__last_activity_at__lt=kept_since)
    expired = Q(session__owner=None, session__last_activity_at__lt=month)
    old = Feed.objects.filter(ended | expired, session__status=Session.Status.CLOSED)
    return forget(old)


def forget(old: QuerySet[Feed]) -> int:
    """Delete sessions with their rows, calls and cursors; return how many.

    A session that begins again meanwhile stays, with all that it is sent from then on.
    """
    forgotten = 0
    for feed in list(old):
        discard_before(feed.pk, feed.last_seq + 1)  # all that it had when it was read
        with outbox():  # nothing is appended meanwhile
            gone = old.filter(pk=feed.pk, last_seq=feed.last_seq)
            for session_pk in gone.values_list("session", flat=True):
                attachments.remove(session_pk)
            forgotten += gone.delete()[1].get(Feed._meta.label, 0)
    return forgotten
