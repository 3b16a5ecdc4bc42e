"""Migrate the database, after a copy to go back to.

Copies are named `before-<time>-<migration>` and end with `-unfinished` until a start has
succeeded, with `-failed` when the start that made them had not. Neither is ever pruned.
"""

import contextlib
import fcntl
import filecmp
import math
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from bridge_project.composition import database_copies
from bridge_project.composition.startup import restore_command
from bridge_project.kernel.config import Conf
from bridge_project.kernel.database import sqlite_file, unused_sqlite
from bridge_project.kernel.private_files import make_private_dir

log = structlog.get_logger("bridge.startup")

MIGRATION_LOCK: Final = 0x42524944  # any number that nothing else in this database takes
KEPT_COPIES: Final = 5
UNFINISHED: Final = "-unfinished.sqlite3"
FAILED: Final = "-failed.sqlite3"


class MigrationFailed(CommandError):
    """Report a migration that failed, and the copy from before it."""

    def __init__(self, why: str, copy: Path | None, back: str) -> None:
        super().__init__(f"A migration failed ({why}). {back}.")
        self.why, self.copy = why, copy


def migrate(conf: Conf) -> None:
    """Apply pending migrations, in one process at a time. Raises CommandError."""
    with _usable():
        if not _pending() and not _unfinished(conf):
            return
        print("Preparing the database …", flush=True)  # noqa: T201 - a person waits for it
        with _locked(conf):
            copy = None
            # of those that waited for the lock only the first finds something to do
            if names := _pending():
                copy = copy_first(conf, names)
                _apply(conf)
            _rename_copies(conf, copy)


def pending() -> list[str]:
    """Return pending migrations. Raises CommandError when the database is too new."""
    with _usable():
        return _pending()


@contextlib.contextmanager
def _usable() -> Iterator[None]:
    """Report in one line when the database cannot be used."""
    setting = "DATABASE_URL" if connection.vendor == "postgresql" else "BRIDGE_DATA_DIR"
    try:
        yield
    except DatabaseError as error:
        text = " ".join(str(error).split())
        raise CommandError(f"{setting}: the database cannot be used ({text}).") from None
    finally:
        connection.close()  # the server's threads open their own


def _pending() -> list[str]:
    """Return `application.name` of pending ones. Raises CommandError if too new."""
    executor = MigrationExecutor(connection)
    applied = [f"{app}.{name}" for app, name in executor.loader.applied_migrations]
    if unknown := database_copies.unknown_migrations(applied, executor.loader):
        raise database_copies.newer(unknown, "The database")
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


@contextlib.contextmanager
def _locked(conf: Conf) -> Iterator[None]:
    """Let one process at a time migrate.

    For SQLite the file's directory is locked: several data directories may share the file, and
    closing another descriptor of the file itself would drop SQLite's own locks.
    """
    path = sqlite_file(conf)
    if path is None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
            try:
                yield
            finally:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _apply(conf: Conf) -> None:
    """Apply the migrations. Raises MigrationFailed, which names the copy to restore."""
    try:
        call_command("migrate", interactive=False, verbosity=0)
    except Exception as error:
        log.exception("a migration failed")
        # the newest copy in which no failed start has applied a migration yet
        copy = min(reversed(_unfinished(conf)), key=_count_applied, default=None)
        back = "It was new: nothing is lost"
        then = ", then start the version that you had"
        if copy is not None:
            command = restore_command(conf, copy)
            back = f"To go back to the database as it was: `{command}`{then}"
        elif connection.vendor == "postgresql":
            back = f"To go back: load your dump with pg_restore{then}"
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise MigrationFailed(why, copy, back) from error


def _count_applied(copy: Path) -> float:
    try:
        return len(database_copies.applied_migrations(copy))
    except sqlite3.Error:  # damaged since: any other is better
        return math.inf


def copy_first(conf: Conf, names: list[str]) -> Path | None:
    """Copy an SQLite database that has rows: there is no other way back.

    A start that is tried again, with the database as it was, uses the copy of the one that failed
    and makes no other, so failing starts do not fill the disk. Raises CommandError.
    """
    if not MigrationRecorder(connection).applied_migrations():
        if (left := unused_sqlite(conf)) is not None:
            text = "the database of DATABASE_URL is new: no device of the one before is known to it"
            log.warning(text, before=str(left))
        return None  # it is new
    source = sqlite_file(conf)
    if source is None:
        log.warning("a database server is migrated without a copy: dump it first (pg_dump)")
        return None
    try:
        directory = make_private_dir(conf.bridge_data_dir, "backups")
        for left in directory.glob(".before-*"):  # by a start that was killed while it copied
            left.unlink()
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")  # no copy replaces another
        target = directory / f"before-{moment}-{names[0]}{UNFINISHED}"
        earlier = _unfinished(conf)
        database_copies.copy_sqlite(source, target)
        same = [copy for copy in earlier if filecmp.cmp(copy, target, shallow=False)]
        if same:
            target.unlink()
            target = same[0]
    except OSError as error:
        text = f"The database cannot be copied before it is migrated ({error})."
        raise CommandError(text) from None
    log.info("the database was copied before it is migrated", copy=str(target), migrations=names)
    return target


def _unfinished(conf: Conf) -> list[Path]:
    """Return copies of starts that failed since one succeeded, oldest first."""
    return sorted((conf.bridge_data_dir / "backups").glob(f"before-*{UNFINISHED}"))


def _rename_copies(conf: Conf, copy: Path | None) -> None:
    """Give the copies their final names, and keep the last five that succeeded."""
    for one in _unfinished(conf):
        end = ".sqlite3" if one == copy else FAILED
        one.rename(one.with_name(one.name.removesuffix(UNFINISHED) + end))
    found = (conf.bridge_data_dir / "backups").glob("before-*.sqlite3")
    for old in sorted(one for one in found if not one.name.endswith(FAILED))[:-KEPT_COPIES]:
        old.unlink()
