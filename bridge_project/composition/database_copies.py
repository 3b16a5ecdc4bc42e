"""Copy an SQLite database in use, check a copy, and find unknown migrations."""

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from django.core.management.base import CommandError
from django.db.migrations.loader import MigrationLoader

from bridge_project import __version__
from bridge_project.kernel.config import Conf
from bridge_project.kernel.private_files import sync

REMOVED_APPS: Final = ("axes",)  # older databases have their tables; devices_app.0002 drops them
APPLIED: Final = "SELECT app || '.' || name FROM django_migrations ORDER BY id"


def now_name() -> str:
    """Return the present moment as part of a file name that sorts by time."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def newest_copy(conf: Conf) -> Path | None:
    """Return the newest file in `backups` that `restore` takes."""
    backups = conf.bridge_data_dir / "backups"
    found = [*backups.glob("[!.]*.sqlite3"), *backups.glob("[!.]*.tar.gz")]
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def opened(path: Path, *, wait: float = 20) -> contextlib.closing[sqlite3.Connection]:
    """Open an existing database file, for a `with`; wait so many seconds for a lock."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return contextlib.closing(sqlite3.connect(uri, uri=True, timeout=wait))


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a database (0600) as of one moment; no writer waits. Raises CommandError."""
    try:
        with opened(source) as original:
            copy_open(original, target)
    except (sqlite3.Error, OSError) as error:
        raise CommandError(f"The database {source} cannot be copied ({error}).") from None


def copy_open(original: sqlite3.Connection, target: Path) -> None:
    """Copy the database of an open connection, even if its file was deleted.

    The copy has its name only when it is whole and checked. Raises sqlite3.Error or OSError.
    """
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with opened(draft) as copy:
            # in one step: in several, each write of the bridge would start it anew
            original.backup(copy)
            copy.execute("PRAGMA journal_mode=delete")  # one file, nothing beside it
            check(copy)
        os.replace(draft, target)
        directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(directory)  # a power cut does not take the name away
        finally:
            os.close(directory)
    finally:
        for left in target.parent.glob(f"{draft.name}*"):  # with its journal
            left.unlink(missing_ok=True)


def check(database: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError when the file is damaged."""
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {' '.join(found.split())}")


def applied_migrations(path: Path) -> list[str]:
    """Return `application.name` of each, the oldest first. Raises sqlite3.Error."""
    with opened(path) as database:
        return [name for (name,) in database.execute(APPLIED)]


def unknown_migrations(applied: Iterable[str], loader: MigrationLoader | None = None) -> list[str]:
    """Return migrations that this code lacks: a newer version applied them."""
    disk = (loader or MigrationLoader(None)).disk_migrations
    known = {
        *disk,
        *(old for migration in disk.values() for old in migration.replaces),
        *(old for migration in disk.values() for old in getattr(migration, "supersedes", ())),
    }
    unknown = set(applied) - {f"{app}.{name}" for app, name in known}
    return sorted(name for name in unknown if name.partition(".")[0] not in REMOVED_APPS)


def newer(names: list[str], what: str) -> CommandError:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return CommandError(
        f"{what} was written by a newer version of the bridge (it has {names[0]}{more};"
        f" this is {__version__}). Update the bridge."
    )
