"""Give an agent the messages that wait for their time (D71)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import structlog
from django.utils import timezone

from bridge_project.kernel import failure_alerts, limits
from bridge_project.kernel.ages import ages
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.errors import BridgeError, invalid_message
from bridge_project.kernel.threads import readers, writers
from bridge_project.protocol import jsontext
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.resources import Usage
from bridge_project.protocol.types import now_text, parse_timestamp
from devices_app.models import Device
from sessions_app import notifications, session_view
from sessions_app.agents import inbox
from sessions_app.log.outbox import outbox
from sessions_app.models import Command, Session

log = structlog.get_logger("bridge.agent")

Resume = Callable[[Session, Device, str], Awaitable[object]]


def due_at(session: Session, not_before: str | None) -> datetime | None:
    """Return when a message is to be given; None: at once, its time may be over.

    Raises PROTO_INVALID_MESSAGE for a time too far ahead, a limit whose end nobody knows.
    """
    if not_before == "limit_reset":
        not_before = _limit_end(session)
        if not_before is None:
            raise _refused("The agent has not said when its limit ends.", "known end of a limit")
    if not_before is None:
        return None
    at, now = parse_timestamp(not_before), timezone.now()
    if at - now > timedelta(seconds=limits.LATER_MAX_SECONDS):
        rule = f"at most {limits.LATER_MAX_SECONDS // 86_400} days ahead"
        raise _refused("A message cannot wait so long.", rule)
    return at if at > now else None


def _refused(words: str, rule: str) -> BridgeError:
    return invalid_message(words, "not_before", rule, "string")


def _limit_end(session: Session) -> str | None:
    """Return when the last limit ends that is reached, or else near."""
    limits_ = Usage.model_validate_json(session.usage or "{}").limits or ()
    for status in ("reached", "near"):
        ends = [one.resets_at for one in limits_ if one.status == status and one.resets_at]
        if ends:
            return max(ends, key=parse_timestamp)
    return None


def steady(due: datetime) -> str:
    """Return when a message is due by the clock for ages, which no jump makes early."""
    return now_text(ages.now() + (due - timezone.now()))


async def follow(resume: Resume) -> None:
    """Look for messages whose time has come, until it is cancelled.

    ``resume`` starts the agent of a session that rests.
    """
    under_way: set[int] = set()
    async with asyncio.TaskGroup() as sending:
        while True:
            try:
                for one in await readers.run(_find_due):
                    if one.pk not in under_way:
                        under_way.add(one.pk)
                        sending.create_task(_send(one, under_way, resume))
            except STORAGE_ERRORS:
                pass  # polling reports it
            await asyncio.sleep(limits.LATER_CHECK_SECONDS)


def _find_due() -> list[Command]:
    waiting = Command.objects.filter(kind=inbox.Kind.LATER, due_at__lte=timezone.now())
    return [
        one
        for one in waiting.select_related("session")
        if parse_timestamp(jsontext.loads(one.payload)["steady"]) <= ages.now()
    ]


async def _send(command: Command, under_way: set[int], resume: Resume) -> None:
    """Have the agent given a message, after resuming a session that rests."""
    try:
        if session_view.is_at_rest(command.session):
            sender = jsontext.loads(command.payload)["device"]
            device = await readers.run(Device.objects.get, pk=sender)
            await resume(command.session, device, "")
        await writers.run(_give, command.pk)
    except BridgeError as error:
        await writers.run(_put_off, command.pk, error)
    except STORAGE_ERRORS:
        pass  # the next look tries again
    except Exception:
        log.exception("later_failed", session=command.session.session_id)
        failure_alerts.report("INTERNAL_ERROR", "later_failed")
    finally:
        under_way.discard(command.pk)


def _waiting(command_pk: int) -> Command | None:
    """Return a message that still waits; another process may have given it."""
    waiting = Command.objects.filter(pk=command_pk, kind=inbox.Kind.LATER)
    return waiting.select_related("session").first()


def _give(command_pk: int) -> None:
    """Let the agent's process take a message. Raises SESS_NOT_ACTIVE."""
    with outbox() as box:
        if (one := _waiting(command_pk)) is None or one.due_at is None:
            return
        session = one.session
        if session.kind != Session.Kind.BRIDGE or session.status not in Session.RUNS:
            raise BridgeError("SESS_NOT_ACTIVE", session_id=session.session_id)
        if timezone.now() - one.due_at > timedelta(seconds=limits.LATER_LATE_SECONDS):
            why = f"The bridge did not run at {now_text(one.due_at)}; the agent is given it now."
            box.append_to_all(encode(notifications.happened(session, "sent_late", why)))
        Command.objects.filter(pk=one.pk).update(kind=inbox.Kind.PROMPT, due_at=None)
        inbox.wake(session)


def _put_off(command_pk: int, error: BridgeError) -> None:
    """Try again in a minute what may pass, for an hour; else refuse the message."""
    with outbox() as box:
        if (one := _waiting(command_pk)) is None:
            return
        now, payload = timezone.now(), jsontext.loads(one.payload)
        first = payload.setdefault("tried", now_text(now))
        over = now - parse_timestamp(first) > timedelta(seconds=limits.LATER_RETRIES_SECONDS)
        if error.row.momentary and not over:
            one.due_at = now + timedelta(seconds=limits.LATER_RETRY_SECONDS)
            one.payload = jsontext.dumps(payload)
            one.save(update_fields=["due_at", "payload"])
            return
        one.delete()
        session = one.session
        row = inbox.state_row(session.session_id, payload["message_id"], "refused")
        box.append_to_all(row)
        box.append_to_all(encode(notifications.happened(session, "not_sent", error.message)))
