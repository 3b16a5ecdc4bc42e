"""Renew the lease; find new rows, ended sockets, failures and session changes."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from bridge_project.kernel import failure_alerts, limits
from bridge_project.kernel.background_task import background_task
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.threads import chores, readers, writers
from bridge_project.protocol.base import Phase
from bridge_project.protocol.catalogue import Encoded, encode
from bridge_project.protocol.server_messages import SessionOptions, SessionUpdate
from devices_app.models import Token
from sessions_app import leases, notifications, session_view
from sessions_app.agents import choosing
from sessions_app.log import reader
from sessions_app.log.outbox import outbox
from sessions_app.log.tail import tail
from sessions_app.models import Connection, Feed, Join, Process, Session
from sessions_app.socket import presence
from sessions_app.socket.connection import ClientConnection
from sessions_app.socket.registry import registry

log = structlog.get_logger("bridge.polling")

# A change of a session carries the time at which its transaction began, by its host's clock.
LATE = timedelta(seconds=10)


@contextlib.asynccontextmanager
async def follow_log() -> AsyncIterator[None]:
    """Hold this process's lease, and wake its sockets when the log grows."""
    await writers.run(leases.start, leases.instance())
    tail.open(await readers.run(reader.head_seq))
    await tail.notifier.start()
    await tail.notifier.join(Feed.ALL)
    async with background_task(_poll), background_task(_update):
        yield
    await tail.notifier.stop()
    tail.close()
    with contextlib.suppress(*STORAGE_ERRORS):
        await writers.run(leases.stop)


async def _poll() -> None:
    """Look for new rows, connections to end, and failures, every POLL_SECONDS."""
    renewed = time.monotonic(), time.time()
    unreachable = False
    while True:
        try:
            head, replaced, ended = await readers.run(_look, bool(registry.sockets))
            tail.notify_head(head)
            registry.retire(replaced, ended)
            for failure in failure_alerts.drain():
                chores.begin(_notify, failure)  # the lease must not wait for it
            # the larger one: a clock may be set, or stop while the machine sleeps
            since = max(time.monotonic() - renewed[0], abs(time.time() - renewed[1]))
            if since > limits.LEASE_RENEWAL_SECONDS:
                await _renew()
                renewed = time.monotonic(), time.time()
            unreachable = False
        except STORAGE_ERRORS as error:
            if not unreachable:
                log.error("database_unavailable", error=error.__class__.__name__)
            unreachable = True
        except Exception:
            log.exception("poll_failed")
            failure_alerts.report("INTERNAL_ERROR", "poll_failed")
        await asyncio.sleep(limits.POLL_SECONDS)


def _look(connected: bool) -> tuple[int, set[int], set[int]]:
    """Return the log's head, and connections to end: replaced ones, and the others."""
    return reader.head_seq(), *(presence.to_end() if connected else (set(), set()))


def _notify(failure: failure_alerts.Failure) -> None:
    """Store a failure's notification (D13); if that fails, it may be reported again."""
    try:
        with outbox() as box:
            box.append_to_all(encode(notifications.failed(failure)))
    except Exception:
        failure_alerts.forget(failure)
        log.warning("failure_not_told", code=failure.row.code, exc_info=True)
        raise  # `Threads` drops a connection that broke


async def _renew() -> None:
    """Extend the lease; delete records of sockets that this process has no more."""
    if not registry.opening:
        on_record = await readers.run(presence.recorded)
        lost = on_record - {socket.connection_id for socket in registry.sockets}
        if lost and not registry.opening:  # one may have begun to open meanwhile
            await writers.run(presence.close_connections, lost)
    if not await writers.run(leases.renew):
        log.warning("lease_lost", remedy="registering again")
        await writers.run(_register_again, tuple(registry.sockets))


def _register_again(sockets: tuple[ClientConnection, ...]) -> None:
    """Store this process and its sockets again, which went with the expired lease."""
    with transaction.atomic():
        ours = {"pk": leases.current(), "instance": leases.instance()}
        Process.objects.create(**ours, lease_until=leases.end_of_lease())
        for socket in sockets:
            if socket.connection_id is None or socket.device_id is None:
                continue
            Connection.objects.create(
                pk=socket.connection_id,
                process_id=leases.current(),
                device_id=socket.device_id,
                # when the token ends, so must the socket
                token=Token.objects.filter(digest=socket.token_digest).first(),
                address="",
            )
            sessions = Session.objects.filter(session_id__in=list(socket.joined))
            Join.objects.bulk_create(
                Join(connection_id=socket.connection_id, session=session) for session in sessions
            )


async def _update() -> None:
    """Send ready connections the changes of sessions that a home screen shows (D54).

    A ``session_update`` is not a row of the log and never sent again. Every change sets the
    session's `last_activity_at`, or a person's `edited_at`, so one query a second finds the changes
    of all processes.

    While the log does not grow, read less often: nearly every change comes with a row.
    """
    seen, looked_at = (-1, -1), 0.0
    while True:
        await asyncio.sleep(limits.SESSION_UPDATE_SECONDS)
        ready = [one for one in registry.sockets if one.phase is Phase.READY]
        now = tail.head, tail.changes
        quiet = seen == now and time.monotonic() - looked_at < limits.QUIET_UPDATE_SECONDS
        if not ready or quiet:
            continue
        seen, looked_at = now, time.monotonic()
        try:
            await _send_changes(ready)
        except STORAGE_ERRORS:
            continue  # polling reports it; what was missed is sent when the database is back
        except Exception:
            log.exception("session_updates_failed")
            failure_alerts.report("INTERNAL_ERROR", "session_updates_failed")


async def _send_changes(ready: list[ClientConnection]) -> None:
    now = timezone.now()
    since = min(now, *(one.shown_at for one in ready)) - LATE
    behind = set()
    due: dict[ClientConnection, list[Encoded]] = defaultdict(list)
    changed = _changed(since, now).order_by("last_activity_at")
    views = changed.values_list(*session_view.COLUMNS, named=True)
    for session in await readers.run(list[Any], views):
        update, seen = None, session_view.fingerprint(session)
        options: SessionOptions | None = None
        for connection in ready:
            offered = connection.offered.get(session.session_id, session.offered)
            if session.session_id in connection.joined and offered != session.offered:
                if options is None:
                    options = await readers.run(choosing.options_of, session.pk)
                connection.offered[session.session_id] = session.offered
                due[connection].append(encode(options))
            known = connection.shown.get(session.pk)
            unseen = known is None and session.status == Session.Status.CLOSED
            if unseen or known == seen:
                continue
            if connection.updating or connection.socket.buffered() >= limits.SOCKET_BUFFER_BYTES:
                behind.add(connection)  # when it has room it is told all that it missed
                continue
            update = update or encode(SessionUpdate(session=session_view.info_of(session)))
            connection.shown[session.pk] = seen
            due[connection].append(update)
        await asyncio.sleep(0)
    for connection, updates in due.items():
        connection.updating = True
        connection.spawn(_send_updates(connection, updates))
    for connection in ready:
        if connection not in behind:
            connection.shown_at = now


def _changed(since: datetime, now: datetime) -> QuerySet[Session]:
    """Return sessions that may show something else, if only by silence (D65)."""
    silence = timedelta(seconds=limits.QUIET_SECONDS)
    busy = Q(turn__in=(Session.Turn.WORKING, Session.Turn.WAITING))
    fell_silent = Q(last_sign_at__gt=since - silence, last_sign_at__lte=now - silence)
    speaks_again = Q(last_sign_at__gt=since)
    return Session.objects.filter(
        Q(last_activity_at__gt=since)
        | Q(edited_at__gt=since)
        | (busy & (fell_silent | speaks_again))
    )


async def _send_updates(connection: ClientConnection, updates: list[Encoded]) -> None:
    """Send a connection's updates, in a task of its own.

    Under another server, sending to a slow client waits (D61).
    """
    try:
        for update in updates:
            await connection.send_frame(update)
    finally:
        connection.updating = False
