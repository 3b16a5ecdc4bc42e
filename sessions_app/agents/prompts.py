"""Queue prompts and interrupts for a session's agent (D31, D39, D40)."""

from collections.abc import Sequence
from typing import Any, Literal

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import jsontext, types
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.server_messages import MessageState
from devices_app import audit, pairing
from devices_app.models import AuditEntry, Device
from sessions_app import attachments, session_view
from sessions_app.agents import inbox, later, offers, ownership, shared
from sessions_app.agents.registry import KINDS
from sessions_app.log.outbox import outbox
from sessions_app.models import Command, Feed, LogRow, Session
from sessions_app.observed import sessions as observed_sessions

RETRY_SECONDS = 10  # how long a client must wait that has too many prompts waiting
_NOT_GIVEN = (
    "/{command} is not given to the agent: it may change how the agent asks before it acts, or "
    "only sounds so. To say it as plain text, begin with another word."
)
_STATES = {Session.Status.PAUSED: "paused", Session.Status.ERROR: "in error"}


def send_prompt(
    session_pk: int,
    content: str,
    *,
    device: Device | None,
    message_id: str,
    source: Literal["device", "http"],
    row_id: str | None = None,
    attached: Sequence[str] = (),
    not_before: str | None = None,
    when: Literal["later", "now"] = "later",
) -> None:
    """Queue a prompt, and show it to all who have joined (D52).

    ``device`` None: it came with the admin token. ``message_id``: by which the sender knows it.
    ``row_id``: of the row that shows it, the same for each repetition: while that row is kept the
    prompt is not queued again (D31). ``attached``: ids of attachments (D70). ``not_before``: see
    `later.due_at`. ``when``: now, into the turn that runs, where the agent can be steered. Raises
    SESS_CLOSED, SESS_NOT_ACTIVE, RATE_LIMITED when too many wait, AGENT_UNAVAILABLE where the desk
    has switched asking off (D80), PROTO_INVALID_MESSAGE for a command that would change how the
    agent asks (D69), for a time that it cannot wait for, and when an attachment is not there.
    """
    if command := offers.command_that_changes_asking(content):
        raise BridgeError("PROTO_INVALID_MESSAGE", _NOT_GIVEN.format(command=command[:64]))
    # it holds the head of the log: the session cannot be paused or closed meanwhile
    with outbox() as box:
        if row_id and LogRow.objects.filter(message_id=row_id).exists():
            return
        session = ownership.get_session(session_pk)
        if inbox.is_withdrawn(session, message_id):  # before it came (D71)
            row = inbox.state_row(session.session_id, message_id, "withdrawn", row_id)
            box.append_to_all(row)
            return
        if device:  # what is sent from now on is not withdrawn (D15)
            pairing.check_not_revoked(device.pk)
        due = later.due_at(session, not_before)
        if not (due and session_view.is_resumable(session)):
            session = active(session_pk)
        if session.shared and not shared.may_write(session):
            raise BridgeError("AGENT_UNAVAILABLE", shared.UNASKED, session_id=session.session_id)
        agent = KINDS.get(session.agent_type)
        steers = when == "now" and agent is not None and agent.steers
        kind = inbox.Kind.LATER if due else inbox.Kind.STEER if steers else inbox.Kind.PROMPT
        count, characters = inbox.prompts_waiting(session_pk, later=bool(due))
        too_long = count and characters + len(content) > limits.AGENT_PROMPTS_CHARS
        if count >= limits.AGENT_PROMPTS_WAITING or too_long:
            words = (
                f"{count} messages wait for the agent already; wait until it has answered "
                "some, or interrupt it."
            )
            details = {"retry_after": RETRY_SECONDS}
            raise BridgeError("RATE_LIMITED", words, session_id=session.session_id, details=details)
        given = attachments.give(session, attached)
        observed_sessions.set_title(session, content)
        session.last_activity_at = box.now
        session.save(update_fields=["title", "titled", "last_activity_at"])
        queued = bool(due) or count > 0 or session.turn != Session.Turn.IDLE
        shown = inbox.prompt_event(
            session.session_id,
            prompt=content,
            source=source,
            device=device.name if device else None,
            message_id=message_id,
            queued=queued,
            **({"attachments": given} if given else {}),
            **({"not_before": types.now_text(due)} if due else {}),
        )
        box.append(session.feed, encode(shown, id=row_id))
        about = {"content": content, "device": device.pk if device else None, "attachments": given}
        about |= {"steady": later.steady(due)} if due else {}
        command_pk = inbox.add(session, kind, message_id=message_id, **about)
        Command.objects.filter(pk=command_pk).update(due_at=due)
        if queued:
            box.append_to_all(inbox.state_row(session.session_id, message_id, "queued"))
        record("message", session, device, characters=len(content))


def withdraw(session_pk: int, message_id: str, *, device: Device) -> MessageState:
    """Take back a message that no agent has been given; return its state (D71).

    One that has not come yet counts as withdrawn when it comes.
    """
    # it holds the head of the log: the message cannot be given meanwhile
    with outbox() as box:
        session = ownership.get_session(session_pk)
        state: types.MessageState = "withdrawn"
        here = Command.objects.filter(session=session)
        if inbox.withdraw(box, here, "message_id", message_id):
            record("message_withdraw", session, device)
        elif known := _state_of(session, message_id):
            state = known
        else:
            inbox.report_withdrawn(box, session, message_id)
        return MessageState(session_id=session.session_id, message_id=message_id, state=state)


def _state_of(session: Session, message_id: str) -> types.MessageState | None:
    """Return what every device was told last of a message that does not wait."""
    # only these feeds, which are bounded: it holds the head of the log meanwhile
    feeds = LogRow.objects.filter(feed__in=(Feed.ALL, session.feed_id))
    rows = feeds.filter(frame__contains=jsontext.dumps_unicode(message_id))
    for frame in rows.filter(feed=Feed.ALL, type="message_state").order_by("-seq"):
        told = MessageState.model_validate(jsontext.loads(frame.frame)["payload"])
        if (told.session_id, told.message_id) == (session.session_id, message_id):
            return told.state
    # given to an agent that has not said so yet, or long ago
    return "given" if rows.filter(feed=session.feed_id, type="agent_event").exists() else None


def interrupt(session_pk: int, *, device: Device | None) -> None:
    """Interrupt the turn, or the start. Raises SESS_CLOSED, SESS_NOT_ACTIVE."""
    if ownership.cancel_start(session_pk, device):
        return
    with outbox():
        session = active(session_pk)
        inbox.add(session, inbox.Kind.INTERRUPT)
        session.rules = ""  # whoever stops the agent wants to be asked again (D68)
        session.save(update_fields=["rules"])
        record("interrupt", session, device)


def record(action: str, session: Session, device: Device | None, **details: Any) -> None:
    """Record what a device, or the admin token, did to a session."""
    actor = AuditEntry.Actor.DEVICE if device else AuditEntry.Actor.ADMIN
    audit.record(action, actor=actor, device=device, session_id=session.session_id, **details)


def active(session_pk: int) -> Session:
    """Return a session whose agent runs. Raises SESS_CLOSED, SESS_NOT_ACTIVE."""
    session = ownership.get_session(session_pk)
    if session.status == Session.Status.CLOSED:
        raise ownership.closed_error(session)
    if session.status not in Session.RUNS:
        why = f" ({session.reason.rstrip('.')})" if session.reason else ""
        words = f"The session is {_STATES[Session.Status(session.status)]}{why}."
        if session_view.is_resumable(session):
            words += " Resume it first."
        raise BridgeError("SESS_NOT_ACTIVE", words, session_id=session.session_id)
    return session
