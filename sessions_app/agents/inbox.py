"""Queue commands for an agent in the transaction that causes them (D35, D46)."""

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Sum
from django.db.models.functions import Length

from bridge_project.kernel import limits
from bridge_project.kernel.ages import ages
from bridge_project.kernel.database import delete_in_steps
from bridge_project.protocol import jsontext
from sessions_app.models import Command, Session

Kind = Command.Kind

# Session → what wakes its runner, for sessions of this process; callable from any thread. What
# other processes commit is found by looking.
runners: dict[int, Callable[[], object]] = {}


def add(session: Session, kind: Kind, **payload: Any) -> int:
    """Queue a command, in the caller's transaction, and return its key."""
    command = Command.objects.create(session=session, kind=kind, payload=jsontext.dumps(payload))
    wake(session)
    return command.pk


def wake(session: Session) -> None:
    """Wake the session's runner once the caller's transaction commits."""
    transaction.on_commit(lambda: _wake(session.pk))


def _wake(session_pk: int) -> None:
    if (runner := runners.get(session_pk)) is not None:
        runner()


def find_next(session_pk: int, *, busy: bool) -> Command | None:
    """Return the next command; ``busy``: a turn runs, so prompts wait."""
    found = Command.objects.filter(session_id=session_pk, taken_at=None).order_by("pk")
    return (found.exclude(kind=Kind.PROMPT) if busy else found).first()


def prompts_waiting(session_pk: int) -> tuple[int, int]:
    """Return how many prompts wait, and their characters."""
    waiting = Command.objects.filter(session_id=session_pk, kind=Kind.PROMPT, taken_at=None)
    found = waiting.aggregate(count=Count("pk"), length=Sum(Length("payload")))
    return found["count"], found["length"] or 0


def waiting(session_pks: Collection[int]) -> set[int]:
    """Return the sessions with a waiting command."""
    found = Command.objects.filter(session_id__in=list(session_pks), taken_at=None)
    return set(found.values_list("session_id", flat=True))


def withdraw(device_pk: int) -> list[Session]:
    """Delete the prompts of a device that wait; return their sessions."""
    prompts = Command.objects.filter(kind=Kind.PROMPT, taken_at=None)
    found = {
        pk: session_pk
        for pk, session_pk, payload in prompts.values_list("pk", "session", "payload").iterator()
        if jsontext.loads(payload).get("device") == device_pk
    }
    Command.objects.filter(pk__in=found).delete()
    return list(Session.objects.filter(pk__in=set(found.values())))


def forget(session: Session, *, prompts: bool) -> None:
    """Delete the waiting commands of a session whose agent has gone.

    Prompts wait for the agent that resumes, unless the session is over.
    """
    void = Command.objects.filter(session=session, taken_at=None)
    (void if prompts else void.exclude(kind=Kind.PROMPT)).delete()


def forget_old() -> int:
    """Delete old commands that were taken (`forget`: the others); return how many."""
    before = ages.now() - timedelta(seconds=limits.COMMAND_KEEP_SECONDS)
    return delete_in_steps(Command.objects.filter(created_at__lt=before).exclude(taken_at=None))
