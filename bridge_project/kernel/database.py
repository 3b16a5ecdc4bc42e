"""Make Django's database settings, and delete rows in small steps."""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from django.db import InterfaceError, InternalError, OperationalError
from django.db.models import QuerySet

from bridge_project.kernel import data_files
from bridge_project.kernel.config import Conf, ConfError

DELETE_ROWS = 500  # in one transaction
# These mean that the database is away; InternalError that it ended a transaction because this
# process slept in it (UNREACHABLE).
STORAGE_ERRORS: Final = (OperationalError, InterfaceError, InternalError)
refused = threading.Event()  # set when a request met one, until the database was written again
# FULL: a power cut undoes nothing that was acknowledged (D26).
# Without fullfsync macOS's disks may keep it in memory; elsewhere it does nothing.
SQLITE_INIT = (
    "PRAGMA journal_mode=wal; PRAGMA synchronous=FULL; PRAGMA fullfsync=ON;"
    " PRAGMA checkpoint_fullfsync=ON; PRAGMA journal_size_limit=67108864"
)


def sqlite_file(conf: Conf) -> Path | None:
    """Return the SQLite database's path; None for another database."""
    parts = urlsplit(conf.database_url)
    if parts.scheme == "sqlite":
        return Path(unquote(parts.path))
    return None if parts.scheme else conf.bridge_data_dir / "bridge.sqlite3"


def unused_sqlite(conf: Conf) -> Path | None:
    """Return the data directory's SQLite database if another database is used."""
    usual = conf.bridge_data_dir / "bridge.sqlite3"
    return usual if usual != sqlite_file(conf) and usual.is_file() else None


# When a server cannot be reached, TCP alone would wait for a quarter of an hour. The last option is
# for the server: locks of a host that was cut off or suspended in a transaction, above all on the
# head of the log, must not stop the others for longer. Our transactions never pause.
UNREACHABLE: dict[str, Any] = {
    "connect_timeout": 2,
    "tcp_user_timeout": 5000,  # milliseconds that what was sent may be unconfirmed
    "keepalives_idle": 5,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "options": "-c idle_in_transaction_session_timeout=5000",
}


def database_settings(conf: Conf) -> dict[str, Any]:
    parts = urlsplit(conf.database_url)
    name = sqlite_file(conf)
    if name is not None:
        # IMMEDIATE: a transaction that reads first and writes later cannot fail half-way; it waits
        # its turn instead.
        options = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": SQLITE_INIT,
            "factory": data_files.GuardedConnection,
        }
        # CONN_MAX_AGE None: the threads that use it stay, so their connections do; one that fails
        # is still replaced.
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.fspath(name),
            "CONN_MAX_AGE": None,
            "OPTIONS": options,
        }
    if not parts.path.strip("/"):
        raise ConfError("DATABASE_URL: names no database")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        # No pool: the threads' connections stay, and are looked at before they are used.
        "CONN_MAX_AGE": None,
        "OPTIONS": {**UNREACHABLE, **dict(parse_qsl(parts.query))},
    }


def delete_in_steps(
    rows: QuerySet[Any], within: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> int:
    """Delete rows in small transactions, each in ``within``; return how many."""
    deleted = 0
    while keys := list(rows.order_by().values_list("pk", flat=True)[:DELETE_ROWS]):
        with within():
            gone = rows.filter(pk__in=keys).order_by().delete()[1]
        deleted += gone.get(rows.model._meta.label, 0)
        if len(keys) < DELETE_ROWS:
            break
    return deleted
