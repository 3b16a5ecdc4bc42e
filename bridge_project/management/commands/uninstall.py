"""Remove hooks and services, and on request the data: `uninstall`."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from bridge_project.kernel.config import PROJECT_DIR, conf
from bridge_project.operations import service, uninstall

KEEP, REMOVE = "keep", "remove"
WHAT = (
    "This stops the bridge, takes its hooks out of the agent's settings file and removes its"
    " systemd units."
)
REST = """What is left, for you to remove:
  rm -rf {clone}   # the code and its environment
  the proxy's site or the tunnel, if you made one; backups that you keep elsewhere
  on phones and browsers that trust it: the bridge's certificate authority"""


class Command(BaseCommand):
    help = (
        "Stop the bridge, take its hooks out of the agent's settings and remove its services."
        " The data directory is kept, or removed when you say so."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        data = "what becomes of the data directory; asked for on a terminal, needed without one"
        parser.add_argument("--data", choices=(KEEP, REMOVE), help=data)
        hooks = "another settings file that hooks were installed into; may be repeated"
        where: dict[str, Any] = {"action": "append", "type": Path, "default": [], "help": hooks}
        parser.add_argument("--hooks", metavar="FILE", **where)

    def handle(self, *args: Any, **options: Any) -> None:
        data = options["data"] or self._ask()
        if data == REMOVE:
            uninstall.check_removable(conf)
        service.stop(conf, service.running_unit(conf))
        for file in (None, *options["hooks"]):
            call_command(
                "install_hooks", remove=True, yes=True, settings_file=file, stdout=self.stdout
            )
        left = uninstall.remove_services(conf)
        if data == REMOVE:
            kept = uninstall.remove_data(conf)
            others = f", but for what is not the bridge's: {', '.join(map(str, kept))}"
            self.stdout.write(f"{conf.bridge_data_dir} is removed{others if kept else ''}.")
            if conf.database_url.startswith("postgres"):
                self.stdout.write("The PostgreSQL database is still there: DROP DATABASE.")
        else:
            self.stdout.write(f"The data is kept: {conf.bridge_data_dir}")
        for command in left:
            self.stdout.write(f"A service could not be removed. Run: {command}")
        self.stdout.write(REST.format(clone=shlex.quote(str(PROJECT_DIR))))
        for path in uninstall.put_aside(conf):
            self.stdout.write(
                f"  rm -rf {shlex.quote(str(path))}   # put aside by a restore, with tokens"
            )

    def _ask(self) -> str:
        """Ask whether to go on, and whether to keep the data. Raises CommandError."""
        self.stdout.write(WHAT)
        if not sys.stdin.isatty():
            flags = "give --data keep or --data remove"
            raise CommandError(f"Nothing was done: without a terminal {flags}.")
        if input("Go on? [y/N] ").strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was done.")
        self.stdout.write(
            f"In {conf.bridge_data_dir} are the devices and their tokens, the certificate"
            " authority, the log and the backups."
        )
        answer = input('Type "remove" to remove it; anything else keeps it: ')
        return REMOVE if answer.strip().lower() == REMOVE else KEEP
