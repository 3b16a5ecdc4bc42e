"""``restore``: make the data directory what a backup holds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bridge_project.kernel.config import conf
from bridge_project.operations import backup, startup
from bridge_project.operations.database_copies import MaintenanceError


class Command(BaseCommand):
    help = (
        "Put a backup in the place of the data directory (BRIDGE_DATA_DIR), which is kept beside it. The bridge must be stopped. "
        "Nothing is touched unless the whole backup is sound and this version can use it."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "file",
            type=Path,
            help="a file that `backup` wrote, or a copy of the database alone (backups/*.sqlite3)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        file = options["file"].expanduser().absolute()
        with startup.only_server(conf):
            try:
                if backup.is_database(file):
                    self._restore_database(file)
                else:
                    self._restore(file)
            except MaintenanceError as error:
                raise CommandError(str(error)) from None

    def _restore_database(self, file: Path) -> None:
        aside = backup.restore_database(file)
        self.stdout.write(f"The database is the one of {file} again.")
        if aside is not None:
            self.stdout.write(f"What was there is in {aside}; remove it when all is well.")

    def _restore(self, file: Path) -> None:
        restored = backup.restore(conf, file)
        self.stdout.write(
            f"Restored {restored.files} files of {restored.created_at} to {restored.directory}"
        )
        if restored.aside is not None:
            self.stdout.write(f"What was there is in {restored.aside}; remove it when all is well.")
        if not restored.database:
            self.stdout.write(
                "The database is PostgreSQL's: load its dump with pg_restore before the bridge is started."
            )
