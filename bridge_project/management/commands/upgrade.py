"""Copy and migrate the database; go back if that fails; restart: `upgrade`."""

import os
import pwd
import shutil
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bridge_project import __version__
from bridge_project.composition import migrations, startup
from bridge_project.composition.database_copies import newest_copy
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.kernel.own_commands import make_command
from bridge_project.network import server_address
from bridge_project.operations import service
from sessions_app.agents.host import sockets

ROOM_BYTES: Final = 16 * 2**20  # besides the copy, and the table that a migration writes anew


class Command(BaseCommand):
    help = (
        "Bring the database up to date with the code: stop the bridge, copy the database, migrate"
        " it, start the service again. A migration that fails changes nothing. `make upgrade`"
        " installs the requirements first."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        what = "the database is a server's, and you have dumped it: it is not copied here"
        parser.add_argument("--dumped", action="store_true", help=what)

    def handle(self, *args: Any, **options: Any) -> None:
        _check_owner()
        startup.check_made(conf)
        names = migrations.pending()
        if names:
            _check_way_back(dumped=options["dumped"])
        unit = service.running_unit(conf)
        sockets.keep_mark().touch()  # what agents do goes on, and the next start finds it (D79)
        if stopped := service.stop(conf, unit):
            self.stdout.write("The bridge was stopped.")
        try:
            with startup.only_server(conf):
                startup.check_system(conf)
                migrations.migrate(conf)
        except migrations.MigrationFailed as failed:
            run = f"`{server_address.run_command(conf)}`"
            if unit is not None:
                run = f"`make setup` and `{unit.command('start')}`"
            back = f"Go back to the version that you had (git checkout), then {run}."
            raise CommandError(f"{failed.text} The bridge is stopped. {back}") from failed
        text = "The database was up to date."
        if names:
            kept = newest_copy(conf) if sqlite_file(conf) else None
            copy = f" As it was before: {kept}" if kept else ""
            text = f"The database is up to date ({len(names)} migrations).{copy}"
        self.stdout.write(text)
        if unit is not None:
            service.start(conf, unit)
            self.stdout.write(f"{unit.name} runs again, version {__version__}.")
        else:
            run = server_address.run_command(conf)
            again = "Start it again, with the same settings" if stopped else "Start it"
            self.stdout.write(f"This is version {__version__}. {again}: `{run}`")


def _check_owner() -> None:
    """Refuse to write into another user's data directory, as root would."""
    owner = conf.bridge_data_dir.stat().st_uid if conf.bridge_data_dir.exists() else os.geteuid()
    if owner != os.geteuid():
        name = pwd.getpwuid(owner).pw_name
        raise CommandError(
            f"{conf.bridge_data_dir} belongs to {name}, who must run this. Where the code is"
            " root's: `make setup`, and restart the service; its start copies and migrates."
        )


def _check_way_back(*, dumped: bool) -> None:
    """Refuse an upgrade that would have no copy to go back to. Raises CommandError."""
    database = sqlite_file(conf)
    if database is None:
        if dumped:
            return
        raise CommandError(
            "PostgreSQL is not copied here. Dump it (pg_dump), then:"
            f" `{make_command(conf, 'upgrade', '--dumped')}`. Nothing was changed."
        )
    size, mb = database.stat().st_size, 2**20
    for place in {database.parent, conf.bridge_data_dir}:
        if (free := shutil.disk_usage(place).free) < (needed := 2 * size + ROOM_BYTES):
            raise CommandError(
                f"{place} has {free // mb} MB free; a copy of the database and the change of its"
                f" tables need {needed // mb} MB. Nothing was changed; the bridge was not stopped."
            )
