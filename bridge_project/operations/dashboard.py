"""Fill the admin site's first page with the bridge's present state, cheaply."""

import os
import shutil
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Count, Sum
from django.http import HttpRequest
from django.utils import timezone

from bridge_project.composition import health
from bridge_project.http.request import transport_of
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.network import server_address
from bridge_project.operations.doctor import checks
from bridge_project.operations.doctor.snapshot import Reached, Snapshot
from devices_app.models import Device
from hooks_app.intake import forwarders
from hooks_app.models import HookEvent
from sessions_app.admin import RISK_COLOURS, STATUS_COLOURS, readable
from sessions_app.log import reader
from sessions_app.models import Feed, LogRow, Session, ToolCall
from sessions_app.socket import presence

SHOWN: Final = 8  # of each list; the rest is behind its link
HOURS: Final = 24
EVENTS_COUNTED: Final = 10_000  # of an hour; more are drawn as so many
HOUR: Final = timedelta(hours=1)
CHART_HEIGHT: Final = 60


def fill(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add what the first page shows; unfold calls it."""
    if not getattr(request.user, "is_superuser", False):  # `make admin` makes no other users
        return context
    status, body = health.report(transport_of(request).mode)
    info = {"forwarders": [one.model_dump() for one in forwarders.behind()]}
    recorded, here = server_address.recorded(conf), Reached(200, {}, b"")
    found = checks.glance(Snapshot(conf, recorded, holder=str(os.getpid()), health=here, info=info))
    now = timezone.now()
    bars = _chart(now)
    return context | {
        "waiting": _waiting(),
        "devices": _devices(),
        "sessions": _sessions(),
        "bars": bars,
        "events": sum(bar["events"] for bar in bars),
        "most": max(bar["events"] for bar in bars),
        "healthy": status == 200,
        "health": body,
        "since": now - timedelta(seconds=getattr(body, "uptime_seconds", 0)),
        "findings": [one for one in found if one.level != "ok"],
        "fine": sum(one.level == "ok" for one in found),
        "storage": _storage(),
    }


def _waiting() -> dict[str, Any]:
    pending = ToolCall.objects.filter(decision=ToolCall.Decision.PENDING)
    shown = [
        {"record": one, "input": readable(one.params), "colour": RISK_COLOURS.get(one.risk_level)}
        for one in pending.select_related("session").order_by("pk")[:SHOWN]
    ]
    return {"count": pending.count(), "calls": shown}


def _devices() -> list[dict[str, Any]]:
    """List the paired devices: connected ones first, then by when they were last seen."""
    connected = {one.device_id: one for one in presence.live()}
    paired = Device.objects.filter(revoked_at=None).exclude(paired_at=None)
    here = list(paired.filter(pk__in=connected))
    away = list(paired.exclude(pk__in=connected).order_by("-last_seen_at")[:SHOWN])
    return [{"device": one, "connection": connected.get(one.pk)} for one in [*here, *away]]


def _sessions() -> list[dict[str, Any]]:
    counts = dict(Session.objects.order_by().values_list("status").annotate(Count("pk")))
    return [
        {"status": one, "count": counts.get(one, 0), "colour": STATUS_COLOURS.get(one)}
        for one in Session.Status.values
    ]


def _chart(now: datetime) -> list[dict[str, Any]]:
    """Return a bar for the events of each of the last 24 hours, counted in an index."""
    bars: list[dict[str, Any]] = []
    for number in range(HOURS):
        begins = now.replace(minute=0, second=0, microsecond=0) - HOUR * (HOURS - 1 - number)
        within = {"received_at__gte": begins, "received_at__lt": begins + HOUR}
        found = HookEvent.objects.order_by().filter(**within).values("pk")[:EVENTS_COUNTED]
        bars.append({"begins": begins, "events": found.count(), "x": 10 * number})
    most = max(*(bar["events"] for bar in bars), 1)
    for bar in bars:
        bar["height"] = round(CHART_HEIGHT * bar["events"] / most, 2)
        bar["y"] = CHART_HEIGHT - bar["height"]
    return bars


def _storage() -> dict[str, Any]:
    held = Feed.objects.aggregate(rows=Sum("rows"), bytes=Sum("bytes"))
    database = sqlite_file(conf)
    times = LogRow.objects.order_by("seq").values_list("created_at", flat=True)
    return {
        "free": shutil.disk_usage(conf.bridge_data_dir).free,
        "least": limits.DISK_FREE_MIN_BYTES,
        "database": database.stat().st_size if database and database.exists() else None,
        "rows": held["rows"] or 0,
        "bytes": held["bytes"] or 0,
        "head": reader.head_seq(),
        "oldest": times.first(),
    }
