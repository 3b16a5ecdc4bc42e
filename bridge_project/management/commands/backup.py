"""``backup``: one archive of everything that makes this bridge what it is, taken while it runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bridge_project.kernel.config import conf, make_private_dir
from bridge_project.operations import backup
from bridge_project.operations.database_copies import MaintenanceError, now_name

DUMP = """The database is PostgreSQL and NOT in this backup. Dump it with its own tool:
  pg_dump --format=custom --file=bridge.dump "$DATABASE_URL"
and load that with pg_restore before the restored bridge is started."""


class Command(BaseCommand):
    help = (
        "Save the database, secrets, certificates, identity, settings (.env) and waiting hook events in one .tar.gz that only its owner can read. "
        "The bridge may run meanwhile. Whoever has the file can be the bridge: keep it safe, and on another disk."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "file",
            nargs="?",
            type=Path,
            help="where to (default: backups/bridge-<time>.tar.gz in the data directory); a directory: a file in it",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            saved = backup.back_up(conf, _target(options["file"]))
        except MaintenanceError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(
            f"Saved {saved.files} files ({saved.size / 2**20:.1f} MB) in {saved.path}"
        )
        if not saved.database:
            self.stderr.write(DUMP)


def _target(given: Path | None) -> Path:
    name = f"bridge-{now_name()}.tar.gz"
    if given is None:
        return make_private_dir(conf.bridge_data_dir, "backups") / name
    target = given.expanduser().absolute()
    return target / name if target.is_dir() else target
