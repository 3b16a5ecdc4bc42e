"""Replace the data directory with a backup: `restore`."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from bridge_project.composition import startup
from bridge_project.kernel import own_commands
from bridge_project.kernel.config import conf
from bridge_project.network import server_address
from bridge_project.operations.backup import DATABASE, restore


class Command(BaseCommand):
    help = (
        "Put a backup in the place of the data directory (BRIDGE_DATA_DIR), whose files are kept"
        " in it; its backups stay. The bridge must be stopped. Nothing is touched unless the whole"
        " backup is sound and this version can use it."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        what = "what `backup` wrote, or a copy of the database alone (backups/*.sqlite3)"
        parser.add_argument("file", type=Path, help=what)

    def handle(self, *args: Any, **options: Any) -> None:
        file = options["file"].expanduser().absolute()
        with startup.only_server(conf):
            manifest, aside = restore(conf, file)
        text = f"The database is the one of {file} again."
        if manifest is not None:
            count, place = len(manifest.files), conf.bridge_data_dir
            text = f"Restored {count} files of {manifest.created_at} to {place}"
            if DATABASE not in manifest.files:
                text += "\nLoad the database's dump with pg_restore before the bridge is started."
        self.stdout.write(text)
        if aside is not None:
            kept = f"What was there is in {aside}, with its tokens"
            self.stdout.write(f"{kept}; remove it when all is well.")
        self.stdout.write(
            "If a device was revoked since then, it is valid again and has to be revoked again:"
            f" {own_commands.manage(conf, 'list_devices')}"
        )
        self.stdout.write(f"Next: {server_address.run_command(conf)}")
