"""Answer GET /health: which parts of the bridge work now (D48)."""

import os
import platform
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

import psutil
import structlog
from django.db import connection, transaction

from bridge_project import __version__
from bridge_project.kernel import data_files, database, limits, threads
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.protocol.http import Health, HealthDegraded, HealthPart, SystemInfo
from bridge_project.protocol.types import ConnectionMode, HealthWord, now_text
from sessions_app.agents import breaker
from sessions_app.models import LogHead
from sessions_app.socket import presence

log = structlog.get_logger("bridge.health")

CHECK_SECONDS: Final = 2.0  # a check that takes longer has failed


def check_database() -> str | None:
    """Check that the database's files are in place, and that it can be written."""
    if wrong := data_files.files.unhealthy():
        return wrong
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM django_migrations LIMIT 1")
            cursor.fetchone()
        if database.refused.is_set():
            with transaction.atomic():  # takes the right to write, which another may keep
                LogHead.objects.select_for_update().first()
            database.refused.clear()
    finally:
        connection.close()  # this thread may not be needed again for hours
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite" and os.path.isabs(name):
        os.utime(name)  # a file system that an error made read-only still grants access
    return None


def check_channel_layer() -> str | None:
    """Check Redis, through which processes learn of each other's rows (D46)."""
    if conf.redis_url:
        import redis  # 5 MB of memory, of no use without a Redis

        seconds = {"socket_connect_timeout": 1, "socket_timeout": 1}
        with redis.Redis.from_url(conf.redis_url, **seconds) as client:
            client.ping()
    return None


def check_disk_space() -> str | None:
    """Check that the disks of the data directory and of an SQLite database have room."""
    file = database.sqlite_file(conf)
    places = [conf.bridge_data_dir, *([file.parent] if file else [])]
    free = min(shutil.disk_usage(place).free for place in places)
    return None if free >= limits.DISK_FREE_MIN_BYTES else f"{free // limits.MB} MB free"


# Parts of the 503 body → their checks: each returns None, or what is wrong, for the log. They run
# in threads.
CHECKS: dict[HealthPart, Callable[[], str | None]] = {
    "websocket_server": check_channel_layer,
    "hook_endpoint": check_database,
    "agent_sdk": breaker.check,
    "disk_space": check_disk_space,
}

_started = time.monotonic()
_unhealthy: frozenset[str] = frozenset()
_running: dict[HealthPart, Future[str | None]] = {}
_lock = threading.Lock()


def report(mode: ConnectionMode) -> tuple[int, Health | HealthDegraded]:
    """Return status and body of GET /health; one failed check makes it 503 (D48)."""
    failed = _failures()
    sessions = websockets = 0
    if not failed:
        try:
            sessions, websockets = presence.active_sessions(), presence.live().count()
        except STORAGE_ERRORS as error:
            failed = {"hook_endpoint": f"{error.__class__.__name__}: {error}".strip()}
    _log_changes(failed)
    if failed:
        words: dict[HealthPart, HealthWord] = {
            part: "unhealthy" if part in failed else "healthy" for part in CHECKS
        }
        return 503, HealthDegraded(version=__version__, checks=words, timestamp=now_text())
    return 200, Health(
        version=__version__,
        uptime_seconds=int(time.monotonic() - _started),
        connection_mode=mode,
        active_sessions=sessions,
        active_websockets=websockets,
        system=SystemInfo(
            platform=sys.platform,
            runtime_version=f"Python {platform.python_version()}",
            memory_mb=round(psutil.Process().memory_info().rss / limits.MB, 1),
        ),
        timestamp=now_text(),
    )


def _failures() -> dict[str, str]:
    """Run all checks at once under one deadline; return part → what is wrong."""
    with _lock:
        for part, check in CHECKS.items():
            # one that hangs is waited for again, and takes only one thread
            if part not in _running or _running[part].done():
                _running[part] = threads.health.begin(check)
        futures = _running.copy()
    deadline = time.monotonic() + CHECK_SECONDS
    failed: dict[str, str] = {}
    for part, future in futures.items():
        try:
            reason = future.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            reason = f"no answer within {CHECK_SECONDS:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, this part does not work
            reason = f"{error.__class__.__name__}: {error}".strip()
        if reason is not None:
            failed[part] = reason
    return failed


def _log_changes(failed: dict[str, str]) -> None:
    """Log parts that became unhealthy or healthy, not every answer."""
    global _unhealthy
    for part in sorted(failed.keys() ^ _unhealthy):
        if part in failed:
            log.error("part_unhealthy", part=part, reason=failed[part])
        else:
            log.info("part_healthy", part=part)
    _unhealthy = frozenset(failed)
