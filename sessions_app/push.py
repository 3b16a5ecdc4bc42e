"""Decide when a device or another address is sent a push (D56, D74).

The log is the queue: a subscription and an address have each a position in the feed for all
devices, and the rows after it are read in order. Each push is stored with the position, so no
process pushes a row twice, and pushes that were not sent before a restart are sent after it.
"""

import asyncio
import json
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import structlog
from django.db.models import Q, QuerySet
from django.utils import timezone

from bridge_project.kernel import failure_alerts, limits, threads
from bridge_project.kernel.background_task import background_task
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.text import without_controls
from devices_app.models import NotifyAddress, NotifyChoices, PushSubscription
from devices_app.push import addresses, choices, endpoints, sending, subscriptions
from devices_app.push.choices import About
from devices_app.push.sending import Outcome, Push
from sessions_app import notifications
from sessions_app.log import reader
from sessions_app.log.tail import tail
from sessions_app.models import Cursor, Feed, LogRow, Session, ToolCall
from sessions_app.socket import presence

log = structlog.get_logger("bridge.push")

END_SECONDS: Final = 5.0
QUIET: Final = "An agent needs you"
TEST: Final = {"title": "Test", "body": "Pushes of the bridge arrive here."}


Target = PushSubscription | NotifyAddress


@dataclass(frozen=True, slots=True)
class Due:
    """Hold a push that is to be sent now.

    ``seq``: the row that it is about, or None for a reminder. ``claim``: what is stored when it is
    begun.
    """

    target: Target
    seq: int | None
    push: Push
    claim: dict[str, Any]


@dataclass(frozen=True, slots=True)
class News:
    """Hold a row that may be pushed; ``call``: the one that waits, if it has one."""

    row: LogRow
    payload: dict[str, Any]
    about: About
    call: ToolCall | None


def find_due(settled: dict[Target, int]) -> tuple[list[Due], bool]:
    """Find the next push for each device and address; tell whether others wait.

    ``settled``: target → row up to which nothing is to be pushed; it is brought up to date.
    """
    now = timezone.now()
    found: list[Due] = []
    waits = False
    newest = Feed.objects.filter(pk=Feed.ALL).values_list("last_seq", flat=True).first() or 0
    connected = set(presence.live().values_list("device_id", flat=True))
    for device in subscriptions.usable() if conf.bridge_push == "on" else ():
        if _is_left_alone(device, now):
            waits = True
            continue
        due: Due | None = None
        if settled.get(device, 0) < newest or device.held:
            due, young = _due_at_device(device, settled, newest, now, device.device_id in connected)
            waits = waits or young
        found += filter(None, [due or _reminder(device, now)])
    for address in addresses.usable():
        if _is_left_alone(address, now):
            waits = True
        elif settled.get(address, 0) < newest:
            due, young = _due_at_address(address, settled, newest, now)
            waits = waits or young
            found += filter(None, [due])
    return found, waits


def _is_left_alone(target: Target, now: datetime) -> bool:
    """Return whether a process sends to it now, or it wants to be left alone."""
    until = target.next_at
    # a moment beyond that was stored by a clock that has been set back since
    return until is not None and now < until <= now + timedelta(
        seconds=limits.PUSH_RETRY_MAX_SECONDS
    )


def _due_at_device(
    target: PushSubscription,
    settled: dict[Target, int],
    newest: int,
    now: datetime,
    is_connected: bool,
) -> tuple[Due | None, bool]:
    """Return the next push of a row to a device, and whether one is not yet due."""
    chosen, held, after = _chosen(target), list[int](), settled.get(target, 0)
    cursor = Cursor.objects.filter(feed=Feed.ALL, device=target.device_id).first()
    has, ahead = (cursor.position, cursor.ahead) if cursor else (0, ())
    rows = LogRow.objects.filter(feed=Feed.ALL, type="notification", seq__gt=has)
    after = max(target.position, after)
    for news in _news(rows.filter(Q(seq__in=target.held) | Q(seq__gt=after)), now):
        seq = news.row.seq
        fate = "drop" if seq in ahead else choices.verdict(chosen, news.about, now)
        if fate == "hold":
            held.append(seq)
        if fate != "push":
            continue
        settled[target] = min([seq, *(one for one in held if one > after)]) - 1
        proof = timedelta(seconds=limits.PUSH_PROOF_SECONDS)
        if is_connected and abs(now - news.row.created_at) < proof:
            return None, True  # it may still show that it has it
        held += [one for one in target.held if one >= seq]
        reminded = target.reminded
        if news.call and chosen.reminder_minutes:
            reminded = reminded | {str(news.call.pk): _moments(news.call, chosen, now)}
        claim = {"held": held, "reminded": _still_waiting(reminded)}
        return Due(target, seq, _push(chosen.detail, news.payload), claim), False
    settled[target] = min([newest + 1, *(one for one in held if one > after)]) - 1
    return None, False


def _chosen(target: PushSubscription) -> NotifyChoices:
    return getattr(target.device, "notify", None) or NotifyChoices(device=target.device)


def _due_at_address(
    target: NotifyAddress, settled: dict[Target, int], newest: int, now: datetime
) -> tuple[Due | None, bool]:
    """Return the next row that no device has, and whether one is not yet due."""
    after = max(target.position, settled.get(target, 0))
    rows = LogRow.objects.filter(feed=Feed.ALL, type="notification", seq__gt=after)
    chosen = NotifyChoices(detail=conf.bridge_notify_detail)  # else as by default
    for news in _news(rows, now):
        seq = news.row.seq
        if choices.verdict(chosen, news.about, now) != "push" or _is_proven(news.row):
            continue
        settled[target] = seq - 1
        if abs(now - news.row.created_at) < timedelta(seconds=limits.PUSH_PROOF_SECONDS):
            return None, True
        return Due(target, seq, _push(chosen.detail, news.payload), {}), False
    settled[target] = newest
    return None, False


def _is_proven(row: LogRow) -> bool:
    """Return whether any device has acknowledged a row, or shown a push of it."""
    cursors = Cursor.objects.filter(feed=Feed.ALL)
    if cursors.filter(position__gte=row.seq).exists():
        return True
    if any(row.seq in ahead for ahead in cursors.values_list("ahead", flat=True)):
        return True
    shown = PushSubscription.objects.filter(last_id=row.message_id)
    return shown.exclude(shown_at=None).exists()


def _news(rows: QuerySet[LogRow], now: datetime) -> Iterator[News]:
    """Yield those of the rows that may be pushed now, in order.

    Of approvals those that still wait, of the rest what is recent.
    """
    for row in rows.order_by("seq").iterator():
        payload = json.loads(row.frame)["payload"]
        kind, session_id = payload["notification_type"], payload["session_id"]
        recent = now - row.created_at < timedelta(seconds=limits.PUSH_NEWS_SECONDS)
        call_id, call, risk = payload["data"].get("tool_call_id"), None, ""
        if kind != "approval_required":
            waits = recent
        elif payload["priority"] != "high":
            waits = False
        elif call_id is None:  # an MCP server asks, until the session's next event (D65)
            waiting = Session.objects.filter(turn=Session.Turn.WAITING)
            waits = waiting.filter(session_id=session_id).exists()
        else:
            call = _pending().filter(session__session_id=session_id, tool_call_id=call_id).first()
            waits, risk = call is not None, call.risk_level if call else ""
        if waits:
            yield News(row, payload, About(kind, session_id, row.created_at, risk), call)


def _pending() -> QuerySet[ToolCall]:
    pending = ToolCall.objects.filter(decision=ToolCall.Decision.PENDING)
    return pending.select_related("session")


def _reminder(target: PushSubscription, now: datetime) -> Due | None:
    """Return the next reminder of an approval that waits, acknowledged or not."""
    chosen = _chosen(target)
    for call in _pending().order_by("pk") if chosen.reminder_minutes else ():
        moments, key, session_id = (
            _moments(call, chosen, now),
            str(call.pk),
            call.session.session_id,
        )
        about = About("approval_required", session_id, call.created_at, call.risk_level)
        if moments <= target.reminded.get(key, 0) or choices.verdict(chosen, about, now) != "push":
            continue
        asks = notifications.approval_required(call.session, call)
        push = _push(chosen.detail, asks.wire(), "Still waiting: ")
        claim = {"reminded": _still_waiting(target.reminded | {key: moments})}
        return Due(target, None, push, claim)
    return None


def _moments(call: ToolCall, chosen: NotifyChoices, now: datetime) -> int:
    """Return how many moments for a reminder have passed."""
    each = timedelta(minutes=chosen.reminder_minutes)
    # a clock may have been set back
    return max(0, min(limits.REMINDERS, (now - call.created_at) // each))


def _still_waiting(reminded: dict[str, int]) -> dict[str, int]:
    """Leave out calls that wait no more."""
    waiting = set(_pending().filter(pk__in=reminded).values_list("pk", flat=True))
    return {key: moments for key, moments in reminded.items() if int(key) in waiting}


def _push(detail: str, payload: dict[str, Any], prefix: str = "") -> Push:
    """Make the push of a notification; ``prefix``: of a reminder's title."""
    kind = payload["notification_type"]
    about = {
        "notification_id": payload["notification_id"],
        "notification_type": kind,
        "session_id": payload["session_id"],
        "tool_call_id": payload["data"].get("tool_call_id"),
        **({"reminder": True} if prefix else {}),
    }
    contents: list[dict[str, Any]] = [about | {"title": prefix + QUIET, "body": ""}]
    if detail == NotifyChoices.Detail.FULL:
        # a lock screen shows it as it is, so nothing may turn the text of a command round
        title, body = (without_controls(payload[key]) for key in ("title", "body"))
        contents.insert(0, about | {"title": prefix + title, "body": body})
    topic = uuid.UUID(payload["notification_id"]).hex
    return Push(contents, topic, "high" if kind == "approval_required" else "normal")


def test() -> Push:
    """Return a push that a person asks for, with an id by which its receipt is known."""
    about = {"notification_type": "test", "notification_id": str(uuid.uuid4())}
    return Push([about | TEST], topic="test", ttl=60)


def claim(due: Due) -> bool:
    """Take a push for this process; False when another has taken or sent it."""
    seen, until = due.target, timezone.now() + timedelta(seconds=limits.PUSH_CLAIM_SECONDS)
    fields = due.claim | {"next_at": until}
    if isinstance(seen, PushSubscription):
        fields |= last(due.push)
    same = type(seen).objects.filter(pk=seen.pk, **seen.claimed_by)
    return same.update(**fields) == 1


def last(push: Push) -> dict[str, Any]:
    """Return what is stored of a push before it goes, for its receipt may be quick."""
    return {"last_id": push.contents[0]["notification_id"], "last_at": None, "shown_at": None}


def store_word(subscription: PushSubscription, outcome: Outcome) -> None:
    """Store what a push service said to a push."""
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


def store_outcome(due: Due, outcome: Outcome) -> None:
    """Store what became of a push, and when the next one there may go."""
    target = due.target
    tries, again = target.tries + 1, outcome.again_in
    same: QuerySet[Any]
    if isinstance(target, PushSubscription):
        store_word(target, outcome)
        same = PushSubscription.objects.filter(pk=target.pk, endpoint=target.endpoint)
    else:
        same = NotifyAddress.objects.filter(pk=target.pk)
        same.update(problem=outcome.problem, last_at=timezone.now())
        again = again if tries < limits.NOTIFY_TRIES else None
        if outcome.problem:
            log.warning("notify_failed", address=target.name, problem=outcome.problem)
    if outcome.gone:
        return
    if again is not None:
        seconds = max(again, limits.PUSH_RETRY_SECONDS * 2 ** min(tries - 1, 10))
        wait = timedelta(seconds=min(seconds, limits.PUSH_RETRY_MAX_SECONDS))
        same.update(next_at=timezone.now() + wait, tries=tries)
        return
    done: dict[str, Any] = {"next_at": None, "tries": 0}
    if due.seq is not None:
        done["position"] = max(target.position, due.seq)
    if held := due.claim.get("held"):
        done["held"] = [seq for seq in held if seq != due.seq]
    same.update(**done)


async def _deliver(due: Due) -> None:
    if not await threads.writers.run(claim, due):
        return
    outcome = await _send(due.target, due.push)
    await threads.writers.run(store_outcome, due, outcome)


async def _send(target: Target, push: Push) -> Outcome:
    if isinstance(target, NotifyAddress):
        said = push.contents[0]
        return await threads.addresses.run(addresses.send, target, said["title"], said["body"])
    try:
        return await threads.push.run(sending.send, target, push)
    except BridgeError as refused:
        return Outcome(refused.message)


def _begin_addresses() -> None:
    addresses.begin(reader.head_seq())


_waiting: list[Due] = []  # found last, not begun
_sending: dict[Target, tuple[str, asyncio.Task[None]]] = {}  # → where to, push on its way


async def _run() -> None:
    """Look when something has changed, when one still waits, and now and then.

    The last is for reminders and the end of quiet hours: a clock may be set at any moment.
    """
    settled: dict[Target, int] = {}
    head, waits, looked_at = -1, False, time.monotonic()
    await threads.writers.retry(_begin_addresses)
    while True:
        await asyncio.sleep(limits.POLL_SECONDS)
        waits = waits or subscriptions.changed.is_set()
        is_time = time.monotonic() - looked_at >= limits.HELD_CHECK_SECONDS
        if head == tail.head and not waits and not is_time:
            continue
        subscriptions.changed.clear()
        upto, looked_at = tail.head, time.monotonic()
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
        _waiting[:] = sorted(found, key=lambda due: due.target.tries)
        _begin()


def _begin() -> None:
    """Begin what waits, with few senders for each service: one may never answer."""
    busy = Counter(host for host, _ in _sending.values())
    for due in list(_waiting):
        target = due.target
        if isinstance(target, PushSubscription):
            host = endpoints.host_of(target.endpoint)
        else:
            host = target.digest
        if busy.total() >= limits.PUSH_SENDERS:
            return
        if busy[host] < limits.PUSH_SENDERS_A_HOST and target not in _sending:
            busy[host] += 1
            _waiting.remove(due)
            task = asyncio.create_task(_deliver(due))
            _sending[target] = host, task
            task.add_done_callback(partial(_end, target))


def _end(target: Target, task: asyncio.Task[None]) -> None:
    del _sending[target]
    if not task.cancelled() and (error := task.exception()):
        log.error("push_failed", to=str(target), exc_info=error)
    _begin()


@asynccontextmanager
async def send_pushes() -> AsyncIterator[None]:
    """Send pushes; at the end those on their way have some seconds to finish."""
    is_wanted = conf.bridge_push == "on" or conf.bridge_notify_urls
    async with background_task(_run) if is_wanted else nullcontext():
        yield
    _waiting.clear()
    if _sending:
        _, late = await asyncio.wait([task for _, task in _sending.values()], timeout=END_SECONDS)
        for task in late:
            task.cancel()
