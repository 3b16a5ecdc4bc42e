"""Remove the bridge from this machine: services, process, on request the data."""

import contextlib
import os
import shlex
import shutil
from pathlib import Path
from typing import Final

from django.core.management.base import CommandError

from bridge_project.kernel.config import PROJECT_DIR, Conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.operations import service, startup
from bridge_project.operations.restore import ASIDE

# what the bridge makes in its data directory (docs/operations.md); nothing else is removed
OURS: Final = (
    *("bridge.sqlite3*", "secrets", "tls", ".env", "instance", "server.json", "spool"),
    *("watch.json", "watch-*.json", "logs", "backups", "git", "*.lock"),
)


def remove_services(conf: Conf) -> list[str]:
    """Remove the bridge's systemd units; return commands that a person must run."""
    left = []
    for unit in service.units(conf):
        try:
            unit.control("disable", "--now")
            unit.file.unlink()
            service.reload(unit)
        except (CommandError, OSError):
            sudo = "sudo " if unit.manager == service.SYSTEM else ""
            remove = f"{sudo}rm {shlex.quote(str(unit.file))}"
            left.append(f"{unit.command('disable', '--now')}; {remove}")
    return left


def check_removable(conf: Conf) -> None:
    """Raise CommandError if the data directory holds more than the bridge's data."""
    directory = Path(os.path.realpath(conf.bridge_data_dir))
    for kept in (Path.home().resolve(), PROJECT_DIR):
        if kept.is_relative_to(directory):
            text = f"{directory} holds more than the bridge's data ({kept})"
            raise CommandError(f"{text}: remove that by hand. Nothing was done.")


def put_aside(conf: Conf) -> list[Path]:
    """List the old files that restores have kept; they hold tokens."""
    directory, database = Path(os.path.realpath(conf.bridge_data_dir)), sqlite_file(conf)
    found = {*directory.glob(f"{ASIDE}*"), *directory.parent.glob(f"{directory.name}.{ASIDE}*")}
    if database is not None:
        found |= set(database.parent.glob(f"{database.name}.{ASIDE}*"))
    return sorted(found)


def remove_data(conf: Conf) -> list[Path]:
    """Remove what is the bridge's in its directories; return what is left there."""
    directory = Path(os.path.realpath(conf.bridge_data_dir))
    database = sqlite_file(conf)
    with startup.only_server(conf):
        found = [path for name in OURS for path in directory.glob(name)]
        found += put_aside(conf)
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
