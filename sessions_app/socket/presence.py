"""Record who is connected, across processes, while leases last (D23, D33, D46)."""

from collections.abc import Collection

from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from devices_app.models import Device, Token
from sessions_app import leases
from sessions_app.log import ingest_sql
from sessions_app.models import Connection, Join, LogHead, Process, Session


def live() -> QuerySet[Connection]:
    """Return connections of living processes that no newer connection has replaced."""
    return Connection.objects.filter(replaced=False, process__lease_until__gt=leases.clock())


def open_connection(device: Device, token_digest: str, address: str) -> int:
    """Record a newly authenticated socket within the limits; return its id.

    An older connection of the device is marked replaced first, so it frees its place (D23). Raises
    BridgeError RATE_LIMITED when no place is left.
    """
    with transaction.atomic():
        # before the log's head, as pairing does: no deadlock
        Device.objects.select_for_update(no_key=True).get(pk=device.pk)
        # one at a time on all processes, or two could take the last place
        LogHead.objects.select_for_update().get_or_create(pk=1)
        Connection.objects.filter(device=device).update(replaced=True)
        if live().count() >= conf.bridge_max_websockets:
            words = f"All {conf.bridge_max_websockets} connections are in use."
            raise BridgeError("RATE_LIMITED", words)
        token = Token.objects.filter(digest=token_digest).first()
        return Connection.objects.create(
            process_id=leases.current(), device=device, token=token, address=address
        ).pk


def close_connections(connection_ids: Collection[int]) -> None:
    """Forget connections, and record that their devices were seen until now."""
    closed = Connection.objects.filter(pk__in=list(connection_ids))
    for device in sorted(set(closed.values_list("device_id", flat=True))):
        Device.objects.filter(pk=device).update(last_seen_at=timezone.now())
    closed.delete()


def recorded() -> set[int]:
    """Return the connections on record for this process."""
    ours = Connection.objects.filter(process_id=leases.current())
    return set(ours.values_list("pk", flat=True))


def join(connection_id: int, session: Session) -> None:
    Join.objects.get_or_create(connection_id=connection_id, session=session)


def leave(connection_id: int, session: Session) -> None:
    Join.objects.filter(connection_id=connection_id, session=session).delete()


def followed(session_pks: Collection[int]) -> set[int]:
    """Return those of the given sessions that a live connection has joined.

    The connection may be of any process. This process's own count without a lease, which ends
    while the database takes no writes.
    """
    ours = Connection.objects.filter(replaced=False, process_id=leases.current())
    joined = Join.objects.filter(session_id__in=list(session_pks), connection__in=live() | ours)
    return set(joined.values_list("session_id", flat=True))


# Asked for twice a second, so written out. What is NULL is no reason to end.
_CONNECTION, _DEVICE, _TOKEN = (model._meta.db_table for model in (Connection, Device, Token))
_OVER = "d.revoked_at IS NOT NULL OR t.revoked_at IS NOT NULL OR t.expires_at <= %s"
_ENDED = f"""
SELECT c.id, c.replaced, {_OVER} FROM "{_CONNECTION}" c JOIN "{_DEVICE}" d ON d.id = c.device_id
LEFT JOIN "{_TOKEN}" t ON t.id = c.token_id WHERE c.process_id = %s AND (c.replaced OR {_OVER})
"""  # noqa: S608 - our own names


def to_end() -> tuple[set[int], set[int]]:
    """Return the connections to end: replaced ones, and revoked or expired ones (D15)."""
    now = ingest_sql.moment(timezone.now())
    key = Process._meta.pk.get_db_prep_value(leases.current(), connection)
    with connection.cursor() as cursor:
        cursor.execute(_ENDED, [now, key, now])
        found = cursor.fetchall()
    return {pk for pk, replaced, _ in found if replaced}, {pk for pk, _, ended in found if ended}


def active_sessions() -> int:
    """Count the sessions that are not closed, of either kind."""
    return Session.objects.exclude(status=Session.Status.CLOSED).count()
