"""Compute the sessions' metrics: sockets, queue, and each device's lag."""

from collections.abc import Iterator

from django.db.models import Count, F, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from prometheus_client.core import Metric

from bridge_project.kernel import metrics
from devices_app.models import Device
from sessions_app.log import reader
from sessions_app.models import Cursor, Feed, LogRow, Session
from sessions_app.socket import presence
from sessions_app.socket.registry import registry


def collect() -> Iterator[Metric]:
    """Compute the metrics of all sessions, from the database."""
    held = Feed.objects.aggregate(rows=Sum("rows"), bytes=Sum("bytes"))
    oldest = LogRow.objects.order_by("seq").values_list("created_at", flat=True).first()
    age = max(0.0, (timezone.now() - oldest).total_seconds()) if oldest else 0.0
    devices = Device.objects.filter(paired_at__isnull=False, revoked_at=None)
    running = Session.objects.filter(kind=Session.Kind.BRIDGE).exclude(status=Session.Status.CLOSED)
    sockets, log_head = presence.active_websockets(), reader.head_seq()
    for name, text, value in (
        ("sockets_open", "Authenticated WebSockets of this process.", len(registry.sockets)),
        ("websockets_active", "Authenticated WebSockets of all processes.", sockets),
        ("sessions_active", "Sessions that are not closed.", presence.active_sessions()),
        ("log_head", "The number of the log's newest row: how many were ever appended.", log_head),
        ("queue_rows", "Rows that the log holds.", held["rows"] or 0),
        ("queue_bytes", "Bytes of their frames.", held["bytes"] or 0),
        ("queue_oldest_age_seconds", "Age of the oldest of them; 0 when there is none.", age),
    ):
        yield metrics.gauge(name, text, value)
    yield metrics.gauges(
        "agent_sessions",
        "Sessions that the bridge runs and that are not closed.",
        ("agent", "status"),
        running.order_by().values_list("agent_type", "status").annotate(Count("pk")),
    )
    yield metrics.gauges(
        "device_lag_rows",
        "Rows that the log holds for a device and the device has not acknowledged.",
        ("device", "name"),
        ((str(device.pk), device.name, behind(device)) for device in devices),
    )


def behind(device: Device) -> int:
    """Count the rows that a device would get if it connected now (D28)."""
    cursor = Cursor.objects.filter(device=device, feed=OuterRef("pk")).values("position")[:1]
    feeds: QuerySet[Feed] = Feed.objects.filter(kind__in=[Feed.Kind.ALL, Feed.Kind.OBSERVED])
    beyond = LogRow.objects.filter(feed=OuterRef("pk"), seq__gt=OuterRef("at")).order_by()
    counted = beyond.values("feed").annotate(count=Count("seq")).values("count")
    found = (
        feeds.annotate(at=Coalesce(Subquery(cursor), device.start_seq))
        .filter(last_seq__gt=F("at"))
        .annotate(count=Subquery(counted))
        .aggregate(rows=Sum("count"))
    )
    return found["rows"] or 0
