"""Make every notification that devices get (D13)."""

import json
import uuid
from typing import Any

from bridge_project.kernel import limits
from bridge_project.kernel.failure_alerts import Failure
from bridge_project.kernel.terminal_output import shown_output
from bridge_project.kernel.text import without_controls
from bridge_project.protocol.server_messages import Notification
from bridge_project.protocol.types import NotificationType, Priority
from devices_app.models import Device
from sessions_app.approvals.tool_call import QUESTION, Agent
from sessions_app.models import Session, ToolCall
from sessions_app.session_view import doing_of

BODY_CHARS = 500
CHANGES_CHARS = 65_536  # of parameters that a call was approved with
NOTED = "Recorded. The agent still waits for an answer at the machine."
SENT = "Given to the agent, which asks at the machine too."
OUTCOMES = {  # what came of it (D66)
    "taken": "The agent has taken it.",
    "desk_first": "Somebody at the machine had answered before.",
    "not_confirmed": "The agent was told; nothing shows whether the machine had answered before.",
}


def make(
    type_: NotificationType,
    title: str,
    body: str,
    *,
    priority: Priority = "normal",
    session_id: str | None = None,
    notification_id: str = "",
    **data: Any,
) -> Notification:
    """Return a notification; shorten its body and omit empty texts from ``data``.

    Codes for a terminal do in it what they do there, but for a call: what somebody decides, or has
    decided, hides nothing.
    """
    of_call = type_ == "approval_required" or "tool_call_id" in data
    fit = without_controls if of_call else shown_output
    title, body = fit(title), " ".join(fit(body).split())
    return Notification(
        notification_id=notification_id or str(uuid.uuid4()),
        session_id=session_id,
        notification_type=type_,
        title=title,
        body=body if len(body) <= BODY_CHARS else body[: BODY_CHARS - 1] + "…",
        priority=priority,
        data={name: value for name, value in data.items() if value != ""},
    )


def gap(session_id: str | None) -> Notification:
    """Return the notification that a device missed rows that are no longer kept (D29)."""
    where = "of this session" if session_id else "to all devices"
    body = f"Older messages {where} were discarded before this device received them."
    title, code = "Messages were missed", "MESSAGES_DISCARDED"
    return make("error", title, body, session_id=session_id, code=code)


def paired(device: Device, id: str = "") -> Notification:
    """Return the notification of a new device, in case it is not the owner's (D15)."""
    address = device.last_address
    body = f"{device.name} was paired" + (f" from {address}." if address else ".")
    name = device.name
    return make("agent_notification", "New device", body, notification_id=id, device=name)


def session_of(feed_id: int) -> str | None:
    """Return the session id of a feed; None for the feed for all devices."""
    return Session.objects.filter(feed_id=feed_id).values_list("session_id", flat=True).first()


def _about(
    session: Session,
    call: ToolCall,
    type_: NotificationType,
    title: str,
    body: str,
    priority: Priority = "normal",
    **data: Any,
) -> Notification:
    """Return a notification about a tool call."""
    ids = {"session_id": session.session_id, "tool_call_id": call.tool_call_id}
    return make(type_, title, body, priority=priority, **ids, **data)


def approval_required(session: Session, call: ToolCall) -> Notification:
    """Return the request for a decision; for calls from hooks, at the machine."""
    asker = "The agent" if call.tool == QUESTION else call.tool
    asks = "asks you" if call.tool == QUESTION else "needs approval"
    by_hooks = call.source == ToolCall.Source.HOOKS
    title = f"{asker} asks at the machine" if by_hooks else f"{asker} {asks}"
    if call.hook:
        title += " and here"
    if whose := Agent(call.agent_id, call.agent_type).words():
        title = f"{title} ({whose})"
    data = {"risk_level": call.risk_level, "screen": "approval"}
    return _about(session, call, "approval_required", title, call.description, "high", **data)


# reason of a decision by the bridge → the same for a person
WHY = {
    "session_closed": "because the session ended",
    "session_paused": "because the session was paused",
    "agent_died": "because the agent ended",
    "interrupted": "because the agent stopped",  # told to, or by itself
    "turn_ended": "because the agent went on without it",
    "taken_over": "because a device took over the session",
    "given_back": "because the session was given back",
    "at_the_desk": "because the session goes on at the machine",
}


def approval_decided(session: Session, call: ToolCall) -> Notification:
    """Return the notification of a decision, wherever it was made."""
    name, decided = _decided(call)
    title, body = f"{name}: {decided}", f"{name} was {decided}{_where(call)}."
    given = json.loads(call.modifications or "{}").get("answers") if call.tool == QUESTION else None
    if isinstance(given, dict) and (answers := ", ".join(map(str, given.values())).strip()):
        body = f"{body.rstrip('.')}: {answers}"
    if call.decided_by == ToolCall.DecidedBy.DEVICE and session.kind == Session.Kind.OBSERVED:
        body = SENT if call.hook else OUTCOMES.get(call.outcome, NOTED)
        title = f"{title}{_where(call)}"
    data: dict[str, Any] = {"decision": call.decision, "decided_by": call.decided_by}
    if call.decided_by == ToolCall.DecidedBy.DEVICE:
        data |= {"outcome": call.outcome}
        if not call.hook:  # else nobody knows yet
            data["forwarded"] = call.forwarded
    if call.decided_by == ToolCall.DecidedBy.AGENT and call.decision == ToolCall.Decision.REJECTED:
        if session.shared:  # and what the answer was, its result shows (D80)
            title = f"{name}: answered at the machine"
            body = f"{title}."
        else:
            title = f"{name} has no result"
            body, data["result"] = f"{title}: {_unknown(call)}.", "none"
    data |= {"device": call.device.name if call.device else "", "reason": call.reason}
    data |= changes_of(call)
    return _about(session, call, "approval_decided", title, body, **data)


def changes_of(call: ToolCall) -> dict[str, Any]:
    """Return the ``modifications`` of an approved call, unless they are large."""
    given = call.modifications or ""
    return {"modifications": json.loads(given)} if 0 < len(given) <= CHANGES_CHARS else {}


def _decided(call: ToolCall) -> tuple[str, str]:
    """Return what was decided about, and how."""
    if call.tool != QUESTION:
        whose = Agent(call.agent_id, call.agent_type).words()
        return f"{call.tool} ({whose})" if whose else call.tool, call.decision or ""
    at_machine = (
        call.decision == ToolCall.Decision.APPROVED and call.decided_by == ToolCall.DecidedBy.AGENT
    )
    answered = at_machine or call.decision == ToolCall.Decision.MODIFIED
    return "The question", "answered" if answered else "not answered"


def _unknown(call: ToolCall) -> str:
    """Return what hooks leave open: an interrupted call sends none."""
    if call.tool == QUESTION:
        return "it was answered or dropped at the machine"
    return "it was refused at the machine, interrupted while it ran, or left open"


def _where(call: ToolCall) -> str:
    """Return who decided, as words that follow "was approved"."""
    if call.decided_by == ToolCall.DecidedBy.AGENT:
        return " at the machine"
    if call.decided_by == ToolCall.DecidedBy.BRIDGE:
        return " " + WHY.get(call.reason, WHY["session_closed"])
    return f" on {call.device.name}" if call.device else ""


def without_result(session: Session, call: ToolCall) -> Notification:
    """Return the notification that a call was decided about and has no result."""
    name, decided = _decided(call)
    title, what = f"{name} has no result", f"{name} was {decided}{_where(call)}"
    body = f"{what}; {_unknown(call)}: {call.description}"
    priority: Priority = "low" if call.decision == ToolCall.Decision.REJECTED else "normal"
    return _about(session, call, "agent_notification", title, body, priority, result="none")


def ran_anyway(session: Session, call: ToolCall) -> Notification:
    """Return the notification that a call ran rejected, or before a decision."""
    title = "A rejected tool call ran"
    body = f"It ran although it was not approved on a device: {call.description}"
    return _about(session, call, "error", title, body, "high", code="REJECTED_CALL_RAN")


# what happened to a session → type, title, priority, code in the data
_HAPPENED: dict[str, tuple[NotificationType, str, Priority, str]] = {
    "failed": ("error", "The agent failed", "high", "AGENT_ERROR"),
    "stopped_asking": ("error", "Agent may act unasked", "high", "AGENT_ERROR"),
    "ran_other": ("error", "Another call ran than was approved", "high", "OTHER_CALL_RAN"),
    "stuck": ("error", "The session was paused", "high", "AGENT_ERROR"),
    "cut_off": ("error", "The answer was cut off", "high", "ANSWER_CUT_OFF"),
    "done": ("task_complete", "The agent is done", "normal", ""),
    "gone": ("error", "The session ended with an error", "normal", ""),
    "taken_over": ("agent_notification", "Taken over from the machine", "normal", ""),
    "at_the_desk": ("agent_notification", "Continued at the machine", "normal", ""),
    "idle": ("agent_idle", "The session was paused", "low", ""),
    "model_retried": ("agent_notification", "The agent is waiting for its model", "low", ""),
    "limit_near": ("agent_notification", "A limit is nearly reached", "normal", ""),
    "limit_reached": ("agent_notification", "A limit is reached", "high", ""),
    "chosen_lost": ("agent_notification", "Not as it was before", "normal", ""),
    "withdrawn": ("agent_notification", "Messages were withdrawn", "normal", ""),
    "sent_late": ("agent_notification", "A message was sent late", "normal", ""),
    "not_sent": ("agent_notification", "A message was not sent", "high", ""),
    "working": ("agent_notification", "The agent is still working", "low", ""),
    "silent": ("agent_notification", "The agent is silent", "low", ""),
}


def happened(session: Session, what: str, body: str, **data: str) -> Notification:
    """Return the notification that something happened to a session."""
    type_, title, priority, code = _HAPPENED[what]
    about = {"session_id": session.session_id, "code": code, **data}
    return make(type_, title, body, priority=priority, **about)


def silent(session: Session) -> Notification:
    """Return the notification that a turn is silent and waits for nobody."""
    silence = f"no sign for {limits.TURN_SILENCE_SECONDS:g} s"
    if doing := doing_of(session):
        return happened(session, "working", f"{doing['summary']} ({silence})")
    thinks = "it is thinking, or waiting for its model."
    return happened(session, "silent", f"{session.agent_type} gave {silence}: {thinks}")


def acts_without_asking(session: Session) -> Notification:
    """Return the notification that an agent acts without asking, or may (D59)."""
    name, asks = session.agent_type, session.asks
    if asks is None:
        title = f"Nobody knows whether {name} asks"
        body = f"{name} may run commands and change files without asking you."
    elif session.shared:
        title = f"{name} does not ask"
        body = f"At the desk {name} runs commands and changes files without asking you."
    else:
        title = f"{name} does not ask"
        body = (
            f"{name} runs commands and changes files without asking you: BRIDGE_ACP_UNASKED "
            "lets it."
        )
    about: dict[str, Any] = {"session_id": session.session_id, "asks": asks}
    return make("agent_notification", title, body, priority="high", **about)


def failed(failure: Failure) -> Notification:
    """Return the notification of an unforeseen failure (D51)."""
    row, reference = failure.row, failure.reference
    where = f"The bridge's log has more, at {reference}." if reference else row.remedy
    title, body = row.message.rstrip("."), f"{row.message} {where}"
    about: dict[str, Any] = {"session_id": failure.session_id, "code": row.code}
    return make("error", title, body, reference=reference, **about)
