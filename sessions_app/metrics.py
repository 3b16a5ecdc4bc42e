"""What the sessions room says of itself at GET /metrics: sockets, the queue, and how far each
device is behind the log.

What the log holds is read from the feeds' counters; counted are only rows that a device lacks.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count, F, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric

from bridge_project.kernel import metrics
from devices_app.models import Device
from sessions_app.log import reader
from sessions_app.models import Cursor, Feed, LogRow, Session
from sessions_app.socket import presence
from sessions_app.socket.registry import registry


def collect() -> Iterator[Metric]:
    """Registered with ``metrics``; runs in a thread that may use the database."""
    yield metrics.gauge(
        "sockets_open", "Authenticated WebSockets of this process.", len(registry.sockets)
    )
    yield metrics.gauge(
        "websockets_active",
        "Authenticated WebSockets of all processes.",
        presence.active_websockets(),
    )
    yield metrics.gauge(
        "sessions_active", "Sessions that are not closed.", presence.active_sessions()
    )
    yield metrics.gauge(
        "log_head",
        "The number of the log's newest row: how many were ever appended.",
        reader.head_seq(),
    )
    yield agents()
    rows, size = queue()
    yield metrics.gauge("queue_rows", "Rows that the log holds.", rows)
    yield metrics.gauge("queue_bytes", "Bytes of their frames.", size)
    yield metrics.gauge(
        "queue_oldest_age_seconds", "Age of the oldest of them; 0 when there is none.", oldest_age()
    )
    lag = GaugeMetricFamily(
        metrics.PREFIX + "device_lag_rows",
        "Rows that the log holds for a device and the device has not acknowledged.",
        labels=["device", "name"],
    )
    for device in Device.objects.filter(paired_at__isnull=False, revoked_at=None):
        lag.add_metric([str(device.pk), device.name], behind(device))
    yield lag


def agents() -> Metric:
    """Sessions that the bridge runs, on all processes, by agent and state; closed ones are left
    out.
    """
    family = GaugeMetricFamily(
        metrics.PREFIX + "agent_sessions",
        "Sessions that the bridge runs and that are not closed.",
        labels=["agent", "status"],
    )
    running = Session.objects.filter(kind=Session.Kind.BRIDGE).exclude(status=Session.Status.CLOSED)
    for agent, status, count in (
        running.order_by().values_list("agent_type", "status").annotate(Count("pk"))
    ):
        family.add_metric([agent, status], count)
    return family


def queue() -> tuple[int, int]:
    """Rows in the log, and their bytes."""
    held = Feed.objects.aggregate(rows=Sum("rows"), size=Sum("bytes"))
    return held["rows"] or 0, held["size"] or 0


def oldest_age() -> float:
    """Seconds since the oldest row was appended."""
    created = LogRow.objects.order_by("created_at").values_list("created_at", flat=True).first()
    return max(0.0, (timezone.now() - created).total_seconds()) if created else 0.0


def behind(device: Device) -> int:
    """The rows past a device's cursors in the feed for all and every observed session's: what it
    would be sent if it connected now (D28).
    """
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
