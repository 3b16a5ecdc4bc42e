"""What sockets tell a running session, on whichever process it runs: a durable inbox, written with
what caused it and taken once (D35, D46).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Sum
from django.db.models.functions import Length
from django.utils import timezone

from bridge_project.kernel import limits
from bridge_project.kernel.database import delete_in_steps
from bridge_project.protocol import jsontext
from sessions_app.models import Command, Session

Kind = Command.Kind

woken: list[Callable[[int], None]] = []
"""Told of each session for which this process has committed a command, from any thread. What other processes commit is found by looking."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A command that is now this process's to carry out."""

    kind: Kind
    payload: dict[str, Any]


def add(session: Session, kind: Kind, **payload: Any) -> None:
    """Queue a command, in the caller's transaction."""
    Command.objects.create(session=session, kind=kind, payload=jsontext.dumps(payload))
    wake(session)


def wake(session: Session) -> None:
    """Have whoever runs the session here look at it, once the caller's transaction commits."""
    transaction.on_commit(lambda: _wake(session.pk))


def take(session_pk: int, *, busy: bool, at: datetime | None = None) -> Taken | None:
    """The next command, marked as taken ``at`` that moment, in the order in which they came; while
    a turn runs (``busy``), prompts wait.

    In the caller's transaction.
    """
    command = _waiting(session_pk, busy=busy)
    if command is None:
        return None
    Command.objects.filter(pk=command.pk).update(taken_at=at or timezone.now())
    return _taken(command)


def taken_at(session_pk: int, moment: datetime) -> Taken | None:
    """What was taken at that very moment: by a transaction that committed, though whoever took it
    was not told so.
    """
    command = Command.objects.filter(session_id=session_pk, taken_at=moment).first()
    return _taken(command) if command is not None else None


def _taken(command: Command) -> Taken:
    return Taken(Kind(command.kind), json.loads(command.payload))


def said_since(session_pk: int, content: str, moment: datetime) -> bool:
    """Whether this prompt has been queued since, taken or not."""
    return Command.objects.filter(
        session_id=session_pk,
        kind=Kind.PROMPT,
        created_at__gte=moment,
        payload=jsontext.dumps({"content": content}),
    ).exists()


def prompts_waiting(session_pk: int) -> tuple[int, int]:
    """How many, and their characters."""
    waiting = Command.objects.filter(session_id=session_pk, kind=Kind.PROMPT, taken_at=None)
    found = waiting.aggregate(count=Count("pk"), length=Sum(Length("payload")))
    return found["count"], found["length"] or 0


def is_waiting(session_pk: int, *, busy: bool) -> bool:
    return _waiting(session_pk, busy=busy) is not None


def _waiting(session_pk: int, *, busy: bool) -> Command | None:
    found = Command.objects.filter(session_id=session_pk, taken_at=None).order_by("pk")
    return (found.exclude(kind=Kind.PROMPT) if busy else found).first()


def waiting(session_pks: Collection[int]) -> set[int]:
    """Those of the sessions for which a command waits."""
    return set(
        Command.objects.filter(session_id__in=list(session_pks), taken_at=None).values_list(
            "session_id", flat=True
        )
    )


def forget(session: Session, *, prompts: bool) -> None:
    """What nobody has taken is void: the agent is gone. Prompts wait for the agent that resumes,
    unless the session is over.
    """
    void = Command.objects.filter(session=session, taken_at=None)
    (void if prompts else void.exclude(kind=Kind.PROMPT)).delete()


def forget_old() -> int:
    """Delete old commands that were taken; return how many.

    One that was not taken is deleted with its session's agent (`forget`). A prompt of a paused
    session waits for as long as the session does.
    """
    before = timezone.now() - timedelta(seconds=limits.COMMAND_KEEP_SECONDS)
    return delete_in_steps(Command.objects.filter(created_at__lt=before).exclude(taken_at=None))


def _wake(session_pk: int) -> None:
    for call in woken:
        call(session_pk)
