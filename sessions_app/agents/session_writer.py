"""Store what a session's agent does: rows, approvals, states (D35, D37, D40)."""

import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog
from django.utils import timezone

from bridge_project.http.error_body import error_payload
from bridge_project.kernel import limits, picture_files
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.text import valid
from bridge_project.protocol import jsontext
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.resources import Picture, ToolOutcome, Usage
from bridge_project.protocol.types import FinishReason, MessageState, SessionEndReason
from sessions_app import attachments, leases, notifications
from sessions_app.agents import events, inbox, sanitize, usage
from sessions_app.agents.driver import HistoryMessage
from sessions_app.agents.host import sockets
from sessions_app.agents.offers import Offers
from sessions_app.approvals import service as approvals
from sessions_app.approvals.rules import store as rules
from sessions_app.approvals.tool_call import usable_id
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.log.reader import Row
from sessions_app.models import Command, Feed, LogRow, Session, ToolCall
from sessions_app.observed import sessions as observed_sessions

log = structlog.get_logger("bridge.agent")

_STATE = (
    *("kind", "status", "reason", "owner", "closed_at", "expired", "forgotten", "asks", "rules"),
    "shared",
)
_TURN = ("turn", "doing", "pending_approvals")
_TOLD = (
    "resume_id",
    "title",
    "titled",
    "usage",
    "offers",
    "offered",
    "picture_bytes",
)  # by the agent
_HOST = ("host", "host_seq", "host_state")
_SAVED = (*_STATE, *_TURN, *_TOLD, *_HOST, "open_message", "last_activity_at")


class OwnershipLost(Exception):
    """Report that the session has ended, or that another process runs it."""


class SessionWriter:
    """Change one session inside an outbox's transaction; call ``save`` last.

    Raises OwnershipLost when the session is not ``owner``'s; None: whoever owns it.
    """

    def __init__(self, box: Outbox, session_pk: int, owner: uuid.UUID | None) -> None:
        session = Session.objects.select_related("feed").filter(pk=session_pk).first()
        if session is None or (owner is not None and session.owner != owner):
            raise OwnershipLost(session_pk)
        self.box = box
        self.session = session
        self.busy = session.turn != Session.Turn.IDLE  # a turn runs, unless the runner knows better
        self.ids: dict[str | None, str] = {}  # the agent's id of a call → ours
        self.prompt_id = ""  # the message whose turn runs

    def save(self) -> None:
        self.session.last_activity_at = self.box.now
        self.session.save(update_fields=_SAVED)

    def write(self, event: events.Event) -> None:
        match event:
            case events.Chunk():
                self._write_chunk(event)
            case events.ToolStarted(call):
                self.close_stream("tool_call")
                ours = sanitize.storable_call(call)
                self.ids[call.id] = approvals.report(self.box, self.session, ours)
            case events.ApprovalAsked():
                self._ask(event)
            case events.ApprovalWithdrawn(call_id):
                self._withdraw(self.ids.get(call_id, call_id))
            case events.ToolSucceeded() | events.ToolStopped() | events.ToolFailed():
                self._conclude(event)
            case events.AnswerEnded(own):
                self.close_stream("stop" if own else "tool_call")
            case events.TurnEnded():
                self._end_turn(event)
            case events.PromptTyped(content):
                self._show_prompt(content)
                self.session.set_calls(self.session.calls)
                self.open_stream()
            case events.AgentDied(reason):
                self.stop(Session.Status.ERROR, reason, "agent_died")
                self.report_failure(self.session.reason)
            case _:
                self._note(event)
                self._notify_of(event)

    # -- the stream --------------------------------------------------------------------------------

    def open_stream(self) -> None:
        """Begin the answer, unless it has begun."""
        if not self.session.open_message:
            self.session.open_message = str(uuid.uuid4())
            self._append(s.StreamStart(**self._stream_ids()))

    def close_stream(self, reason: FinishReason, **more: Any) -> None:
        """End the answer, if it has begun; ``more``: optional fields of ``stream_end``."""
        if self.session.open_message:
            self._append(s.StreamEnd(**self._stream_ids(), finish_reason=reason, **more))
            self.session.open_message = ""

    def _stream_ids(self) -> dict[str, Any]:
        return {"session_id": self.session.session_id, "message_id": self.session.open_message}

    def _append(self, payload: Any) -> Row:
        return self.box.append(self.session.feed, encode(payload))

    def _write_chunk(self, chunk: events.Chunk) -> None:
        if not self.in_turn:  # of a turn that the agent begins itself
            self.session.set_calls(self.session.calls)
        self.open_stream()
        size, ids = limits.STREAM_CHUNK_CHARS, self._stream_ids()
        for start in range(0, len(chunk.content), size):
            piece = chunk.content[start : start + size]
            last = start + size >= len(chunk.content)
            self._append(
                s.StreamChunk(
                    **ids,
                    content=piece,
                    is_tool_use=chunk.is_tool_use,
                    pictures=self._keep(chunk.pictures) if last else None,
                )
            )

    def _keep(self, pictures: Sequence[picture_files.Picture]) -> list[Picture] | None:
        """Keep an agent's pictures; return what stands in their place."""
        return attachments.keep(self.session, pictures) or None

    def _show_prompt(self, content: str) -> None:
        """Show what was typed at the desk (D80)."""
        said = sanitize.truncate(content)
        observed_sessions.set_title(self.session, said)
        shown = inbox.prompt_event(self.session.session_id, prompt=said, queued=False)
        self._append(shown)

    def catch_up(self, history: Sequence[HistoryMessage]) -> None:
        """Show what was said at the desk after the log's last row of the session (D80)."""
        last = LogRow.objects.filter(feed=self.session.feed).order_by("-seq").first()
        if last is None:  # all of it is shown as history (D60)
            return
        turn, doing = self.session.turn, self.session.doing
        for said in (one for one in history if one.at > last.created_at.timestamp()):
            if said.by_agent:
                self._write_chunk(events.Chunk(said.text))
                self.close_stream("stop")
            else:
                self._show_prompt(said.text)
        self.session.turn, self.session.doing = turn, doing  # all of that is over

    # -- tools -------------------------------------------------------------------------------------

    def _ask(self, event: events.ApprovalAsked) -> None:
        """Ask the devices about a call, unless a rule of a person has approved it (D68)."""
        self.close_stream("tool_call")
        call = event.call
        ours = sanitize.storable_call(call)
        if call.id in self.ids:  # it was announced, under an id that was free
            ours = replace(ours, id=self.ids[call.id])
        record = approvals.ask(
            self.box,
            self.session,
            ours,
            options=event.options,
            judgement=event.judgement,
            rule=rules.covering(self.session, event.judgement),
        )
        self.ids[call.id] = record.tool_call_id

    def _conclude(
        self, event: events.ToolSucceeded | events.ToolStopped | events.ToolFailed
    ) -> None:
        """Write a call's end: ``tool_result``, and ``tool_error`` if the tool failed."""
        tool_call_id = self.ids.get(event.call.id) or usable_id(event.call.id) or str(uuid.uuid4())
        failure = None
        match event:
            case events.ToolSucceeded():
                self.ids.pop(event.call.id, None)  # others may still get RanAnyway
                outcome = ToolOutcome(
                    success=True,
                    content=sanitize.truncate(event.content),
                    diff=sanitize.plain(event.diff),
                    metadata=sanitize.plain(event.metadata),
                    duration_ms=event.duration_ms,
                    pictures=self._keep(event.pictures),
                )
            case events.ToolStopped(_, reason, duration_ms):
                why = sanitize.truncate(reason)
                outcome = ToolOutcome(success=False, content="", error=why, duration_ms=duration_ms)
            case events.ToolFailed():
                failure = sanitize.storable_failure(event.failure)
                outcome = failure.outcome()
        tool = valid(event.call.tool)
        approvals.record_outcome(self.box, self.session, tool_call_id, tool, outcome, failure)

    def _withdraw(self, tool_call_id: str) -> None:
        """Reject a call that waits no more; one of the desk's was answered there."""
        by, reason = ToolCall.DecidedBy.BRIDGE, "interrupted"
        if self.session.shared:
            by, reason = ToolCall.DecidedBy.AGENT, ""
        ids = {"tool_call_id": tool_call_id}
        approvals.reject_pending(self.box, self.session, by=by, reason=reason, **ids)

    # -- the turn and the session ------------------------------------------------------------------

    def _end_turn(self, event: events.TurnEnded) -> None:
        self.reject_pending("turn_ended")
        self.open_stream()
        usage = sanitize.plain(dict(event.usage or {})) or None
        self.close_stream(event.finish_reason, usage=usage, interrupted=event.interrupted or None)
        self.session.set_turn(Session.Turn.IDLE)
        if event.error:
            about = {"session": self.session.session_id, "code": "AGENT_ERROR"}
            log.error("turn_failed", reason=sanitize.storable_reason(event.error), **about)
            self.report_failure(event.error)
        elif not event.interrupted:  # also to who has joined: that device may sleep (D56)
            self.notify(notifications.happened(self.session, "done", self.session.title))

    def reject_pending(self, reason: str, **which: str) -> None:
        """Reject the calls that wait for a decision, or ``which`` of them."""
        approvals.reject_pending(self.box, self.session, reason=reason, **which)

    def report_failure(self, why: str, notification_id: str = "") -> None:
        """Report the agent's failure, in the session and to every device (D51)."""
        why = sanitize.storable_reason(why)
        row = self._append(error_payload(BridgeError("AGENT_ERROR", why), self.session.session_id))
        ids = {"error_id": row.id, "notification_id": notification_id}
        self.notify(notifications.happened(self.session, "failed", why, **ids))

    def _notify_of(self, event: events.Event) -> None:
        """Notify every device of an event that no message of the session shows."""
        match event:
            case events.RanAnyway(call):
                refused = ToolCall.objects.filter(
                    session=self.session, tool_call_id=self.ids.pop(call.id, "")
                )
                for record in refused:
                    self.notify(notifications.ran_anyway(self.session, record))
            case events.RanOther(call, ran):
                words = f"Approved was: {call.description}\nThe agent says that it did: {ran}"
                why = sanitize.storable_reason(words)
                self.notify(notifications.happened(self.session, "ran_other", why))
            case events.StoppedAsking(reason):
                why = sanitize.storable_reason(reason)
                self.notify(notifications.happened(self.session, "stopped_asking", why))
            case events.AsksChanged(why) if why:
                why = sanitize.storable_reason(why)
                self.notify(notifications.happened(self.session, "stopped_asking", why))
            case events.ModelRetried(why) if self.in_turn:
                self.notify(notifications.happened(self.session, "model_retried", why))
            case events.TurnSilent() if self.session.turn == Session.Turn.WORKING:
                self.notify(notifications.silent(self.session))

    def _note(self, event: events.Event) -> None:
        """Keep what an event says of the session, or of its prompt."""
        match event:
            case events.SessionIdentified(resume_id):
                self.session.resume_id = valid(resume_id).replace("\x00", "")
            case events.PromptMoved(state, message_id):
                self._tell_state(state, message_id or self.prompt_id)
            case events.AsksChanged(why):
                self.session.asks = not why
            case events.TitleChanged(title):
                observed_sessions.take_title(self.session, title)
            case events.UsageChanged(used):
                self._note_usage(used)
            case events.OffersChanged(offers):
                self.take_offers(offers)
            case events.ChoiceAnswered(command_pk, code, why):
                answer = jsontext.dumps([code, sanitize.storable_reason(why)])
                Command.objects.filter(pk=command_pk).update(answer=answer)

    def take_offers(self, offers: Offers) -> None:
        """Keep what a person may choose; those who have joined are told by polling (D69)."""
        if (text := offers.text()) != self.session.offers:
            self.session.offers, self.session.offered = text, self.session.offered + 1

    def _tell_state(self, state: MessageState, message_id: str) -> None:
        """Tell every device what became of a message (D71)."""
        if message_id:  # a command of an earlier version has none
            row = inbox.state_row(self.session.session_id, message_id, state)
            self.box.append_to_all(row)

    def _note_usage(self, used: Usage) -> None:
        """Keep what an agent says of its usage; report a limit once that is near (D72)."""
        kept = Usage.model_validate_json(self.session.usage or "{}")
        limits_ = {one.name: one for one in kept.limits or ()}
        for one in used.limits or ():
            before = limits_.get(one.name)
            limits_[one.name] = one
            if one.status != "ok" and (before is None or before.status != one.status):
                words = usage.words_of(one)
                self.notify(notifications.happened(self.session, f"limit_{one.status}", words))
        told = used.model_dump(exclude_none=True) | {"limits": [*limits_.values()] or None}
        self.session.usage = kept.model_copy(update=told).model_dump_json(exclude_none=True)

    def notify(self, notification: s.Notification) -> None:
        self.box.append_to_all(encode(notification))

    @property
    def in_turn(self) -> bool:
        """Return whether a turn has begun and not ended."""
        return self.busy or bool(self.session.open_message)

    def settle(self) -> None:
        """Set `session.turn` to idle, unless a turn or a call is still open."""
        if not self.in_turn and not self.session.calls:
            self.session.set_turn(Session.Turn.IDLE)

    def _cut_turn(self, reason: str, finish: FinishReason) -> None:
        """End the calls, the stream, the rules and the host that an agent leaves."""
        self.session.rules = self.session.host = self.session.host_state = ""
        cut = self.in_turn
        self.reject_pending(reason)
        approvals.fail_unfinished_calls(self.box, self.session, reason)
        if cut:
            self.open_stream()
        # by somebody, or by a timer
        stopped = reason in ("interrupted", "session_closed", "given_back", "at_the_desk")
        self.close_stream(finish, interrupted=stopped or None)
        self.session.set_turn(Session.Turn.IDLE)

    def stop(
        self, status: str, reason: str, why_rejected: str, finish: FinishReason = "error"
    ) -> None:
        """Close calls, answer and turn after the agent has gone, for now or for good."""
        also = " Its rules have ended." if self.session.rules else ""
        self._cut_turn(why_rejected, finish)
        inbox.forget(self.session, prompts=False)
        self.session.status, self.session.owner = status, None
        self.session.reason = sanitize.storable_reason(reason) + also

    def leave(self, why: str) -> None:
        """Make it an observed session again: given back, or taken back at the desk (D67).

        The process that runs its agent ends that, as after ``end``. ``why``: what rejects its open
        approvals.
        """
        inbox.forget(self.session, prompts=True)
        inbox.wake(self.session)
        self._cut_turn(why, "stop")
        self.session.owner, self.session.expired, self.session.reason = None, False, ""
        self.session.shared = False
        set_kind(self.session, Session.Kind.OBSERVED)

    def end(
        self, reason: SessionEndReason, *, expired: bool = False, row_id: str | None = None
    ) -> None:
        """Close the session, also when another process runs its agent.

        The session may be in any state. The process that runs its agent ends it when it finds that
        the session has no owner: this process at once, another one at its next look
        (limits.POLL_SECONDS). ``expired``: by its grace timer, so it can be resumed; prompts wait
        for that (D60). One of the desk's can be joined again too (D80). ``row_id``: of the
        ``session_end``.
        """
        expired = expired or self.session.shared
        inbox.forget(self.session, prompts=not expired)
        inbox.wake(self.session)
        self._cut_turn("session_closed", "stop")
        self.session.owner, self.session.expired = None, expired
        observed_sessions.close(self.box, self.session, reason, row_id=row_id)


def set_kind(session: Session, kind: Session.Kind) -> None:
    """Change who runs a session, and how devices get its feed; the caller saves."""
    session.kind = kind
    session.feed.kind = Feed.Kind(kind.value)
    Feed.objects.filter(pk=session.feed_id).update(kind=session.feed.kind)


@contextmanager
def writing(session_pk: int, owner: uuid.UUID | None) -> Iterator[SessionWriter]:
    """Open a transaction that writes a session, and save it at the end."""
    with outbox() as box:
        writer = SessionWriter(box, session_pk, owner)
        yield writer
        writer.save()


class SessionLog:
    """Store a running agent's events and take its commands, one transaction a call.

    The methods raise OwnershipLost. A failed try may be repeated: if it had committed and only the
    answer was lost, nothing is done twice. What it must know beside the log is stored in the same
    transactions, so that another process can go on (D79).
    """

    def __init__(self, session: Session) -> None:
        self._session_pk = session.pk
        self._owner = leases.current()
        kept = jsontext.loads(session.host_state) if session.host_state else {}
        self.prompted: bool = kept.get("prompted", False)  # the turn of a prompt has begun
        self.interrupted: bool = kept.get("interrupted", False)  # and was to be stopped
        self._prompt_id: str = kept.get("prompt_id", "")  # its message
        # the agent's id of a call → ours
        self._ids: dict[str | None, str] = dict(kept.get("ids", ()))
        self.acts = session.turn != Session.Turn.IDLE  # as of the last event: also outside a turn
        # when a try took a command, by which that command is known again
        self._taking: datetime | None = None
        # the first message of a try to write, and the ids after it
        self._tried: tuple[str, dict[str | None, str]] | None = None

    def _keep(self, session: Session, ids: dict[str | None, str]) -> None:
        session.host_state = jsontext.dumps(
            {
                "prompted": self.prompted,
                "interrupted": self.interrupted,
                "prompt_id": self._prompt_id,
                "ids": [*ids.items()],
            }
        )

    def not_received(self, received: Collection[int]) -> list[Command]:
        """Return the commands that were taken, and have not come to the agent's host."""
        host = Session.objects.values_list("host", flat=True).get(pk=self._session_pk)
        taken = Command.objects.filter(session=self._session_pk, host=sockets.id_of(host))
        return list(taken.exclude(pk__in=received).order_by("taken_at", "pk"))

    def take(self, *, busy: bool) -> Command | None:
        """Take the next command; a prompt begins the answer in the same transaction."""
        if self._taking is None and not inbox.find_next(self._session_pk, busy=busy):
            if not Session.objects.filter(pk=self._session_pk, owner=self._owner).exists():
                raise OwnershipLost(self._session_pk)
            return None
        with writing(self._session_pk, self._owner) as writer:
            commands = Command.objects.filter(session=writer.session)
            taken = commands.filter(taken_at=self._taking).first() if self._taking else None
            if taken is None and (taken := inbox.find_next(self._session_pk, busy=busy)):
                self._taking = timezone.now()
                if taken.kind == inbox.Kind.STEER and not busy:
                    taken.kind = inbox.Kind.PROMPT  # there is no turn to steer any more
                host = sockets.id_of(writer.session.host)
                marked = {"taken_at": self._taking, "host": host, "kind": taken.kind}
                commands.filter(pk=taken.pk).update(**marked)
                if taken.kind == inbox.Kind.PROMPT:
                    self.prompted, self.interrupted = True, False
                    self._prompt_id = jsontext.loads(taken.payload).get("message_id", "")
                    writer.close_stream("stop")  # of a turn that the agent began itself
                    writer.open_stream()
                    writer.session.set_calls(writer.session.calls)  # open since before
                elif taken.kind == inbox.Kind.INTERRUPT:
                    self.interrupted = self.prompted
                    writer.reject_pending("interrupted")
                self._keep(writer.session, self._ids)
        self._taking = None
        return taken

    def write(self, batch: Sequence[events.Event], number: int, *, busy: bool) -> None:
        """Write events up to that number.

        ``busy``: they are of a turn that runs, or ends with them.
        """
        with outbox() as box:
            if self._tried and LogRow.objects.filter(message_id=self._tried[0]).exists():
                ids = self._tried[1]
            else:
                writer = SessionWriter(box, self._session_pk, self._owner)
                writer.ids, writer.busy = dict(self._ids), busy
                writer.prompt_id = self._prompt_id
                for event in batch:
                    # the end of a turn of the agent's own is not that of the prompt after it
                    if events.ends_prompt(event):
                        self.prompted = self.interrupted = False
                    if isinstance(event, events.StoppedAsking):
                        self.interrupted |= event.interrupted
                    if not (isinstance(event, events.TurnEnded) and event.own and self.prompted):
                        writer.write(event)
                writer.settle()
                self.acts = writer.session.turn != Session.Turn.IDLE
                if writer.session.host:  # its agent lives
                    writer.session.host_seq = max(writer.session.host_seq, number)
                    self._keep(writer.session, writer.ids)
                writer.save()
                ids = writer.ids
                self._tried = (box.rows[0].id, ids) if box.rows else None
        self._ids, self._tried = ids, None

    def call_of(self, tool_call_id: str) -> str | None:
        return next((theirs for theirs, ours in self._ids.items() if ours == tool_call_id), None)
