"""Send ready connections the changes of sessions that a home screen shows (D54).

A ``session_update`` is not a row of the log and never sent again. Every change sets the session's
`last_activity_at`, so one query a second finds the changes of all processes. Without connections
nothing is read.
"""

import asyncio
import time
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import Error as DatabaseError
from django.utils import timezone

from bridge_project.kernel import failure_alerts, limits
from bridge_project.kernel.threads import readers
from bridge_project.protocol.base import Phase
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.server_messages import SessionUpdate
from sessions_app import session_view
from sessions_app.log.tail import tail
from sessions_app.models import Session
from sessions_app.socket.connection import ClientConnection
from sessions_app.socket.registry import registry

log = structlog.get_logger("bridge.socket")

# A change carries the time at which its transaction began, by the clock of its host.
LATE = timedelta(seconds=10)


async def run() -> None:
    """Send changed sessions, once a second, for ever.

    While the log does not grow, read less often: nearly every change comes with a row.
    """
    head, looked_at = -1, 0.0
    while True:
        await asyncio.sleep(limits.SESSION_UPDATE_SECONDS)
        ready = [one for one in registry.sockets if one.phase is Phase.READY]
        quiet = head == tail.head and time.monotonic() - looked_at < limits.QUIET_UPDATE_SECONDS
        if not ready or quiet:
            continue
        head, looked_at = tail.head, time.monotonic()
        try:
            await _send_changes(ready)
        except DatabaseError:
            continue  # polling reports it; what was missed is sent when the database is back
        except Exception:
            log.exception("session_updates_failed")
            failure_alerts.report("INTERNAL_ERROR", "session_updates_failed")


async def _send_changes(ready: list[ClientConnection]) -> None:
    now = timezone.now()
    since = min(now, *(one.shown_at for one in ready)) - LATE
    behind = set()
    for session in await readers.run(_changed, since):
        update = None
        for connection in ready:
            known = connection.shown.get(session.pk)
            unseen = known is None and session.status == Session.Status.CLOSED
            if unseen or known == hash(session):
                continue
            if connection.socket.buffered() >= limits.SOCKET_BUFFER_BYTES:
                behind.add(connection)  # when it has room it is told all that it missed
                continue
            update = update or encode(SessionUpdate(session=session_view.info_of(session)))
            connection.shown[session.pk] = hash(session)
            await connection.send_frame(update)
        await asyncio.sleep(0)
    for connection in ready:
        if connection not in behind:
            connection.shown_at = now


def _changed(since: datetime) -> list[Any]:
    changed = Session.objects.filter(last_activity_at__gt=since).order_by("last_activity_at")
    return list(changed.values_list(*session_view.COLUMNS, named=True))
