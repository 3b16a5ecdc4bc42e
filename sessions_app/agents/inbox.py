"""Queue commands for an agent in the transaction that causes them (D35, D46)."""

import hashlib
import uuid
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, QuerySet, Sum
from django.db.models.functions import Length

from bridge_project.kernel import limits
from bridge_project.kernel.ages import ages
from bridge_project.kernel.database import delete_in_steps
from bridge_project.protocol import jsontext
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.catalogue import Encoded, encode
from bridge_project.protocol.types import HookEventName, MessageState, now_text
from sessions_app.log.outbox import Outbox
from sessions_app.models import Command, LogRow, Session

Kind = Command.Kind
PROMPTS = (Kind.PROMPT, Kind.STEER, Kind.LATER)

# Session → what wakes its runner, for sessions of this process; callable from any thread. What
# other processes commit is found by looking.
runners: dict[int, Callable[[], object]] = {}


def add(session: Session, kind: Kind, **payload: Any) -> int:
    """Queue a command, in the caller's transaction, and return its key."""
    command = Command.objects.create(session=session, kind=kind, payload=jsontext.dumps(payload))
    wake(session)
    return command.pk


def prompt_event(session_id: str, **payload: Any) -> s.AgentEvent:
    """Describe a prompt as the hook event that an observed session has for it (D52)."""
    name: HookEventName = "UserPromptSubmit"
    ids = {"event_id": str(uuid.uuid4()), "session_id": session_id, "timestamp": now_text()}
    return s.AgentEvent(event=name, event_type=name, **ids, payload=payload)


def wake(session: Session) -> None:
    """Wake the session's runner once the caller's transaction commits."""
    transaction.on_commit(lambda: _wake(session.pk))


def _wake(session_pk: int) -> None:
    if (runner := runners.get(session_pk)) is not None:
        runner()


def _ready() -> QuerySet[Command]:
    """Return the commands that may be taken: neither taken, nor before their time."""
    return Command.objects.filter(taken_at=None).exclude(kind=Kind.LATER)


def find_next(session_pk: int, *, busy: bool) -> Command | None:
    """Return the next command; ``busy``: a turn runs, so prompts wait."""
    found = _ready().filter(session_id=session_pk).order_by("pk")
    return (found.exclude(kind=Kind.PROMPT) if busy else found).first()


def prompts_waiting(session_pk: int, *, later: bool = False) -> tuple[int, int]:
    """Return how many prompts wait, for the agent or their time, and their characters."""
    kinds = (Kind.LATER,) if later else (Kind.PROMPT, Kind.STEER)
    waiting = Command.objects.filter(session_id=session_pk, kind__in=kinds, taken_at=None)
    found = waiting.aggregate(count=Count("pk"), length=Sum(Length("payload")))
    return found["count"], found["length"] or 0


def waiting(session_pks: Collection[int]) -> set[int]:
    """Return the sessions with a waiting command."""
    found = _ready().filter(session_id__in=list(session_pks))
    return set(found.values_list("session_id", flat=True))


def withdraw(box: Outbox, prompts: QuerySet[Command], name: str, value: Any) -> list[Session]:
    """Delete waiting prompts by a field of their payload, and tell every device (D71).

    Return their sessions.
    """
    found = {}
    for one in prompts.filter(kind__in=PROMPTS, taken_at=None).select_related("session"):
        payload = jsontext.loads(one.payload)
        if payload.get(name) == value:
            found[one.pk] = one.session
            if message_id := payload.get("message_id"):  # an earlier version has stored none
                report_withdrawn(box, one.session, message_id)
    Command.objects.filter(pk__in=found).delete()
    return list({one.pk: one for one in found.values()}.values())


def report_withdrawn(box: Outbox, session: Session, message_id: str) -> None:
    """Tell every device that no agent will be given a message (D71)."""
    row_id, ids = _withdrawal(session, message_id), (session.session_id, message_id)
    known = LogRow.objects.filter(message_id=row_id).exists()  # it came all the same, later
    box.append_to_all(state_row(*ids, "withdrawn", None if known else row_id))


def state_row(
    session_id: str, message_id: str, state: MessageState, row_id: str | None = None
) -> Encoded:
    about = s.MessageState(session_id=session_id, message_id=message_id, state=state)
    return encode(about, id=row_id)


def is_withdrawn(session: Session, message_id: str) -> bool:
    """Return whether a message was withdrawn within the last hour."""
    since = ages.now() - timedelta(seconds=limits.WITHDRAWAL_KEEP_SECONDS)
    rows = LogRow.objects.filter(message_id=_withdrawal(session, message_id))
    return rows.filter(created_at__gt=since).exists()


def _withdrawal(session: Session, message_id: str) -> str:
    """Return the id of the row that tells of a withdrawal: the row is found by it."""
    name = f"withdrawn {session.session_id} {message_id}".encode("utf-8", "surrogatepass")
    return str(uuid.UUID(bytes=hashlib.sha256(name).digest()[:16], version=4))


def forget(session: Session, *, prompts: bool) -> None:
    """Delete the waiting commands of a session whose agent has gone.

    Prompts wait for the agent that resumes, unless the session is over.
    """
    void = Command.objects.filter(session=session, taken_at=None)
    (void if prompts else void.exclude(kind__in=PROMPTS)).delete()


def forget_old() -> int:
    """Delete old commands that were taken (`forget`: the others); return how many."""
    before = ages.now() - timedelta(seconds=limits.COMMAND_KEEP_SECONDS)
    return delete_in_steps(Command.objects.filter(created_at__lt=before).exclude(taken_at=None))
