"""Leave a bridge-run session to a program that goes on at the desk (D67)."""

from sessions_app import notifications
from sessions_app.agents.session_writer import SessionWriter
from sessions_app.log.outbox import Outbox
from sessions_app.models import Session

WHY = "The bridge has stopped its own agent."
# what changes here of what a hook event reads or writes of a session
_CHANGED = ("kind", "status", "closed_at", "turn", "doing", "pending_approvals")


def to_the_desk(box: Outbox, session: Session) -> None:
    """Make a session observed, with the event that shows another writer.

    The agent is stopped right after the commit, by the process that runs it. One that was closed
    is opened by the event.
    """
    writer = SessionWriter(box, session.pk, owner=None)
    ours, ran = writer.session, writer.session.owner is not None
    writer.leave("at_the_desk")
    if ours.status == Session.Status.CLOSED:
        ours.closed_at = None
    else:
        ours.status = Session.Status.ACTIVE
    writer.notify(notifications.happened(ours, "at_the_desk", WHY if ran else ours.title))
    writer.save()
    for name in _CHANGED:
        setattr(session, name, getattr(ours, name))
