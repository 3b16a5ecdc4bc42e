"""Apply an event to its observed session: turn, calls, notifications (D13, D37)."""

from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.hooks import HookEvent
from hooks_app.intake import projection
from sessions_app.approvals import service as approvals
from sessions_app.log.outbox import Outbox
from sessions_app.models import Session, ToolCall
from sessions_app.observed import sessions as observed_sessions

# what only these events say of an agent
_TURNS = {"permission_prompt": Session.Turn.WAITING, "idle_prompt": Session.Turn.IDLE}


def apply(box: Outbox, session: Session, event: HookEvent) -> None:
    """Apply an event that has just been written, in its transaction."""
    match event.event:
        case "PreToolUse":
            call = projection.call_of(event)
            of_open_call = event.payload.get("permission_request") is True
            if event.payload["requires_approval"] or of_open_call:
                approvals.ask(box, session, call, of_open_call=of_open_call)
            else:
                approvals.report(box, session, call)
        case "PostToolUse":
            call, outcome = projection.call_of(event), projection.outcome_of(event)
            approvals.finish(box, session, call, outcome, projection.failure_of(event))
        case "UserPromptSubmit":
            approvals.moved_on(box, session)
            session.set_turn(Session.Turn.WORKING)
        case "Stop":
            approvals.moved_on(box, session)
            session.set_turn(Session.Turn.IDLE)
            _notify(box, session, event)
        case "SessionEnd" if session.status != Session.Status.CLOSED:  # else it was said then
            reason = projection.end_reason(event)
            observed_sessions.close(box, session, reason, by=ToolCall.DecidedBy.AGENT)
            _notify(box, session, event)
        case "Notification":
            if turn := _TURNS.get(str(event.payload.get("notification_type"))):
                session.turn = turn
            _notify(box, session, event)


def _notify(box: Outbox, session: Session, event: HookEvent) -> None:
    if notification := projection.notification_of(event, session):
        box.append_to_all(encode(notification))
