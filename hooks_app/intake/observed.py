"""Append what an event says, and change its observed session (D34, D37).

No other module changes what an observed session does because of an event.
"""

from bridge_project.kernel import limits
from bridge_project.protocol.catalogue import encode, encode_raw
from bridge_project.protocol.hooks import HookEvent
from hooks_app.intake import projection
from sessions_app.approvals import service as approvals
from sessions_app.log.outbox import Outbox
from sessions_app.log.reader import Row
from sessions_app.models import Session, ToolCall
from sessions_app.observed import sessions as observed_sessions

# notifications that tell the state of the turn
_TURNS = {"permission_prompt": Session.Turn.WAITING, "idle_prompt": Session.Turn.IDLE}


def append(box: Outbox, session: Session, event: HookEvent, event_id: str, *, new: bool) -> Row:
    """Append an event's messages in order; return the row of its ``agent_event``."""
    is_observed = session.kind == Session.Kind.OBSERVED
    session.last_activity_at = box.now
    if is_observed:
        _begin(box, session, event, new=new)
    row = box.append(session.feed, encode_raw("agent_event", event.outbound(event_id)))
    session.hook_count += 1
    recent = {"type": event.event, "timestamp": event.timestamp}
    if tool := projection.tool_of(event):
        recent["tool"] = tool
    session.recent_events = [recent, *session.recent_events][: limits.RECENT_EVENTS]
    if is_observed:
        _apply(box, session, event)
    return row


def _begin(box: Outbox, session: Session, event: HookEvent, *, new: bool) -> None:
    """Announce a session that starts, or starts again, before the event (D34)."""
    starts = event.event == "SessionStart"
    quiet = session.status == Session.Status.CLOSED and session.closed_at is None
    again = starts or (quiet and event.event != "SessionEnd")
    if starts or not session.working_directory:
        session.working_directory = projection.directory_of(event) or session.working_directory
    observed_sessions.set_title(session, projection.prompt_of(event))
    if projection.starts_program(event):
        approvals.reject_passed_over(box, session)
    if again:
        observed_sessions.reopen(session)
    if new or again:
        observed_sessions.announce_start(box, session)


def _apply(box: Outbox, session: Session, event: HookEvent) -> None:
    """Apply an event to its session: turn, calls, notifications (D13, D37)."""
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
            approvals.record_hook_outcome(box, session, call, outcome, projection.failure_of(event))
        case "UserPromptSubmit" | "Stop":
            if not projection.leaves_subagents(event):
                approvals.reject_passed_over(box, session)
                stops = event.event == "Stop"
                session.set_turn(Session.Turn.IDLE if stops else Session.Turn.WORKING)
            elif not session.waits:
                session.set_turn(Session.Turn.WORKING)
        case "SessionEnd" if session.status == Session.Status.CLOSED:
            session.closed_at = session.closed_at or box.now  # it may have been quiet only
            return  # it was said then
        case "SessionEnd":
            reason = projection.end_reason(event)
            observed_sessions.close(box, session, reason, by=ToolCall.DecidedBy.AGENT)
        case "Notification":
            kind = str(event.payload.get("notification_type"))
            session.turn = _TURNS.get(kind, session.turn)
    if notification := projection.notification_of(event, session):
        box.append_to_all(encode(notification))
