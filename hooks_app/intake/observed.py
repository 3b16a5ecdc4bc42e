"""Append what an event says, and change its observed session (D34, D37, D65).

No other module changes what an observed session does because of an event.
"""

import json
from datetime import timedelta
from typing import Any

from bridge_project.kernel import limits
from bridge_project.kernel.process_note import ProcessNote
from bridge_project.protocol.catalogue import encode, encode_raw
from bridge_project.protocol.hooks import HookEvent
from devices_app.models import AuditEntry
from hooks_app.intake import projection
from sessions_app import away
from sessions_app.approvals import service as approvals
from sessions_app.log.outbox import Outbox
from sessions_app.log.reader import Row
from sessions_app.models import Session, ToolCall
from sessions_app.observed import desk, processes
from sessions_app.observed import sessions as observed_sessions

# notifications that tell the state of the turn
_TURNS = {
    **dict.fromkeys(("permission_prompt", "worker_permission_prompt"), Session.Turn.WAITING),
    "idle_prompt": Session.Turn.IDLE,
}
ELICITATION = "elicitation"  # in the place of a call's id: agents' own are longer
# what a session does that has ended, or begins, at its own time
_OPENING = ("SessionStart", "UserPromptSubmit", "PreToolUse")


def append(
    box: Outbox,
    session: Session,
    event: HookEvent,
    event_id: str,
    *,
    new: bool,
    process: ProcessNote | None,
) -> Row:
    """Append an event's messages in order; return the row of its ``agent_event``."""
    is_observed = session.kind == Session.Kind.OBSERVED
    session.last_activity_at = session.last_sign_at = box.now
    if is_observed:
        _begin(box, session, event, process, new=new)
    row = box.append(session.feed, encode_raw("agent_event", event.outbound(event_id)))
    session.hook_count += 1
    recent = {"type": event.event, "timestamp": event.timestamp}
    if tool := projection.tool_of(event):
        recent["tool"] = tool
    session.recent_events = [recent, *session.recent_events][: limits.RECENT_EVENTS]
    if is_observed:
        _apply(box, session, event, process)
    return row


def _begin(
    box: Outbox, session: Session, event: HookEvent, process: ProcessNote | None, *, new: bool
) -> None:
    """Announce a session that starts, or starts again, before the event (D34, D65)."""
    if directory := projection.directory_of(event):
        session.working_directory = directory
    observed_sessions.set_title(session, projection.prompt_of(event))
    if title := projection.title_of(event):
        observed_sessions.take_title(session, title)
    if projection.goes_on(event):
        session.held_stop = ""
    shared = event.event == "SessionStart" and processes.others_live(session, process)
    if process and event.event != "SessionEnd":
        processes.add(session, process)
    again = _opens_again(session, event)
    if projection.starts_program(event) and again and not shared:
        approvals.reject_passed_over(box, session)
        session.tasks = ""
    if again and not (shared and session.status == Session.Status.ACTIVE):
        observed_sessions.reopen(session)
    if new or again:
        observed_sessions.announce_start(box, session)


def _opens_again(session: Session, event: HookEvent) -> bool:
    """Return whether an event begins a session, or begins it again after its end."""
    if session.status == Session.Status.ACTIVE:
        return event.event == "SessionStart"
    if session.closed_at is None:  # it was only silent
        return event.event != "SessionEnd"
    if event.event not in _OPENING:
        return False
    after = projection.time_of(event) - session.closed_at
    return after > timedelta(0) or (event.event == "SessionStart" and not after)


def _apply(box: Outbox, session: Session, event: HookEvent, process: ProcessNote | None) -> None:
    """Apply an event to its session, and notify (D13, D37, D65)."""
    # what waits without a call, or asks for an MCP server, does so until the next event: this one
    asked = [one for one in session.calls if one["id"] == ELICITATION]
    if asked or (session.turn == Session.Turn.WAITING and not session.waits):
        session.set_calls([one for one in session.calls if one not in asked])
    notification = projection.notification_of(event, session)
    tells = True
    match event.event:
        case "PreToolUse" | "PostToolUse":
            _change_calls(box, session, event, process)
        case "Stop" if projection.may_continue(event):
            session.tasks, tells = projection.tasks_of(event), False
            leaves = projection.leaves_subagents(event)
            observed_sessions.hold_stop(session, notification, leaves_subagents=leaves)
        case "UserPromptSubmit" | "Stop":
            _come_back(box, session, event, process)
            _change_turn(box, session, event)
        case "SubagentStop":
            _end_subagent(box, session, projection.agent_of(event).id)
        case "SessionEnd":
            tells = _end(box, session, event, process)
        case "Notification":
            tells = _hear(box, session, event, asked)
    if notification and tells:
        box.append_to_all(encode(notification))


def _change_calls(
    box: Outbox, session: Session, event: HookEvent, process: ProcessNote | None
) -> None:
    """Record that a call begins, asks, or has ended."""
    call = projection.call_of(event)
    if event.event == "PostToolUse":
        outcome, failure = projection.outcome_of(event), projection.failure_of(event)
        approvals.record_hook_outcome(box, session, call, outcome, failure)
        return
    of_open_call = event.payload.get("permission_request") is True
    if event.payload["requires_approval"] or of_open_call:
        approvals.ask(box, session, call, of_open_call=of_open_call, process=process)
    else:
        approvals.report(box, session, call)


def _come_back(
    box: Outbox, session: Session, event: HookEvent, process: ProcessNote | None
) -> None:
    """End the owner's absence when a person has written a prompt at the machine (D66)."""
    if not projection.prompt_of(event) or not away.is_away():
        return
    if process is None or not processes.is_script(session.session_id, process):
        away.come_back(box, AuditEntry.Actor.AGENT)


def _change_turn(box: Outbox, session: Session, event: HookEvent) -> None:
    """Begin or end a turn; subagents that still run keep the session at work."""
    stops = event.event == "Stop"
    if stops:
        session.tasks = projection.tasks_of(event)
    if not projection.leaves_subagents(event):
        observed_sessions.end_turn(box, session)
        if not stops:
            session.set_turn(Session.Turn.WORKING)
    elif not session.waits:
        session.set_turn(Session.Turn.WORKING)


def _end_subagent(box: Outbox, session: Session, agent_id: str) -> None:
    """End a subagent's calls; it is no task of the session any more."""
    if agent_id and session.tasks:
        tasks = [one for one in json.loads(session.tasks) if one != agent_id]
        session.tasks = json.dumps(tasks) if tasks else ""
    if agent_id:
        approvals.end_subagent(box, session, agent_id)


def _end(box: Outbox, session: Session, event: HookEvent, process: ProcessNote | None) -> bool:
    """Close a session; return whether that is news."""
    if session.status == Session.Status.CLOSED:
        # it may have been quiet only
        session.closed_at = session.closed_at or projection.time_of(event)
        return False  # it was said then
    if process and processes.others_live(session, process):  # it goes on in another terminal
        processes.end(session, process)
        return False
    if session.session_id in desk.taking:  # the bridge has ended its program, to go on with it
        return False
    reason = projection.end_reason(event)
    observed_sessions.close(box, session, reason, by=ToolCall.DecidedBy.AGENT)
    session.closed_at = projection.time_of(event)
    if process:
        processes.end(session, process)
    return True


def _hear(box: Outbox, session: Session, event: HookEvent, asked: list[dict[str, Any]]) -> bool:
    """Set the turn by a Notification; return whether it is news.

    ``asked``: what an MCP server asked in the event before.
    """
    kind = str(event.payload.get("notification_type"))
    if kind == "idle_prompt" and (session.waits or session.calls or session.tasks):
        return False
    if kind in projection.ELICITATIONS:
        asks = projection.elicitation_of(event).doing(box.now)
        shown = asked or [{"id": ELICITATION, **asks, "waits": True}]
        session.set_calls([*session.calls, *shown])
        return not asked
    session.turn = _TURNS.get(kind, session.turn)
    return True
