"""Write an agent's events to the log, and take its commands, each exactly once."""

import uuid
from collections.abc import Sequence
from datetime import datetime

from django.utils import timezone

from sessions_app.agents import events, inbox
from sessions_app.agents.session_writer import OwnershipLost, SessionWriter
from sessions_app.log.outbox import outbox
from sessions_app.models import Command, LogRow, Session


class Transcript:
    """Write one session's log, as its owner; every method is one transaction.

    They raise OwnershipLost, and remember only what has committed. A failed try may be repeated: if
    it had committed and only the answer was lost, nothing is done twice.
    """

    def __init__(self, session_pk: int, owner: uuid.UUID) -> None:
        self._session_pk = session_pk
        self._owner = owner
        self._ids: dict[str, str] = {}  # the agent's id of a call → ours
        # when a try took a command, by which that command is known again
        self._taking: datetime | None = None
        # the first message of a try to write, and the ids after it
        self._tried: tuple[str, dict[str, str]] | None = None

    def take(self, *, busy: bool) -> Command | None:
        """Take the next command; with a prompt the answer's stream begins.

        Both are one transaction: no prompt is lost in silence.
        """
        if self._taking is None and not inbox.find_next(self._session_pk, busy=busy):
            if not Session.objects.filter(pk=self._session_pk, owner=self._owner).exists():
                raise OwnershipLost(self._session_pk)
            return None
        with outbox() as box:
            writer = SessionWriter(box, self._session_pk, self._owner, self._ids)
            taken = inbox.taken_at(self._session_pk, self._taking) if self._taking else None
            if taken is None:
                self._taking = timezone.now()
                taken = inbox.take(self._session_pk, busy=busy, at=self._taking)
                if taken and taken.kind == inbox.Kind.PROMPT:
                    writer.open_stream()
                    writer.session.set_turn(Session.Turn.WORKING)
                elif taken and taken.kind == inbox.Kind.INTERRUPT:
                    writer.reject_pending("interrupted")
                writer.save()
        self._taking = None
        return taken

    def write(self, batch: Sequence[events.Event]) -> None:
        with outbox() as box:
            if self._tried and LogRow.objects.filter(message_id=self._tried[0]).exists():
                ids = self._tried[1]
            else:
                writer = SessionWriter(box, self._session_pk, self._owner, dict(self._ids))
                for event in batch:
                    writer.write(event)
                writer.save()
                ids = writer.ids
                self._tried = (box.rows[0].id, ids) if box.rows else None
        self._ids, self._tried = ids, None

    def call_of(self, tool_call_id: str) -> str | None:
        """Return the agent's id of a call by ours."""
        return next((theirs for theirs, ours in self._ids.items() if ours == tool_call_id), None)
