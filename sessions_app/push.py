"""Push rows to devices that have not received them (D56).

The log is the queue: a subscription has a position in the feed for all devices, and the rows after
it are read in order. Each push is stored with the position, so no process pushes a row twice, and
pushes that were not sent before a restart are sent after it.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from django.db import Error as DatabaseError
from django.db.models import Q
from django.utils import timezone

from bridge_project.kernel import failure_alerts, limits, threads
from bridge_project.kernel.background_task import BackgroundTask
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import readers, writers
from devices_app.models import PushSubscription
from devices_app.push import sending, subscriptions
from devices_app.push.sending import Outcome, Push
from sessions_app.log.tail import tail
from sessions_app.models import Cursor, Feed, LogRow, ToolCall
from sessions_app.socket import presence

log = structlog.get_logger("bridge.push")

STOP_SECONDS: Final = 5.0
QUIET: Final = "An agent needs you"
TEST: Final = Push(
    [{"notification_type": "test", "title": "Test", "body": "Pushes of the bridge arrive here."}],
    topic="test",
    ttl=60,
)


@dataclass(frozen=True, slots=True)
class Due:
    """Hold a push that is to be sent now, and the row that it is about."""

    subscription: PushSubscription
    seq: int
    push: Push


# -- which rows, and when --------------------------------------------------------------------------


def look(settled: dict[int, int]) -> tuple[list[Due], bool]:
    """Return the next push of each device, and whether anything waits for its time.

    ``settled``: subscription → row up to which nothing is to be pushed; it is brought up to date.
    """
    now, found, waits = timezone.now(), [], False
    wanting = list(subscriptions.usable())
    devices = [one.device_id for one in wanting]
    live = presence.live().filter(device__in=devices)
    connected = set(live.values_list("device_id", flat=True))
    cursors = {
        one.device_id: one for one in Cursor.objects.filter(feed=Feed.ALL, device__in=devices)
    }
    for subscription in wanting:
        if subscription.next_at and subscription.next_at > now:
            waits = True
            continue
        cursor = cursors.get(subscription.device_id)
        after = max(subscription.position, settled.get(subscription.pk, 0))
        rows = LogRow.objects.filter(feed=Feed.ALL, type="notification", seq__gt=after)
        columns = ("seq", "frame", "created_at")
        for seq, frame, at in rows.order_by("seq").values_list(*columns).iterator():
            payload = json.loads(frame)["payload"]
            if not _has(cursor, seq) and _is_news(payload, at, now):
                is_late = now - at >= timedelta(seconds=limits.PUSH_PROOF_SECONDS)
                if subscription.device_id in connected and not is_late:
                    waits = True  # it may still show that it has it
                else:
                    found.append(Due(subscription, seq, _push(subscription, payload)))
                break
            settled[subscription.pk] = seq
    return found, waits


def _has(cursor: Cursor | None, seq: int) -> bool:
    """Tell whether a device has proven that it received a row (D27)."""
    return cursor is not None and (seq <= cursor.position or seq in cursor.ahead)


def _is_news(payload: dict[str, Any], at: datetime, now: datetime) -> bool:
    """Tell whether a notification should be pushed to a device that lacks it."""
    kind = payload["notification_type"]
    if kind == "approval_required" and payload["priority"] == "high":
        return ToolCall.objects.filter(
            session__session_id=payload["session_id"],
            tool_call_id=payload["data"]["tool_call_id"],
            decision=ToolCall.Decision.PENDING,
        ).exists()
    recent = now - at < timedelta(seconds=limits.PUSH_NEWS_SECONDS)
    return kind in ("task_complete", "error") and recent


def _push(subscription: PushSubscription, payload: dict[str, Any]) -> Push:
    kind = payload["notification_type"]
    about = {
        "notification_id": payload["notification_id"],
        "notification_type": kind,
        "session_id": payload["session_id"],
        "tool_call_id": payload["data"].get("tool_call_id"),
    }
    contents: list[dict[str, Any]] = [about | {"title": QUIET, "body": ""}]
    if subscription.detail == PushSubscription.Detail.FULL:
        contents.insert(0, about | {"title": payload["title"], "body": payload["body"]})
    topic = uuid.UUID(payload["notification_id"]).hex
    return Push(contents, topic, "high" if kind == "approval_required" else "normal")


# -- sending ---------------------------------------------------------------------------------------


def claim(due: Due) -> bool:
    """Take a push for this process; False when another has taken or sent it."""
    now = timezone.now()
    free = Q(next_at=None) | Q(next_at__lte=now)
    same = PushSubscription.objects.filter(free, pk=due.subscription.pk)
    until = now + timedelta(seconds=limits.PUSH_CLAIM_SECONDS)
    return same.filter(position=due.subscription.position).update(next_at=until) == 1


def settle(subscription: PushSubscription, outcome: Outcome, seq: int | None) -> None:
    """Store the outcome of a row's push; None: a test's, which is not tried again."""
    # the device may have subscribed elsewhere meanwhile
    same = PushSubscription.objects.filter(pk=subscription.pk)
    problem = outcome.problem[:200]
    if outcome.problem:
        log.warning("push_not_taken", device=subscription.device_id, problem=problem)
    if outcome.gone:
        same.delete()
    elif seq is None:
        same.update(problem=problem)
    elif outcome.again_in is None:
        same.update(position=seq, next_at=None, tries=0, problem=problem)
    else:
        tries = subscription.tries + 1
        seconds = max(outcome.again_in, limits.PUSH_RETRY_SECONDS * 2 ** min(tries - 1, 10))
        wait = timedelta(seconds=min(seconds, limits.PUSH_RETRY_MAX_SECONDS))
        same.update(next_at=timezone.now() + wait, tries=tries, problem=problem)


async def _deliver(due: Due) -> None:
    if not await writers.run(claim, due):
        return
    try:
        outcome = await threads.push.run(sending.send, due.subscription, due.push)
    except BridgeError as refused:
        outcome = Outcome(refused.message)
    await writers.run(settle, due.subscription, outcome, due.seq)


# -- in a serving process --------------------------------------------------------------------------

_sending: dict[int, asyncio.Task[None]] = {}  # subscription → its push on the way


async def _run() -> None:
    """Look whenever the log has grown, and every POLL_SECONDS while something waits."""
    settled: dict[int, int] = {}
    head, waits = -1, False
    while True:
        await asyncio.sleep(limits.POLL_SECONDS)
        if head == tail.head and not waits:
            continue
        upto = tail.head
        try:
            found, waits = await readers.run(look, settled)
        except DatabaseError:
            continue  # polling reports it
        except Exception:
            log.exception("push_failed")
            failure_alerts.report("INTERNAL_ERROR", "push_failed")
            continue
        head, waits = upto, waits or bool(found)
        for due in found:
            if due.subscription.pk not in _sending:
                _begin(due)


def _begin(due: Due) -> None:
    def ended(task: asyncio.Task[None]) -> None:
        del _sending[due.subscription.pk]
        if not task.cancelled() and (error := task.exception()):
            log.error("push_failed", device=due.subscription.device_id, exc_info=error)

    task = _sending[due.subscription.pk] = asyncio.create_task(_deliver(due))
    task.add_done_callback(ended)


_looking = BackgroundTask(_run)


async def start() -> None:
    if conf.bridge_push == "on":
        await _looking.start()


async def stop() -> None:
    """Stop; pushes on their way have some seconds to finish."""
    await _looking.stop()
    if _sending:
        _, late = await asyncio.wait(_sending.values(), timeout=STOP_SECONDS)
        for task in late:
            task.cancel()
