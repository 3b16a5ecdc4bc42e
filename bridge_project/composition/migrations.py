"""Migrate the database in one transaction, after a copy to go back to."""

import contextlib
import fcntl
import filecmp
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from bridge_project.composition import database_copies
from bridge_project.kernel.config import Conf
from bridge_project.kernel.database import sqlite_file, unused_sqlite
from bridge_project.kernel.private_files import make_private_dir

log = structlog.get_logger("bridge.startup")

MIGRATION_LOCK: Final = 0x42524944  # any number that nothing else in this database takes
KEPT_COPIES: Final = 5
COPIES: Final = "before-*.sqlite3"


class MigrationFailed(CommandError):
    """Report a migration that failed. None of those of its start was applied."""

    def __init__(self, error: Exception) -> None:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        text = f"A migration failed ({why}). The database is as it was before."
        super().__init__(f"{text} Go back to the version that you had.")
        self.text = text


def migrate(conf: Conf) -> None:
    """Apply all that are pending, or none; one process at a time. Raises CommandError."""
    with _usable():
        if not _pending():
            return
        print("Preparing the database …", flush=True)  # noqa: T201 - a person waits for it
        with _locked(conf):
            # of those that waited for the lock only the first finds something to do
            if names := _pending():
                copy_first(conf, names)
                _apply()
                for old in _copies(conf)[:-KEPT_COPIES]:
                    old.unlink()


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


def _apply() -> None:
    """Apply the migrations in one transaction. Raises MigrationFailed.

    Django's own are one for each migration, and may end before it is recorded: killed in between,
    every later start would make the same tables again.
    """
    # SQLite's way to change a table needs it, and cannot have it once a transaction is open
    connection.disable_constraint_checking()
    try:
        with transaction.atomic():
            if connection.vendor == "postgresql":  # changes no table with checks to come
                with connection.cursor() as cursor:
                    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            call_command("migrate", interactive=False, verbosity=0)
    except Exception as error:
        log.exception("a migration failed")
        raise MigrationFailed(error) from error


def copy_first(conf: Conf, names: list[str]) -> None:
    """Copy an SQLite database that has rows: no other way leads to an older version.

    A start that is tried again uses the copy of the one before it and makes no other, so failing
    starts do not fill the disk. Raises CommandError.
    """
    if not MigrationRecorder(connection).applied_migrations():
        if (left := unused_sqlite(conf)) is not None:
            text = "the database of DATABASE_URL is new: no device of the one before is known to it"
            log.warning(text, before=str(left))
        return  # it is new
    source = sqlite_file(conf)
    if source is None:
        log.warning("a database server is migrated without a copy: dump it first (pg_dump)")
        return
    try:
        directory = make_private_dir(conf.bridge_data_dir, "backups")
        for left in directory.glob(".before-*"):  # by a start that was killed while it copied
            left.unlink()
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")  # no copy replaces another
        target = directory / f"before-{moment}-{names[0]}.sqlite3"
        earlier = _copies(conf)
        database_copies.copy_sqlite(source, target)
        same = [copy for copy in earlier if filecmp.cmp(copy, target, shallow=False)]
        if same:
            target.unlink()
            target = same[0]
    except OSError as error:
        text = f"The database cannot be copied before it is migrated ({error})."
        raise CommandError(text) from None
    log.info("the database was copied before it is migrated", copy=str(target), migrations=names)


def _copies(conf: Conf) -> list[Path]:
    """Return the copies made here, oldest first."""
    return sorted((conf.bridge_data_dir / "backups").glob(COPIES))
