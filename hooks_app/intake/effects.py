"""What an event of an observed session does besides being passed on: tool calls, approvals,
notifications (D13, D37).
"""

from __future__ import annotations

from collections.abc import Callable

from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.hooks import HookEvent
from hooks_app.intake import projection
from sessions_app import notifications
from sessions_app.approvals import service as approvals
from sessions_app.log.outbox import Outbox
from sessions_app.models import Session, ToolCall
from sessions_app.observed import sessions as observed_sessions

Effect = Callable[[Outbox, Session, HookEvent], None]


def apply(box: Outbox, session: Session, event: HookEvent) -> None:
    """Follow an event that has just been written, in its transaction."""
    if effect := _EFFECTS.get(event.event):
        effect(box, session, event)


def _notify(box: Outbox, session: Session, event: HookEvent) -> None:
    if notice := projection.notice_of(event, waiting=session.pending_approvals > 0):
        reported = notifications.reported(
            session.session_id,
            notice.type,
            notice.title,
            notice.body or session.title,
            notice.priority,
            **notice.data,
        )
        box.append_to_all(encode(reported))


def _used(box: Outbox, session: Session, event: HookEvent) -> None:
    call = projection.call_of(event)
    of_open_call = event.payload.get("permission_request") is True
    if event.payload["requires_approval"] or of_open_call:
        approvals.ask(box, session, call, of_open_call=of_open_call)
    else:
        approvals.report(box, session, call)


def _ran(box: Outbox, session: Session, event: HookEvent) -> None:
    approvals.finish(box, session, projection.call_of(event), projection.outcome_of(event))


def _prompted(box: Outbox, session: Session, event: HookEvent) -> None:
    approvals.moved_on(box, session)


def _stopped(box: Outbox, session: Session, event: HookEvent) -> None:
    approvals.moved_on(box, session)
    _notify(box, session, event)


def _ended(box: Outbox, session: Session, event: HookEvent) -> None:
    if session.status != Session.Status.CLOSED:  # else it was said when it closed
        observed_sessions.close(
            box, session, projection.end_reason(event), by=ToolCall.DecidedBy.AGENT
        )
        _notify(box, session, event)


_EFFECTS: dict[str, Effect] = {
    "PreToolUse": _used,
    "PostToolUse": _ran,
    "UserPromptSubmit": _prompted,
    "Stop": _stopped,
    "SessionEnd": _ended,
    "Notification": _notify,
}
