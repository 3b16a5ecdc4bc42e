"""Decide when a device that lacks a notification is sent a push (D56).

The log is the queue: a subscription has a position in the feed for all devices, and the rows after
it are read in order. Each push is stored with the position, so no process pushes a row twice, and
pushes that were not sent before a restart are sent after it.
"""

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import structlog
from django.utils import timezone

from bridge_project.kernel import failure_alerts, limits, threads
from bridge_project.kernel.background_task import background_task
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.text import without_controls
from devices_app.models import PushSubscription
from devices_app.push import endpoints, sending, subscriptions
from devices_app.push.sending import Outcome, Push
from sessions_app.log.tail import tail
from sessions_app.models import Cursor, Feed, LogRow, Session, ToolCall
from sessions_app.socket import presence

log = structlog.get_logger("bridge.push")

END_SECONDS: Final = 5.0
QUIET: Final = "An agent needs you"
TEST: Final = {"title": "Test", "body": "Pushes of the bridge arrive here."}


@dataclass(frozen=True, slots=True)
class Due:
    """Hold a push that is to be sent now, and the row that it is about."""

    subscription: PushSubscription
    seq: int
    push: Push


def find_due(settled: dict[int, int]) -> tuple[list[Due], bool]:
    """Find the next push of each device, and whether others are not yet due.

    ``settled``: subscription → row up to which nothing is to be pushed; it is brought up to date.
    """
    now, found, waits = timezone.now(), [], False
    newest = Feed.objects.filter(pk=Feed.ALL).values_list("last_seq", flat=True).first() or 0
    connected = set(presence.live().values_list("device_id", flat=True))
    for subscription in subscriptions.usable():
        until = subscription.next_at
        # a moment beyond that was stored by a clock that has been set back since
        if until and now < until <= now + timedelta(seconds=limits.PUSH_RETRY_MAX_SECONDS):
            waits = True
        elif settled.get(subscription.pk, 0) < newest:
            after = max(subscription.position, settled.get(subscription.pk, 0))
            row = _next_row(subscription.device_id, after, now)
            settled[subscription.pk] = row.seq - 1 if row else newest
            proof = timedelta(seconds=limits.PUSH_PROOF_SECONDS)
            is_late = row and abs(now - row.created_at) >= proof
            if row and subscription.device_id in connected and not is_late:
                waits = True  # it may still show that it has it
            elif row:
                found.append(Due(subscription, row.seq, _push(subscription, row)))
    return found, waits


def _next_row(device_id: int, after: int, now: datetime) -> LogRow | None:
    """Return the next row to push that the device has not acknowledged (D27)."""
    cursor = Cursor.objects.filter(feed=Feed.ALL, device=device_id).first()
    position, ahead = (cursor.position, cursor.ahead) if cursor else (0, ())
    rows = LogRow.objects.filter(feed=Feed.ALL, type="notification", seq__gt=max(after, position))
    for row in rows.order_by("seq").iterator():
        if row.seq not in ahead and _is_news(row, now):
            return row
    return None


def _is_news(row: LogRow, now: datetime) -> bool:
    """Return whether a notification should be pushed to a device that lacks it."""
    payload = json.loads(row.frame)["payload"]
    kind = payload["notification_type"]
    if kind == "approval_required" and payload["priority"] == "high":
        session_id, call = payload["session_id"], payload["data"].get("tool_call_id")
        if call is None:  # an MCP server asks, until the session's next event (D65)
            waiting = Session.objects.filter(turn=Session.Turn.WAITING)
            return waiting.filter(session_id=session_id).exists()
        return ToolCall.objects.filter(
            session__session_id=session_id,
            tool_call_id=call,
            decision=ToolCall.Decision.PENDING,
        ).exists()
    recent = now - row.created_at < timedelta(seconds=limits.PUSH_NEWS_SECONDS)
    return kind in ("task_complete", "error") and recent


def _push(subscription: PushSubscription, row: LogRow) -> Push:
    payload = json.loads(row.frame)["payload"]
    kind = payload["notification_type"]
    about = {
        "notification_id": payload["notification_id"],
        "notification_type": kind,
        "session_id": payload["session_id"],
        "tool_call_id": payload["data"].get("tool_call_id"),
    }
    contents: list[dict[str, Any]] = [about | {"title": QUIET, "body": ""}]
    if subscription.detail == PushSubscription.Detail.FULL:
        # a lock screen shows it as it is, so nothing may turn the text of a command round
        shown = {key: without_controls(payload[key]) for key in ("title", "body")}
        contents.insert(0, about | shown)
    topic = uuid.UUID(payload["notification_id"]).hex
    return Push(contents, topic, "high" if kind == "approval_required" else "normal")


def test() -> Push:
    """Return a push that a person asks for, with an id by which its receipt is known."""
    about = {"notification_type": "test", "notification_id": str(uuid.uuid4())}
    return Push([about | TEST], topic="test", ttl=60)


def claim(due: Due) -> bool:
    """Take a push for this process; False when another has taken or sent it."""
    seen = due.subscription
    as_seen = {"endpoint": seen.endpoint, "position": seen.position, "next_at": seen.next_at}
    same = PushSubscription.objects.filter(pk=seen.pk, **as_seen)
    until = timezone.now() + timedelta(seconds=limits.PUSH_CLAIM_SECONDS)
    return same.update(next_at=until, **last(due.push)) == 1


def last(push: Push) -> dict[str, Any]:
    """Return what is stored of a push before it goes, for its receipt may be quick."""
    return {"last_id": push.contents[0]["notification_id"], "last_at": None, "shown_at": None}


def store_outcome(subscription: PushSubscription, outcome: Outcome, seq: int | None) -> None:
    """Store the outcome of a row's push; None: a test's, which is not tried again."""
    # the device may have subscribed elsewhere meanwhile
    same = PushSubscription.objects.filter(pk=subscription.pk, endpoint=subscription.endpoint)
    problem = outcome.problem[:200]
    same.update(
        problem=problem,
        last_at=timezone.now(),
        last_host=endpoints.host_of(subscription.endpoint),
    )
    if outcome.problem:
        log.warning("push_not_taken", device=subscription.device_id, problem=problem)
    if outcome.gone:
        subscriptions.bury(subscription)
    elif seq is None:
        return
    elif outcome.again_in is None:
        same.update(position=seq, next_at=None, tries=0)
    else:
        tries = subscription.tries + 1
        seconds = max(outcome.again_in, limits.PUSH_RETRY_SECONDS * 2 ** min(tries - 1, 10))
        wait = timedelta(seconds=min(seconds, limits.PUSH_RETRY_MAX_SECONDS))
        same.update(next_at=timezone.now() + wait, tries=tries)


async def _deliver(due: Due) -> None:
    if not await threads.writers.run(claim, due):
        return
    try:
        outcome = await threads.push.run(sending.send, due.subscription, due.push)
    except BridgeError as refused:
        outcome = Outcome(refused.message)
    await threads.writers.run(store_outcome, due.subscription, outcome, due.seq)


_waiting: list[Due] = []  # found last, not begun
_sending: dict[int, tuple[str, asyncio.Task[None]]] = {}  # subscription → host, push on its way


async def _run() -> None:
    """Look when the log or the addresses have changed, or one still waits."""
    settled: dict[int, int] = {}
    head, waits = -1, False
    while True:
        await asyncio.sleep(limits.POLL_SECONDS)
        waits = waits or subscriptions.changed.is_set()
        if head == tail.head and not waits:
            continue
        subscriptions.changed.clear()
        upto = tail.head
        try:
            found, waits = await threads.readers.run(find_due, settled)
        except STORAGE_ERRORS:
            continue  # polling reports it
        except Exception:
            log.exception("push_failed")
            failure_alerts.report("INTERNAL_ERROR", "push_failed")
            continue
        head, waits = upto, waits or bool(found)
        # those that failed last time come last
        _waiting[:] = sorted(found, key=lambda due: due.subscription.tries)
        _begin()


def _begin() -> None:
    """Begin what waits, with few senders for each service: one may never answer."""
    busy = Counter(host for host, _ in _sending.values())
    for due in list(_waiting):
        host = endpoints.host_of(due.subscription.endpoint)
        if busy.total() >= limits.PUSH_SENDERS:
            return
        if busy[host] < limits.PUSH_SENDERS_A_HOST and due.subscription.pk not in _sending:
            busy[host] += 1
            _waiting.remove(due)
            task = asyncio.create_task(_deliver(due))
            _sending[due.subscription.pk] = host, task
            task.add_done_callback(partial(_end, due.subscription))


def _end(subscription: PushSubscription, task: asyncio.Task[None]) -> None:
    del _sending[subscription.pk]
    if not task.cancelled() and (error := task.exception()):
        log.error("push_failed", device=subscription.device_id, exc_info=error)
    _begin()


@asynccontextmanager
async def send_pushes() -> AsyncIterator[None]:
    """Send pushes; at the end those on their way have some seconds to finish."""
    async with background_task(_run) if conf.bridge_push == "on" else nullcontext():
        yield
    _waiting.clear()
    if _sending:
        _, late = await asyncio.wait([task for _, task in _sending.values()], timeout=END_SECONDS)
        for task in late:
            task.cancel()
