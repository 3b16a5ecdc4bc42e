"""Copy the database while it is used, before each migration too, and refuse newer databases."""

from __future__ import annotations

import contextlib
import fcntl
import filecmp
import os
import secrets
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from django.db import connection
from django.db.migrations.loader import MigrationLoader

from bridge_project import __version__
from bridge_project.kernel.config import Conf, make_private_dir

KEPT_BEFORE_MIGRATIONS: Final = 5
UNFINISHED: Final = "-unfinished.sqlite3"  # how a copy's name ends until a start has succeeded
FAILED: Final = "-failed.sqlite3"  # and later, when the start that made it had not
REMOVED_APPS: Final = ("axes",)  # older databases have their tables; devices_app.0003 drops them


class MaintenanceError(Exception):
    """What was asked for cannot be done; the text is one line for the operator."""


def now_name() -> str:
    """The moment, as a part of a file's name that sorts by time."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


# -- the database ----------------------------------------------------------------------------------


def sqlite_path() -> Path | None:
    """The database's file; None for a database server."""
    return Path(str(connection.settings_dict["NAME"])) if connection.vendor == "sqlite" else None


def copy_sqlite(source: Path, target: Path) -> None:
    """A consistent copy (0600) of a database that others may be writing to; nobody waits for it.
    Raises MaintenanceError.
    """
    try:
        with _opened(source) as original:
            copy_open(original, target)
    except (sqlite3.Error, OSError) as error:
        raise MaintenanceError(f"The database {source} cannot be copied ({error}).") from None


def copy_open(original: sqlite3.Connection, target: Path) -> None:
    """The same of what a connection has open, even if the file has no name any more.

    Raises sqlite3.Error or OSError.
    """
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with _opened(draft) as copy:
            # in one step: in several, each write of the bridge would start it anew
            original.backup(copy)
            copy.execute("PRAGMA journal_mode=delete")  # one file, nothing beside it
            check(copy)
        os.replace(draft, target)
        _sync(target.parent)
    finally:
        for left in target.parent.glob(f"{draft.name}*"):  # with its journal
            left.unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    """Have the names in a directory on the disk, so that a power cut does not take a copy away."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _opened(path: Path) -> contextlib.closing[sqlite3.Connection]:
    return contextlib.closing(
        sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=20)
    )


def check(database: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError when the file is damaged."""
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {' '.join(found.split())}")


def unknown_migrations(applied: Iterable[str], loader: MigrationLoader | None = None) -> list[str]:
    """Those of ``applied`` (``application.name`` of each) that this code does not have: a newer
    version has written the database.
    """
    disk = (loader or MigrationLoader(None)).disk_migrations
    known = {*disk, *(old for migration in disk.values() for old in migration.replaces)}
    unknown = set(applied) - {f"{app}.{name}" for app, name in known}
    return sorted(name for name in unknown if name.partition(".")[0] not in REMOVED_APPS)


def applied_migrations(database: sqlite3.Connection) -> list[str]:
    """``application.name`` of each, the oldest first."""
    return [
        f"{app}.{name}"
        for app, name in database.execute("SELECT app, name FROM django_migrations ORDER BY id")
    ]


def newer(names: list[str], what: str) -> MaintenanceError:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return MaintenanceError(
        f"{what} was written by a newer version of the bridge (it has {names[0]}{more}; this is {__version__}). Update the bridge."
    )


# -- copies before migrations ----------------------------------------------------------------------


def before_migrations(conf: Conf, names: list[str]) -> Path | None:
    """Copy an SQLite database to ``<data dir>/backups/before-…-unfinished.sqlite3``.

    A start that failed leaves its copy for good. One that is tried again, with the database as it
    was, uses that copy and makes no other, so failing starts do not fill the disk.
    Returns the copy, None for a database server. The caller holds ``sqlite_locked``.
    Raises MaintenanceError.
    """
    source = sqlite_path()
    if source is None:
        return None
    try:
        directory = make_private_dir(conf.bridge_data_dir, "backups")
        for left in directory.glob(".before-*"):  # by a start that was killed while it copied
            left.unlink()
        # exact: no copy may replace another
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        target = directory / f"before-{moment}-{names[0]}{UNFINISHED}"
        earlier = unfinished_copies(conf)
        copy_sqlite(source, target)
        for copy in earlier:
            if filecmp.cmp(copy, target, shallow=False):
                target.unlink()
                return copy
    except OSError as error:
        raise MaintenanceError(
            f"The database cannot be copied before it is migrated ({error})."
        ) from None
    return target


def unfinished_copies(conf: Conf) -> list[Path]:
    """The copies of the starts that have failed since one succeeded, the oldest first."""
    return sorted((conf.bridge_data_dir / "backups").glob(f"before-*{UNFINISHED}"))


def way_back(conf: Conf) -> Path | None:
    """The newest of those copies in which no failed start has applied a migration yet."""
    return min(reversed(unfinished_copies(conf)), key=_count_applied, default=None)


def _count_applied(copy: Path) -> int:
    try:
        with contextlib.closing(
            sqlite3.connect(f"{copy.absolute().as_uri()}?mode=ro", uri=True)
        ) as database:
            return len(applied_migrations(database))
    except sqlite3.Error:  # damaged since: any other is better
        return sys.maxsize


def migrations_succeeded(conf: Conf, copy: Path | None) -> None:
    """Close what failed before, and prune the copies of starts that succeeded to the last five."""
    for one in unfinished_copies(conf):
        end = ".sqlite3" if one == copy else FAILED
        one.rename(one.with_name(one.name.removesuffix(UNFINISHED) + end))
    found = sorted((conf.bridge_data_dir / "backups").glob("before-*.sqlite3"))
    good = [one for one in found if not one.name.endswith((UNFINISHED, FAILED))]
    for old in good[:-KEPT_BEFORE_MIGRATIONS]:
        old.unlink()


def newest_copy(conf: Conf) -> Path | None:
    """The newest file in ``backups`` that `restore` takes."""
    backups = conf.bridge_data_dir / "backups"
    found = [*backups.glob("[!.]*.sqlite3"), *backups.glob("[!.]*.tar.gz")]
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


# -- locks -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def sqlite_locked(path: Path) -> Iterator[None]:
    """One process at a time migrates an SQLite database, even one that several data directories
    share.

    The lock is on the file's directory: closing another descriptor of the file itself would drop
    SQLite's own locks.
    """
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
