"""Writes down what an agent says: neutral events become rows of its session's log, approvals and
states (SPEC WebSocket operations; D35, D37, D40).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone

from bridge_project.http.error_body import error_payload
from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.resources import ToolOutcome
from bridge_project.protocol.types import FinishReason, NotificationType
from sessions_app import notifications
from sessions_app.agents import driver, inbox
from sessions_app.agents.sanitize import bounded, plain, reason_of, storable, whole
from sessions_app.approvals import service as approvals
from sessions_app.approvals.tool_call import Call, usable_id
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import LogRow, Session, ToolCall
from sessions_app.observed import sessions as observed_sessions
from sessions_app.socket import presence

_SAVED = (
    "open_message",
    "resume_id",
    "status",
    "reason",
    "closed_at",
    "pending_approvals",
    "last_activity_at",
    "owner",
    "asks",
)


class Lost(Exception):
    """The session is not this process's any more: it was ended, or another process has taken this
    one for dead.
    """


class Transcript:
    """Of one session, while ``owner`` runs its agent. Every method is one transaction, raises Lost,
    and remembers only what has committed.

    One that failed is tried again: what had committed all the same, when the connection broke
    before it was told, is not done twice.
    """

    def __init__(self, session_pk: int, owner: uuid.UUID) -> None:
        self._session_pk = session_pk
        self._owner = owner
        self._ids: dict[str, str] = {}  # the agent's id of a call → ours
        # by which a command is known again that was taken by a try
        self._taking: datetime | None = None
        # the first message of a try to write, and the ids after it
        self._tried: tuple[str, dict[str, str]] | None = None

    def take(self, *, busy: bool) -> inbox.Taken | None:
        """The next command. With a prompt the answer's stream begins, in the same transaction: a
        prompt that was taken is never lost in silence.
        """
        if self._taking is None and not inbox.is_waiting(self._session_pk, busy=busy):
            if not Session.objects.filter(pk=self._session_pk, owner=self._owner).exists():
                raise Lost(self._session_pk)
            return None
        with outbox() as box:
            page = Page(box, self._session_pk, self._ids, self._owner)
            taken = (
                inbox.taken_at(self._session_pk, self._taking) if self._taking is not None else None
            )
            if taken is None:
                taken = self._take(page, busy=busy)
        self._taking = None
        return taken

    def _take(self, page: Page, *, busy: bool) -> inbox.Taken | None:
        self._taking = timezone.now()
        taken = inbox.take(self._session_pk, busy=busy, at=self._taking)
        if taken is not None and taken.kind == inbox.Kind.PROMPT:
            page.open()
        elif taken is not None and taken.kind == inbox.Kind.INTERRUPT:
            page.reject_pending("interrupted")
        page.save()
        return taken

    def write(self, events: Sequence[driver.Event]) -> None:
        with outbox() as box:
            if (
                self._tried is not None
                and LogRow.objects.filter(message_id=self._tried[0]).exists()
            ):
                ids = self._tried[1]
            else:
                page = Page(box, self._session_pk, dict(self._ids), self._owner)
                for event in events:
                    page.write(event)
                page.save()
                ids = page.ids
                self._tried = (box.rows[0].id, ids) if box.rows else None
        self._ids, self._tried = ids, None

    def call_of(self, tool_call_id: str) -> str | None:
        """The agent's id of a call that has ours."""
        return next((theirs for theirs, ours in self._ids.items() if ours == tool_call_id), None)


class Page:
    """What is written of a session in one transaction. Raises Lost when the session belongs to
    another than ``owner``; None: to whomever.
    """

    def __init__(
        self, box: Outbox, session_pk: int, ids: dict[str, str], owner: uuid.UUID | None
    ) -> None:
        session = Session.objects.select_related("feed").filter(pk=session_pk).first()
        if session is None or (owner is not None and session.owner != owner):
            raise Lost(session_pk)
        self.box = box
        self.session = session
        self.ids = ids
        self._writers: dict[type[Any], Callable[[Any], None]] = {
            driver.Chunk: self._chunk,
            driver.ToolStarted: self._used,
            driver.ApprovalAsked: self._asked,
            driver.ApprovalWithdrawn: self._withdrawn,
            driver.ToolSucceeded: self._done,
            driver.ToolFailed: self._failed,
            driver.TurnEnded: self._ended,
            driver.SessionIdentified: self._identified,
            driver.StoppedAsking: self._strayed,
            driver.AgentDied: self._died,
        }

    def write(self, event: driver.Event) -> None:
        self._writers[type(event)](event)

    def save(self) -> None:
        self.session.last_activity_at = self.box.now
        self.session.save(update_fields=_SAVED)

    # -- the stream --------------------------------------------------------------------------------

    def open(self) -> None:
        if not self.session.open_message:
            self.session.open_message = str(uuid.uuid4())
            self._append(
                s.StreamStart(
                    session_id=self.session.session_id, message_id=self.session.open_message
                )
            )

    def close(self, reason: FinishReason, usage: Mapping[str, Any] | None = None) -> None:
        if self.session.open_message:
            end = s.StreamEnd(
                session_id=self.session.session_id,
                message_id=self.session.open_message,
                finish_reason=reason,
                usage=plain(dict(usage or {})) or None,
            )
            self._append(end)
            self.session.open_message = ""

    def _append(self, payload: Any) -> None:
        self.box.append(self.session.feed, encode(payload))

    def _chunk(self, event: driver.Chunk) -> None:
        self.open()
        ids = {"session_id": self.session.session_id, "message_id": self.session.open_message}
        for start in range(0, len(event.content), limits.STREAM_CHUNK_CHARS):
            piece = event.content[start : start + limits.STREAM_CHUNK_CHARS]
            self._append(s.StreamChunk(**ids, content=whole(piece), is_tool_use=event.is_tool_use))

    # -- tools -------------------------------------------------------------------------------------

    def _used(self, event: driver.ToolStarted) -> None:
        self.close("tool_call")
        self._know(event.call, approvals.report(self.box, self.session, storable(event.call)))

    def _asked(self, event: driver.ApprovalAsked) -> None:
        self.close("tool_call")
        self._know(
            event.call,
            approvals.ask(self.box, self.session, storable(event.call), source="agent_sdk"),
        )

    def _know(self, call: Call, record: ToolCall) -> None:
        if call.id is not None:
            self.ids[call.id] = record.tool_call_id

    def _withdrawn(self, event: driver.ApprovalWithdrawn) -> None:
        approvals.withdraw(
            self.box, self.session, self.ids.get(event.call_id, event.call_id), reason="interrupted"
        )

    def _done(self, event: driver.ToolSucceeded) -> None:
        outcome = event.outcome
        said = {
            "content": bounded(outcome.content),
            "error": outcome.error and bounded(outcome.error),
        }
        outcome = outcome.model_copy(
            update=said | {"diff": plain(outcome.diff), "metadata": plain(outcome.metadata)}
        )
        approvals.conclude(
            self.box, self.session, self._ours(event.call), storable(event.call), outcome
        )

    def _failed(self, event: driver.ToolFailed) -> None:
        tool_call_id, details = self._ours(event.call), event.details
        said = {
            name: value and bounded(value)
            for name, value in (("stdout", details.stdout), ("stderr", details.stderr))
        }
        error = s.ToolError(
            session_id=self.session.session_id,
            tool_call_id=tool_call_id,
            tool=whole(event.call.tool),
            code=event.code,
            message=bounded(event.message),
            details=details.model_copy(update=said),
            retryable=event.retries > 0,
            max_retries=event.retries,
        )
        took = round(details.execution_time_ms) if details.execution_time_ms is not None else None
        outcome = ToolOutcome(
            success=False,
            content=said["stderr"] or said["stdout"] or error.message,
            error=error.message,
            duration_ms=took,
        )
        approvals.conclude(
            self.box, self.session, tool_call_id, storable(event.call), outcome, error
        )

    def _ours(self, call: Call) -> str:
        """The id under which devices know a call that is over."""
        known = self.ids.pop(call.id, None) if call.id is not None else None
        return known or usable_id(call.id) or str(uuid.uuid4())

    # -- the turn and the session ------------------------------------------------------------------

    def _ended(self, event: driver.TurnEnded) -> None:
        self.reject_pending("turn_ended")
        self.open()
        self.close(event.finish_reason, event.usage)
        if event.error:
            self.fail(event.error)
        elif not presence.followed([self.session.pk]):
            self.notify("task_complete", "The agent is done", self.session.title)

    def reject_pending(self, reason: str) -> None:
        approvals.reject_pending(
            self.box, self.session, by=ToolCall.DecidedBy.BRIDGE, reason=reason
        )

    def fail(self, why: str) -> None:
        """The agent failed: said to whoever is in the session, and to every device as a
        notification (D51).
        """
        error = BridgeError("AGENT_ERROR", reason_of(why))
        self._append(error_payload(error, self.session.session_id))
        self.notify("error", "The agent failed", why)

    def notify(self, type_: NotificationType, title: str, body: str) -> None:
        priority = {"error": "high", "task_complete": "normal"}.get(type_, "low")
        data = {"code": "AGENT_ERROR"} if type_ == "error" else {}
        self.box.append_to_all(
            encode(
                notifications.reported(
                    self.session.session_id,
                    type_,
                    title,
                    reason_of(body),
                    priority,  # type: ignore[arg-type]
                    **data,
                )
            )
        )

    def tell_asks(self) -> None:
        """Tell every device that the agent may act without asking."""
        name = self.session.agent_type
        if self.session.asks is None:
            title, body = (
                f"Nobody knows whether {name} asks",
                f"{name} may run commands and change files without asking you.",
            )
        else:
            title, body = (
                f"{name} does not ask",
                f"{name} runs commands and changes files without asking you: BRIDGE_ACP_UNASKED lets it.",
            )
        self.box.append_to_all(
            encode(
                notifications.reported(
                    self.session.session_id,
                    "agent_notification",
                    title,
                    body,
                    "high",
                    asks=self.session.asks,
                )
            )
        )

    def _identified(self, event: driver.SessionIdentified) -> None:
        self.session.resume_id = whole(event.resume_id).replace("\x00", "")

    def _strayed(self, event: driver.StoppedAsking) -> None:
        self.notify("error", "The agent stopped asking", event.reason)

    def _died(self, event: driver.AgentDied) -> None:
        self.stop(Session.Status.ERROR, event.reason, "agent_died")
        self.fail(event.reason)

    def stop(
        self, status: str, reason: str, why_rejected: str, finish: FinishReason = "error"
    ) -> None:
        """The agent is gone, for now or for good: nothing of it stays open."""
        self.close(finish)
        self.reject_pending(why_rejected)
        approvals.abandon(self.box, self.session)
        inbox.forget(self.session, prompts=False)
        self.session.status, self.session.reason, self.session.owner = (
            status,
            reason_of(reason),
            None,
        )


# -- the states (D35) ------------------------------------------------------------------------------


def ready(session_pk: int, owner: uuid.UUID, asks: bool | None) -> None:
    """The agent takes prompts. A session that is new is announced to all devices.

    They are told once when its agent does not ask, or nobody knows whether it does (D59).
    """
    with outbox() as box:
        page = Page(box, session_pk, {}, owner)
        if page.session.status == Session.Status.CREATED:
            observed_sessions.announce_start(box, page.session)
            told: bool | None = True
        else:
            told = page.session.asks
        page.session.asks = asks
        if asks is not True and asks is not told:
            page.tell_asks()
        page.session.status, page.session.reason = Session.Status.ACTIVE, ""
        page.save()


def pause(
    session_pk: int,
    owner: uuid.UUID,
    reason: str,
    *,
    finish: FinishReason = "error",
    notice: NotificationType | None = None,
) -> None:
    """The session's agent is gone; it can be resumed. ``notice``: the notification that says so to
    all devices, if any.
    """
    with outbox() as box:
        page = Page(box, session_pk, {}, owner)
        if page.session.status in Session.RUNS:
            page.stop(
                Session.Status.PAUSED,
                reason,
                "interrupted" if finish == "stop" else "session_paused",
                finish,
            )
            if notice is not None:
                page.notify(notice, "The session was paused", reason)
        else:  # it was being resumed
            page.session.owner = None
        page.save()


def release(session_pk: int, owner: uuid.UUID, reason: str) -> None:
    """The session could not be resumed and stays what it was."""
    with outbox() as box:
        page = Page(box, session_pk, {}, owner)
        page.session.owner, page.session.reason = None, reason_of(reason)
        page.save()


def broken(session_pk: int, owner: uuid.UUID, reason: str) -> None:
    """The session's agent could not be started, or the bridge failed with it."""
    with outbox() as box:
        page = Page(box, session_pk, {}, owner)
        page.stop(Session.Status.ERROR, reason, "agent_died")
        page.fail(reason)
        page.save()


def close(page: Page, reason: Any) -> None:
    """Close a session, whatever its state and whoever runs its agent.

    The process that runs it ends the agent when it finds that the session has no owner any more:
    this process at once, another one at its next look (limits.POLL_SECONDS).
    """
    inbox.forget(page.session, prompts=True)
    inbox.wake(page.session)
    page.close("stop")
    page.session.owner = None
    observed_sessions.close(page.box, page.session, reason)
    page.save()


def expire(session_pk: int, owner: uuid.UUID) -> None:
    """Nobody has watched the session for the grace time (D35)."""
    with outbox() as box:
        page = Page(box, session_pk, {}, owner)
        page.session.owner = None
        close(page, "timeout")
