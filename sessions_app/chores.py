"""What a serving process does by itself: its lease, the look at what no bell told it, and pruning (D15, D30, D34, D46)."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable

import structlog
from django.db import Error as DatabaseError
from django.db import transaction

from bridge_project.kernel import failure_alerts, limits
from bridge_project.kernel.config import conf, write_private_file
from bridge_project.kernel.database import background, readers, writers
from devices_app import pairing
from devices_app.models import Token
from sessions_app import failure_notifications
from sessions_app.approvals import service as approvals
from sessions_app.log import reader
from sessions_app.log.tail import Listener, hub
from sessions_app.models import Connection, Feed, Join, Process, Session
from sessions_app.observed import sessions as observed_sessions
from sessions_app.socket import idempotency, presence

logger = structlog.get_logger("bridge.housekeeping")

PRUNE_SECONDS = 60.0

_tasks: list[asyncio.Task[None]] = []


def instance() -> str:
    """The data directory's own id: a process that starts there is the successor of the one before (D35)."""
    path = conf.bridge_data_dir / "instance"
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    write_private_file(path, f"{uuid.uuid4()}\n".encode())
    return path.read_text().strip()


async def start() -> None:
    process_id = await writers.run(presence.start_process, instance())
    hub.open(process_id, await readers.run(reader.head_seq))
    failure_alerts.tell_by(failure_notifications.tell)
    await hub.bell.start()
    await hub.bell.join(Feed.ALL)
    _tasks.extend((asyncio.create_task(_look()), asyncio.create_task(_prune())))


async def stop() -> None:
    for task in _tasks:
        task.cancel()
    await asyncio.gather(*_tasks, return_exceptions=True)
    _tasks.clear()
    await hub.bell.stop()
    failure_alerts.tell_by(None)
    hub.close()
    with contextlib.suppress(DatabaseError):
        await writers.run(presence.stop_process, hub.process_id)


async def _look() -> None:
    """Renew the lease, and find new rows, revoked devices and replaced connections, whether or not a bell told of them."""
    renewed = _now()
    away = False
    while True:
        try:
            head, replaced, ended = await readers.run(_changes, bool(hub.listeners))
            hub.heard(head)
            hub.retire(replaced, ended)
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
    return reader.head_seq(), *(presence.ended_elsewhere(hub.process_id) if connected else (set(), set()))


def _now() -> tuple[float, float]:
    return time.monotonic(), time.time()


def _since(moment: tuple[float, float]) -> float:
    """Seconds, by the clock that says more: a lease is measured by one that can be set, and then it is renewed at once."""
    return max(time.monotonic() - moment[0], abs(time.time() - moment[1]))


async def _renew() -> None:
    if hub.closing:
        await hub.close_places()
    await _forget_lost()
    if not await writers.run(presence.renew, hub.process_id):
        logger.warning("lease_lost", remedy="registering again")
        await writers.run(_register_again, tuple(hub.listeners))


async def _forget_lost() -> None:
    """Remove records of sockets that this process does not have: one was ended in the middle of taking its place."""
    on_record = await readers.run(presence.held, hub.process_id) if not hub.opening else set()
    if not hub.opening and (lost := on_record - {listener.connection_id for listener in hub.listeners}):
        await writers.run(presence.close_connections, lost)


def _register_again(listeners: tuple[Listener, ...]) -> None:
    """The database was away for longer than the lease, and another process has cleared what this one holds."""
    with transaction.atomic():
        Process.objects.create(pk=hub.process_id, instance=instance(), lease_until=presence.lease())
        for listener in listeners:
            if listener.connection_id is not None and listener.device_id is not None:
                token = Token.objects.filter(digest=listener.token_digest).first()  # when it ends, so must the socket
                known = {"process_id": hub.process_id, "device_id": listener.device_id, "token": token, "address": ""}
                Connection.objects.create(pk=listener.connection_id, **known)
                sessions = Session.objects.filter(session_id__in=list(listener.joined))
                Join.objects.bulk_create(Join(connection_id=listener.connection_id, session=session) for session in sessions)


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
                if not isinstance(error, DatabaseError):  # of a database that is away nobody could be told
                    failure_alerts.happened("INTERNAL_ERROR", f"chore: {what}")
        await asyncio.sleep(PRUNE_SECONDS)
