"""Replace the data directory by a backup: `restore`."""

import argparse
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from bridge_project.kernel.config import conf
from bridge_project.kernel.text import terminal_safe
from bridge_project.operations import restore, startup
from bridge_project.operations.backup import DATABASE

Devices = dict[tuple[int, str], str]


class Command(BaseCommand):
    help = (
        "Put a backup in the place of the data directory (BRIDGE_DATA_DIR), whose files are kept"
        " beside it; its backups stay in it. The bridge must be stopped. Nothing is touched unless"
        " the whole backup is sound and this version can use it."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        what = "what `backup` wrote, or a copy of the database alone (backups/*.sqlite3)"
        parser.add_argument("file", type=Path, help=what)

    def handle(self, *args: Any, **options: Any) -> None:
        file = options["file"].expanduser().absolute()
        with startup.only_server(conf):
            revoked = restore.devices(conf, revoked=True)
            if restore.is_database(file):
                aside = restore.restore_database(conf, file)
                said = f"The database is the one of {file} again."
            else:
                manifest, aside = restore.restore(conf, file)
                count, place = len(manifest.files), conf.bridge_data_dir
                said = f"Restored {count} files of {manifest.created_at} to {place}"
                if DATABASE not in manifest.files:
                    said += (
                        "\nLoad the database's dump with pg_restore before the bridge is started."
                    )
            valid = restore.devices(conf, revoked=False)
        self.stdout.write(said)
        if aside is not None:
            kept = f"What was there is in {aside}, with its tokens"
            self.stdout.write(f"{kept}; remove it when all is well.")
        self._name_revoked(revoked, valid)
        self.stdout.write(f"Next: {startup.make_command(conf, 'run')}")

    def _name_revoked(self, revoked: Devices | None, valid: Devices | None) -> None:
        """Name the devices that were revoked until now, and are valid again."""
        if revoked is None or valid is None:
            text = "Devices that were revoked after the backup are valid again; they are listed by"
            self.stdout.write(f"{text}: {startup.manage(conf, 'list_devices')}")
            return
        for number, made in sorted(revoked.keys() & valid.keys()):
            name = terminal_safe(revoked[number, made])
            again = startup.manage(conf, f"revoke_device {number}")
            self.stdout.write(f"{name} (#{number}) was revoked, and is valid again. Run: {again}")
