"""Care for the database: copies taken while it is written to, one before each migration, and the refusal of one that is newer than the code."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from django.db import connection
from django.db.migrations.loader import MigrationLoader

from bridge_project import __version__
from bridge_project.conf import Conf, make_private_dir

KEPT_BEFORE_MIGRATIONS: Final = 5


class MaintenanceError(Exception):
    """What was asked for cannot be done; the text is one line for the operator."""


def now_name() -> str:
    """The moment, as a part of a file's name that sorts by time."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


# -- the database ----------------------------------------------------------------------------------------------------------------


def sqlite_path() -> Path | None:
    """The database's file; None for a database server."""
    return Path(str(connection.settings_dict["NAME"])) if connection.vendor == "sqlite" else None


def copy_sqlite(source: Path, target: Path) -> None:
    """A consistent copy (0600) of a database that others may be writing to; nobody waits for it. Raises MaintenanceError."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with _opened(source) as original, _opened(draft) as copy:
            original.backup(copy)  # in one step: in several, each write of the bridge would start it anew
            copy.execute("PRAGMA journal_mode=delete")  # one file, nothing beside it
            check(copy)
        os.replace(draft, target)
    except (sqlite3.Error, OSError) as error:
        raise MaintenanceError(f"The database {source} cannot be copied ({error}).") from None
    finally:
        draft.unlink(missing_ok=True)


def _opened(path: Path) -> contextlib.closing[sqlite3.Connection]:
    return contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=20))


def check(database: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError when the file is damaged."""
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {found}")


def unknown_migrations(applied: Iterable[str], loader: MigrationLoader | None = None) -> list[str]:
    """Those of ``applied`` (``application.name`` of each) that this code does not have: a newer version has written the database."""
    disk = (loader or MigrationLoader(None)).disk_migrations
    known = {*disk, *(old for migration in disk.values() for old in migration.replaces)}
    return sorted(set(applied) - {f"{app}.{name}" for app, name in known})


def applied_migrations(database: sqlite3.Connection) -> list[str]:
    """``application.name`` of each, the oldest first."""
    return [f"{app}.{name}" for app, name in database.execute("SELECT app, name FROM django_migrations ORDER BY id")]


def newer(names: list[str], what: str) -> MaintenanceError:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return MaintenanceError(f"{what} was written by a newer version of the bridge (it has {names[0]}{more}; this is {__version__}). Update the bridge.")


def before_migrations(conf: Conf, names: list[str]) -> Path | None:
    """Copy an SQLite database to ``<data dir>/backups/before-….sqlite3`` and keep the last five; None for a database server. Raises MaintenanceError."""
    source = sqlite_path()
    if source is None:
        return None
    try:
        directory = make_private_dir(conf.bridge_data_dir / "backups")
        target = directory / f"before-{now_name()}-{names[0]}.sqlite3"
        copy_sqlite(source, target)
        for old in sorted(directory.glob("before-*.sqlite3"))[:-KEPT_BEFORE_MIGRATIONS]:
            old.unlink()
    except OSError as error:
        raise MaintenanceError(f"The database cannot be copied before it is migrated ({error}).") from None
    return target


@contextlib.contextmanager
def sqlite_locked(path: Path) -> Iterator[None]:
    """One process at a time migrates an SQLite database, even one that several data directories share.

    The lock is on the file's directory: closing another descriptor of the file itself would drop SQLite's own locks.
    """
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
