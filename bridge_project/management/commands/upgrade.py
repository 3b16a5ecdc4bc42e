"""Copy and migrate the database; go back if that fails; restart: `upgrade`."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand

from bridge_project.kernel.config import conf
from bridge_project.operations import upgrade


class Command(BaseCommand):
    help = (
        "Bring the database up to date with the code: stop the bridge, copy the database, migrate"
        " it, start the service again. When a migration fails the database is put back. `make"
        " upgrade` installs the requirements first."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        what = "the database is a server's, and you have dumped it: it is not copied here"
        parser.add_argument("--dumped", action="store_true", help=what)

    def handle(self, *args: Any, **options: Any) -> None:
        upgrade.upgrade(conf, dumped=options["dumped"], say=self.stdout.write)
