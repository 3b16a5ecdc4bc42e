"""What works here and now: checks, counts and features that rooms register, for GET /health and GET
/info (D48).
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

import structlog
from django.db import InterfaceError, OperationalError, connection

from bridge_project import __version__
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.network.transport import ConnectionMode
from bridge_project.protocol.http import DegradedChecks, Health, HealthDegraded, SystemInfo
from bridge_project.protocol.types import HealthWord, now_text

log = structlog.get_logger("bridge.health")

CHECK_SECONDS: Final = 2.0  # a check that takes longer has failed
# SPEC GET /health, 503 body
PARTS: Final = ("websocket_server", "hook_endpoint", "agent_sdk", "disk_space")

Check = Callable[[], str | None]

_started = time.monotonic()
_checks: dict[str, list[Check]] = {part: [] for part in PARTS}
_counts: dict[str, Callable[[], int]] = {}
_features: list[str] = []
_unhealthy: frozenset[str] = frozenset()


def register(part: str, check: Check) -> None:
    """Add a check to one of PARTS: None when all is well, else what is wrong, for the log. It runs
    in a thread and has CHECK_SECONDS.
    """
    _checks[part].append(check)


def register_count(name: str, count: Callable[[], int]) -> None:
    """Say how ``active_sessions`` or ``active_websockets`` is counted; without it, it is 0."""
    _counts[name] = count


def register_feature(name: str) -> None:
    """List something under ``features`` in /info that works here (SPEC GET /info)."""
    if name not in _features:
        _features.append(name)


def features() -> list[str]:
    return sorted(_features)


def report(mode: ConnectionMode) -> tuple[int, Health | HealthDegraded]:
    """The status and body of GET /health: 200, or 503 as soon as one check of one part fails
    (D48).
    """
    failed = _failures()
    counts: dict[str, int] = {}
    if not failed:
        try:
            counts = {name: count() for name, count in _counts.items()}
        except (OperationalError, InterfaceError) as error:
            failed = {"hook_endpoint": f"{error.__class__.__name__}: {error}".strip()}
    _tell(failed)
    if failed:
        words: dict[str, HealthWord] = {
            part: "unhealthy" if part in failed else "healthy" for part in PARTS
        }
        return 503, HealthDegraded(
            version=__version__, checks=DegradedChecks(**words), timestamp=now_text()
        )
    return 200, Health(
        version=__version__,
        uptime_seconds=int(time.monotonic() - _started),
        connection_mode=mode.value,
        active_sessions=counts.get("active_sessions", 0),
        active_websockets=counts.get("active_websockets", 0),
        system=SystemInfo(
            platform=sys.platform,
            runtime_version=f"Python {platform.python_version()}",
            memory_mb=memory_mb(),
        ),
        timestamp=now_text(),
    )


# -- running the checks ----------------------------------------------------------------------------

_pool = ThreadPoolExecutor(8, thread_name_prefix="health")
_running: dict[Check, Future[str | None]] = {}
_lock = threading.Lock()


def _failures() -> dict[str, str]:
    """Part → what is wrong with it. All checks run at once and share one deadline."""
    futures = [(part, _start(check)) for part, checks in _checks.items() for check in checks]
    deadline = time.monotonic() + CHECK_SECONDS
    failed: dict[str, str] = {}
    for part, future in futures:
        try:
            reason = future.result(max(0.0, deadline - time.monotonic()))
        except FutureTimeoutError:
            reason = f"no answer within {CHECK_SECONDS:g} s"
        except Exception as error:  # noqa: BLE001 - whatever a check ran into, its part does not work; the log says what
            reason = f"{error.__class__.__name__}: {error}".strip()
        if reason is not None:
            failed.setdefault(part, reason)
    return failed


def _start(check: Check) -> Future[str | None]:
    """One run of a check at a time: while it hangs, others who ask wait for the same run instead of
    filling the threads.
    """
    with _lock:
        future = _running.get(check)
        if future is None or future.done():
            future = _running[check] = _pool.submit(check)
        return future


def _tell(failed: dict[str, str]) -> None:
    """Log what became unhealthy or healthy, not every answer."""
    global _unhealthy
    now = frozenset(failed)
    for part in sorted(now - _unhealthy):
        log.error("part_unhealthy", part=part, reason=failed[part])
    for part in sorted(_unhealthy - now):
        log.info("part_healthy", part=part)
    _unhealthy = now


# -- the kernel's own checks -----------------------------------------------------------------------


def database() -> str | None:
    """Hook events need the database, and the right to write to it."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM django_migrations LIMIT 1")
            cursor.fetchone()
        name = str(connection.settings_dict["NAME"])
        if connection.vendor == "sqlite" and os.path.isabs(name) and not os.access(name, os.W_OK):
            return "the database cannot be written"
    finally:
        connection.close()  # this thread may not be needed again for hours
    return None


def channel_layer() -> str | None:
    """Other processes hear of new rows through Redis (D46)."""
    if conf.redis_url:
        import redis

        with redis.Redis.from_url(
            conf.redis_url, socket_connect_timeout=1, socket_timeout=1
        ) as client:
            client.ping()
    return None


def disk_space() -> str | None:
    """Room where the database is: the data directory (D48)."""
    free = shutil.disk_usage(conf.bridge_data_dir).free
    return None if free >= limits.DISK_FREE_MIN_BYTES else f"{free // limits.MB} MB free"


for _part, _check in (
    ("hook_endpoint", database),
    ("websocket_server", channel_layer),
    ("disk_space", disk_space),
):
    register(_part, _check)


def memory_mb() -> float:
    """Resident memory of this process, in MB (2**20 bytes)."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return round(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / limits.MB, 1)
    except OSError:  # no /proc: the peak is the nearest that the system tells
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / limits.MB, 1)
