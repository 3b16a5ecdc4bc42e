"""Handle push_subscribe, push_unsubscribe, push_test, notify_set (D56, D74)."""

import asyncio
from contextlib import suppress
from typing import Any

from bridge_project.kernel import limits, threads
from bridge_project.kernel.errors import invalid_message
from bridge_project.protocol import push_messages as p
from bridge_project.protocol.notify_messages import NotifyState
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.types import now_text
from devices_app.models import Device, PushSubscription
from devices_app.push import choices, endpoints, sending, subscriptions
from sessions_app import push
from sessions_app.log import reader
from sessions_app.socket.connection import ClientConnection


async def push_subscribe(connection: ClientConnection, message: ClientMessage) -> p.PushState:
    payload: p.PushSubscribe = message.payload
    parts = endpoints.check(payload.subscription.endpoint)
    with suppress(OSError):  # a bridge without a network looks again when it sends
        async with asyncio.timeout(limits.PUSH_TEST_SECONDS):
            await threads.push_requests.run(endpoints.resolve, parts)
    position = await threads.readers.run(reader.head_seq)
    try:
        subscription = await threads.writers.run(
            subscriptions.subscribe,
            *(connection.paired, payload.subscription, payload.detail, position),
        )
    except ValueError:
        field, rule = "subscription.keys.p256dh", "point of the curve P-256"
        raise invalid_message("p256dh is no public key.", field, rule, "string") from None
    return await threads.readers.run(_state, subscription)


async def push_unsubscribe(connection: ClientConnection, message: ClientMessage) -> p.PushState:
    await threads.writers.run(subscriptions.unsubscribe, connection.paired)
    return _state(None)


async def push_test(connection: ClientConnection, message: ClientMessage) -> p.PushState:
    subscriptions.check_allowed()
    found = await threads.readers.run(_subscription, connection.paired)
    if found is None or found.dead_at:
        return await threads.readers.run(_state, found)
    test = push.test()
    same = PushSubscription.objects.filter(pk=found.pk)
    await threads.writers.run(same.update, **push.last(test))
    try:
        async with asyncio.timeout(limits.PUSH_TEST_SECONDS):
            outcome = await threads.push_requests.run(sending.send, found, test)
    except TimeoutError:
        outcome = sending.Outcome(f"No answer in {limits.PUSH_TEST_SECONDS:g} s.")
    await threads.writers.run(push.store_word, found, outcome)
    found = await threads.readers.run(_subscription, connection.paired)
    return await threads.readers.run(_state, found)


async def notify_set(connection: ClientConnection, message: ClientMessage) -> NotifyState:
    chosen = await threads.writers.run(choices.change, connection.paired, message.payload)
    return NotifyState.model_validate(choices.shown(chosen).wire())


def _subscription(device: Device) -> PushSubscription | None:
    return PushSubscription.objects.filter(device=device).select_related("device").first()


def _state(found: PushSubscription | None) -> p.PushState:
    if found is None:
        return p.PushState(subscribed=False)
    detail = choices.of(found.device).detail
    about: Any = {"subscribed": True, "detail": detail, "problem": found.problem or None}
    if found.dead_at:
        about = {"subscribed": False}
    return p.PushState(**about, last=_last(found))


def _last(found: PushSubscription) -> p.LastPush | None:
    if found.last_at is None:
        return None
    return p.LastPush(
        service=endpoints.service_of(found.last_host),
        at=now_text(found.last_at),
        problem=found.problem or None,
        shown_at=now_text(found.shown_at) if found.shown_at else None,
    )
