"""Remove hooks and services, and with `--data` the data: `uninstall`."""

import contextlib
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from bridge_project.composition import startup
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.kernel.own_commands import make_command
from bridge_project.kernel.place import IN_CLONE, PROJECT_DIR, installer
from bridge_project.kernel.questions import agrees
from bridge_project.operations import service
from bridge_project.operations.doctor.agents import hosts
from bridge_project.operations.doctor.snapshot import Snapshot
from hooks_app.producer.shell_command import ANSWER_SCRIPT, HOOK_SCRIPT

# what the bridge makes in its data directory (docs/operations.md); nothing else is removed
OURS: Final = (
    *("bridge.sqlite3*", "secrets", "tls", ".env", "instance", "server.json", "spool", "hosts"),
    *("watch.json", "watch-*.json", "logs", "backups", "before-restore-*", ".restoring-*"),
    *("attachments", "git", "*.lock"),
)
KEPT = """\
The data is kept: {data}
  (devices and their tokens, the certificate authority, the log, the backups)
  {remove}   # removes it too"""
REST = """What is left, for you to remove:
  {remove}
  the proxy's site or the tunnel, if you made one; backups that you keep elsewhere
  on phones and browsers that trust it: the bridge's certificate authority"""


class Command(BaseCommand):
    help = (
        "Stop the bridge, take its hooks out of the agent's settings and remove its services."
        " The data directory is kept, or removed with --data."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        data = (
            "remove the data directory too, after a question: devices and their tokens, the log,"
            " the backups"
        )
        parser.add_argument("--data", action="store_true", help=data)
        yes = "do it without asking; needed with --data where there is no terminal"
        parser.add_argument("--yes", action="store_true", help=yes)

    def handle(self, *args: Any, **options: Any) -> None:
        removing = options["data"]
        directory = Path(os.path.realpath(conf.bridge_data_dir))
        for kept in (Path.home().resolve(), PROJECT_DIR):
            if removing and kept.is_relative_to(directory):
                text = f"{directory} holds more than the bridge's data ({kept})"
                raise CommandError(f"{text}: remove that by hand. Nothing was done.")
        if removing and not options["yes"]:
            if not sys.stdin.isatty():
                again = make_command(conf, "uninstall", "--data --yes")
                raise CommandError(f"There is no terminal to ask at: `{again}`. Nothing was done.")
            if not agrees(f"Remove all in {directory}, devices and backups too?"):
                raise CommandError("Nothing was done.")
        if service.stop(conf, service.running_unit(conf)):
            self.stdout.write("The running bridge is stopped.")
        if (alone := hosts(Snapshot(conf))).level == "warning":
            self.stdout.write(alone.text)
        call_command("install_hooks", "--remove", "--yes", stdout=self.stdout)
        left = _remove_services()
        if removing:
            others = _remove_data(directory)
            text = f", but for what is not the bridge's: {', '.join(map(str, others))}"
            self.stdout.write(f"{conf.bridge_data_dir} is removed{text if others else ''}.")
            if conf.database_url.startswith("postgres"):
                self.stdout.write("The PostgreSQL database is still there: DROP DATABASE.")
        else:
            # a hook left in another settings file would fill the spool, which nobody reads any more
            for name in (HOOK_SCRIPT, ANSWER_SCRIPT):
                with contextlib.suppress(OSError):
                    (directory / "spool" / name).unlink()
            remove = make_command(conf, "uninstall", "--data")
            self.stdout.write(KEPT.format(data=conf.bridge_data_dir, remove=remove))
        for command in left:
            self.stdout.write(f"A service could not be removed. Run: {command}")
        self.stdout.write(REST.format(remove=_remove_code(directory, kept=not removing)))


def _remove_code(data: Path, *, kept: bool) -> str:
    """Return the command that removes the code and its environment."""
    if not IN_CLONE:
        return installer().remove
    remove = f"rm -rf {shlex.quote(str(PROJECT_DIR))}   # the code and its environment"
    if kept and data.is_relative_to(PROJECT_DIR):  # or it would go with the clone
        remove = f"mv {shlex.quote(str(data))} ~/bridge-data && {remove}"
    return remove


def _remove_services() -> list[str]:
    """Remove the bridge's services; return commands that a person must run."""
    left = []
    for unit in service.units(conf):
        try:
            unit.remove()
        except (CommandError, OSError):
            sudo = "sudo " if unit.by_root else ""
            remove = f"{sudo}rm {shlex.quote(str(unit.file))}"
            left.append(f"{unit.command('remove')}; {remove}")
    return left


def _remove_data(directory: Path) -> list[Path]:
    """Remove what is the bridge's in its directories; return what is left there."""
    database = sqlite_file(conf)
    with startup.only_server(conf):
        found = [path for name in OURS for path in directory.glob(name)]
        if database is not None:
            found += [Path(f"{database}{suffix}") for suffix in ("", "-wal", "-shm")]
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a volume, or not empty
        directory.rmdir()
        if conf.bridge_data_dir.is_symlink():
            conf.bridge_data_dir.unlink()
    return sorted(directory.iterdir()) if directory.exists() else []
