"""Write one archive of the whole bridge, while it runs: `backup`."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bridge_project.composition.database_copies import now_name
from bridge_project.kernel.config import conf
from bridge_project.kernel.private_files import make_private_dir
from bridge_project.operations import backup

DUMP = """The database is PostgreSQL and NOT in this backup. Dump it with its own tool:
  pg_dump --format=custom --file=bridge.dump "$DATABASE_URL"
and load that with pg_restore before the restored bridge is started."""


class Command(BaseCommand):
    help = (
        "Save the database, secrets, certificates, identity, settings (.env) and waiting hook"
        " events in one .tar.gz that only its owner can read. The bridge may run meanwhile."
        " Whoever has the file can be the bridge: keep it safe, and on another disk."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        where = "where to: a new file, or a directory (default: backups/ in the data directory)"
        parser.add_argument("file", nargs="?", help=where)

    def handle(self, *args: Any, **options: Any) -> None:
        named = options["file"] or str(make_private_dir(conf.bridge_data_dir, "backups"))
        target = Path(named).expanduser().absolute()
        if named.endswith("/") and not target.is_dir():  # a disk that is not mounted, perhaps
            raise CommandError(f"There is no directory {target}. Nothing was saved.")
        if target.is_dir():
            target /= f"bridge-{now_name()}.tar.gz"
        manifest = backup.back_up(conf, target)
        size = f"{target.stat().st_size / 2**10:,.0f} KB"
        self.stdout.write(f"Saved {len(manifest.files)} files ({size}) in {target}")
        self.stdout.write("It holds tokens and keys: keep it safe, and on another disk.")
        if backup.DATABASE not in manifest.files:
            self.stderr.write(DUMP)
