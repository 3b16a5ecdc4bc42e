"""Who is connected, across processes: rows that count only while their process's lease lasts (D23, D33, D46)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from bridge_project import limits
from bridge_project.conf import conf
from bridge_project.errors import BridgeError
from devices_app.models import Device
from sessions_app.models import Connection, Join, LogHead, Process, Session


def start_process(instance: str) -> uuid.UUID:
    """Register this process. What a predecessor with the same data directory held is taken over at once (D35)."""
    now = timezone.now()
    with transaction.atomic():
        Process.objects.filter(Q(instance=instance) | Q(lease_until__lt=now)).delete()
        return Process.objects.create(instance=instance, lease_until=lease()).pk


def stop_process(process_id: uuid.UUID) -> None:
    Process.objects.filter(pk=process_id).delete()


def renew(process_id: uuid.UUID) -> bool:
    """Extend the lease. False: the row is gone (the database was away for longer than the lease), and everything must be registered again."""
    return Process.objects.filter(pk=process_id).update(lease_until=lease()) == 1


def lease() -> datetime:
    return timezone.now() + timedelta(seconds=limits.LEASE_SECONDS)


def live() -> QuerySet[Connection]:
    """The connections that count: held by a living process and not replaced."""
    return Connection.objects.filter(replaced=False, process__lease_until__gt=timezone.now())


def open_connection(process_id: uuid.UUID, device: Device, address: str) -> int:
    """Take a place for a newly authenticated socket and return its id.

    An older connection of the device is marked replaced first, so it frees its place (D23). Raises BridgeError RATE_LIMITED when
    no place is left.
    """
    with transaction.atomic():
        Device.objects.select_for_update().get(pk=device.pk)  # before the head, as pairing does: nobody waits in a circle
        LogHead.objects.select_for_update().get_or_create(pk=1)  # one at a time on all processes, or two could take the last place
        Connection.objects.filter(device=device).update(replaced=True)
        if live().count() >= conf.bridge_max_websockets:
            raise BridgeError("RATE_LIMITED", f"All {conf.bridge_max_websockets} connections are in use.")
        return Connection.objects.create(process_id=process_id, device=device, address=address).pk


def close_connection(connection_id: int) -> None:
    Connection.objects.filter(pk=connection_id).delete()


def join(connection_id: int, session: Session) -> None:
    Join.objects.get_or_create(connection_id=connection_id, session=session)


def leave(connection_id: int, session: Session) -> None:
    Join.objects.filter(connection_id=connection_id, session=session).delete()


def joined_counts(session_pks: Iterable[int]) -> dict[int, int]:
    """Session key → connections, on all processes, that have joined it."""
    rows = Join.objects.filter(session__in=list(session_pks), connection__in=live()).values_list("session_id")
    return dict(rows.annotate(Count("id")))


def ended_elsewhere(process_id: uuid.UUID) -> tuple[set[int], set[int]]:
    """What this process must close: (connections that were replaced, devices that were revoked)."""
    held = Connection.objects.filter(process_id=process_id)
    replaced = set(held.filter(replaced=True).values_list("pk", flat=True))
    revoked = set(held.filter(device__revoked_at__isnull=False).values_list("device_id", flat=True))
    return replaced, revoked


def active_websockets() -> int:
    return live().count()


def active_sessions() -> int:
    """Sessions that are not closed, of either kind."""
    return Session.objects.exclude(status=Session.Status.CLOSED).count()
