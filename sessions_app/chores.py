"""What a serving process does by itself: its lease, the look at what no bell told it, and pruning
(D15, D30, D34, D46).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import structlog
from django.db import Error as DatabaseError
from django.db import transaction

from bridge_project.kernel import failure_alerts, limits
from bridge_project.kernel.database import background, readers, writers
from devices_app import pairing
from devices_app.models import Token
from sessions_app import failure_notifications, leases
from sessions_app.approvals import service as approvals
from sessions_app.log import reader
from sessions_app.log.tail import tail
from sessions_app.models import Connection, Feed, Join, Session
from sessions_app.observed import sessions as observed_sessions
from sessions_app.socket import idempotency, presence
from sessions_app.socket.registry import Socket, registry

logger = structlog.get_logger("bridge.housekeeping")

PRUNE_SECONDS = 60.0

_tasks: list[asyncio.Task[None]] = []


async def start() -> None:
    await writers.run(leases.start, leases.instance())
    registry.open()
    tail.open(await readers.run(reader.head_seq))
    failure_alerts.tell_by(failure_notifications.tell)
    await tail.notifier.start()
    await tail.notifier.join(Feed.ALL)
    _tasks.extend((asyncio.create_task(_look()), asyncio.create_task(_prune())))


async def stop() -> None:
    for task in _tasks:
        task.cancel()
    await asyncio.gather(*_tasks, return_exceptions=True)
    _tasks.clear()
    await tail.notifier.stop()
    failure_alerts.tell_by(None)
    tail.close()
    registry.close()
    with contextlib.suppress(DatabaseError):
        await writers.run(leases.stop)


async def _look() -> None:
    """Renew the lease, and find new rows, revoked devices and replaced connections, whether or not
    a bell told of them.
    """
    renewed = _now()
    away = False
    while True:
        try:
            head, replaced, ended = await readers.run(_changes, bool(registry.sockets))
            tail.heard(head)
            registry.retire(replaced, ended)
            if _since(renewed) > limits.LEASE_RENEWAL_SECONDS:
                await _renew()
                renewed = _now()
            away = False
        except DatabaseError as error:
            if not away:
                logger.error("database_unavailable", error=error.__class__.__name__)
            away = True
        except Exception:
            logger.exception("look_failed")
            failure_alerts.happened("INTERNAL_ERROR", "look_failed")
        await asyncio.sleep(limits.POLL_SECONDS)


def _changes(connected: bool) -> tuple[int, set[int], set[int]]:
    """The newest row, and what `presence.ended_elsewhere` says."""
    return reader.head_seq(), *(
        presence.ended_elsewhere(leases.current()) if connected else (set(), set())
    )


def _now() -> tuple[float, float]:
    return time.monotonic(), time.time()


def _since(moment: tuple[float, float]) -> float:
    """Seconds, by the clock that says more: a lease is measured by one that can be set, and then it
    is renewed at once.
    """
    return max(time.monotonic() - moment[0], abs(time.time() - moment[1]))


async def _renew() -> None:
    if registry.closing:
        await registry.close_places()
    await _forget_lost()
    if not await writers.run(leases.renew):
        logger.warning("lease_lost", remedy="registering again")
        await writers.run(_register_again, tuple(registry.sockets))


async def _forget_lost() -> None:
    """Remove records of sockets that this process does not have: one was ended in the middle of
    taking its place.
    """
    on_record = (
        await readers.run(presence.held, leases.current()) if not registry.opening else set()
    )
    if not registry.opening and (
        lost := on_record - {listener.connection_id for listener in registry.sockets}
    ):
        await writers.run(presence.close_connections, lost)


def _register_again(sockets: tuple[Socket, ...]) -> None:
    """The database was away for longer than the lease, and another process has cleared what this
    one holds.
    """
    with transaction.atomic():
        leases.register_again()
        for listener in sockets:
            if listener.connection_id is not None and listener.device_id is not None:
                # when it ends, so must the socket
                token = Token.objects.filter(digest=listener.token_digest).first()
                known = {
                    "process_id": leases.current(),
                    "device_id": listener.device_id,
                    "token": token,
                    "address": "",
                }
                Connection.objects.create(pk=listener.connection_id, **known)
                sessions = Session.objects.filter(session_id__in=list(listener.joined))
                Join.objects.bulk_create(
                    Join(connection_id=listener.connection_id, session=session)
                    for session in sessions
                )


chores: dict[str, Callable[[], int]] = {
    "idle sessions closed": observed_sessions.close_idle,
    "rows of the log removed": reader.prune,
    "tool calls removed": approvals.forget_old,
    "answers to client messages removed": idempotency.forget_old,
    "closed sessions removed": observed_sessions.forget_closed,
    "devices that never paired removed": pairing.forget_void,
}
"""What a server does once a minute, and `manage.py prune` at once: what each chore counts, and the
chore. Apps above add theirs."""


async def _prune() -> None:
    while True:
        for what, chore in tuple(chores.items()):
            try:
                await background.run(chore)
            except Exception as error:
                logger.exception("chore_failed", chore=what)
                # of a database that is away nobody could be told
                if not isinstance(error, DatabaseError):
                    failure_alerts.happened("INTERNAL_ERROR", f"chore: {what}")
        await asyncio.sleep(PRUNE_SECONDS)
