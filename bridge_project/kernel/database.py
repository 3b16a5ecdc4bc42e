"""The database: its settings for SQLite and PostgreSQL, and the few threads in which asynchronous
code uses it.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from bridge_project.kernel import data_files
from bridge_project.kernel.config import Conf, ConfError

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

P = ParamSpec("P")
T = TypeVar("T")

DELETE_ROWS = 500  # in one transaction
SQLITE_INIT = "PRAGMA journal_mode=wal; PRAGMA synchronous=FULL; PRAGMA busy_timeout=20000; PRAGMA journal_size_limit=67108864;"


def sqlite_file(conf: Conf) -> str | None:
    """Where the SQLite database is, or is to be; None for another database."""
    parts = urlsplit(conf.database_url)
    if parts.scheme == "sqlite":
        return unquote(parts.path)
    return None if parts.scheme else os.fspath(conf.bridge_data_dir / "bridge.sqlite3")


# A server that cannot be reached says nothing, and TCP by itself would wait for a quarter of an
# hour. The last is for the other side: what a host that was cut off or fell asleep holds in its
# transaction, the head of the log above all, must not stop the others for longer. Ours never pause
# inside one.
UNREACHABLE: dict[str, Any] = {
    "connect_timeout": 2,
    "tcp_user_timeout": 5000,  # milliseconds that what was sent may be unconfirmed
    "keepalives_idle": 5,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "options": "-c idle_in_transaction_session_timeout=5000",
}


def databases(conf: Conf) -> dict[str, Any]:
    """Django's DATABASES. SQLite commits with ``synchronous=FULL``, so that a power cut undoes
    nothing acknowledged (D26).
    """
    parts = urlsplit(conf.database_url)
    name = sqlite_file(conf)
    if name is not None:
        # IMMEDIATE: a transaction that reads first and writes later cannot fail half-way; it waits
        # its turn instead.
        options = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": SQLITE_INIT,
            "factory": data_files.Connection,
        }
        # CONN_MAX_AGE None: the threads that use it stay, so their connections do; one that fails
        # is still replaced.
        return {
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": name,
                "CONN_MAX_AGE": None,
                "OPTIONS": options,
            }
        }
    if not parts.path.strip("/"):
        raise ConfError("DATABASE_URL: names no database")
    return {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path.lstrip("/")),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": unquote(parts.hostname or ""),
            "PORT": str(parts.port or ""),
            # No pool: the threads below keep a connection each, and look at it before they use it.
            "CONN_MAX_AGE": None,
            "OPTIONS": {**UNREACHABLE, **dict(parse_qsl(parts.query))},
        }
    }


def delete_in_steps(rows: QuerySet[Any]) -> int:
    """Delete what a query finds, with what hangs from it, few in each transaction: nobody waits
    long, however much there is. How many it found.

    Each step asks again, so what does not match any more is left alone.
    """
    deleted = 0
    while keys := list(rows.order_by().values_list("pk", flat=True)[:DELETE_ROWS]):
        deleted += rows.filter(pk__in=keys).order_by().delete()[1].get(rows.model._meta.label, 0)
        if len(keys) < DELETE_ROWS:
            break
    return deleted


class Threads:
    """A few threads that keep their database connection, for code that runs on the event loop.

    Django's own way costs a thread and a connection for each request or socket; these are kept. A
    connection that PostgreSQL has ended is replaced before it is used, one that broke in use is
    dropped: a restarted server is found again without a restart of the bridge.
    """

    def __init__(self, name: str, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``function`` in one of the threads and return its result."""
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: _guarded(function, *args, **kwargs)
        )

    def begin(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have ``function`` called in one of the threads when its turn comes; callable from any
        thread. Raises RuntimeError when they are closed.
        """
        return self._pool.submit(lambda: _guarded(function, *args, **kwargs))

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _guarded(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    from django.db import Error, connection, reset_queries

    reset_queries()
    _close_if_ended(connection)
    try:
        return function(*args, **kwargs)
    except Error:
        connection.close_if_unusable_or_obsolete()
        raise


def _close_if_ended(connection: BaseDatabaseWrapper) -> None:
    """Close a kept connection that PostgreSQL has ended, so that the next query opens another.

    Between transactions the server sends nothing, so one that can be read from is at its end.
    Asking it (`SELECT 1`) would cost every call a round trip. A query that failed is never sent
    again: nobody knows what became of it.
    """
    kept: Any = connection.connection
    if connection.vendor != "postgresql" or kept is None or connection.in_atomic_block:
        return
    if kept.closed or _readable(kept.fileno()):
        connection.close()


def _readable(descriptor: int) -> bool:
    polled = select.poll()
    polled.register(descriptor, select.POLLIN)
    return bool(polled.poll(0))


readers = Threads("db-read", 2)
writers = Threads("db-write", 1)
ingestion = Threads("db-ingest", 1)
background = Threads("db-chores", 1)
