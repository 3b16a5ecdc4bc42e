"""Compute the sessions' metrics: sockets, queue, and each device's lag."""

from collections.abc import Iterator

from django.db.models import Count, F, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from prometheus_client.core import GaugeMetricFamily, Metric

from bridge_project.kernel import metrics
from devices_app.models import Device
from sessions_app.models import Cursor, Feed, LogRow
from sessions_app.socket import presence
from sessions_app.socket.registry import registry


def collect() -> Iterator[Metric]:
    """Compute the metrics of all sessions, from the database."""
    held = Feed.objects.aggregate(rows=Sum("rows"), bytes=Sum("bytes"))
    devices = Device.objects.filter(paired_at__isnull=False, revoked_at=None)
    for name, text, value in (
        ("sockets_open", "Authenticated WebSockets of this process.", len(registry.sockets)),
        ("websockets_active", "Those of all processes.", presence.live().count()),
        ("queue_rows", "Rows that the log holds.", held["rows"] or 0),
        ("queue_bytes", "Bytes of their frames.", held["bytes"] or 0),
    ):
        yield metrics.gauge(name, text, value)
    text = "Rows that the log holds for a device and the device has not acknowledged."
    lag = GaugeMetricFamily(f"{metrics.PREFIX}device_lag_rows", text, labels=("device", "name"))
    for device in devices:
        lag.add_metric((str(device.pk), device.name), behind(device))
    yield lag


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
