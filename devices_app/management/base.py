"""Give commands the database, devices by name, durations."""

import argparse
import re
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection

from bridge_project.kernel.config import conf
from bridge_project.kernel.data_files import NotInPlace
from bridge_project.kernel.own_commands import make_command, manage
from bridge_project.kernel.text import terminal_safe
from devices_app.models import Device

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST = timedelta(days=3650)
NAME_CHARS = 80


class DatabaseCommand(BaseCommand):
    """Run only when ``table`` exists, else say how to start the bridge."""

    requires_system_checks: list[str] = []
    table: str

    def execute(self, *args: Any, **options: Any) -> str | None:
        start = f"Start the bridge once: `{make_command(conf, 'run')}`."
        try:
            there = self.table in connection.introspection.table_names()
        except DatabaseError as error:
            advice = f" {start}" if isinstance(error.__cause__, NotInPlace) else ""
            raise CommandError(f"The database cannot be opened ({error}).{advice}") from None
        if not there:
            raise CommandError(f"There is no database yet. {start}")
        return super().execute(*args, **options)


class DeviceCommand(DatabaseCommand):
    table = Device._meta.db_table


def find_device(text: str) -> Device:
    """Return the device with this id, else this name. Raises CommandError.

    Of several with a name it is the one that is paired: the others are codes that nobody has used,
    or revoked.
    """
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    found = list(Device.objects.filter(pk=number)) or list(Device.objects.filter(name=text))
    if not found:
        shows = f"`{manage(conf, 'list_devices')}` shows all."
        raise CommandError(f"No device has the id or name {text!r}. {shows}")
    paired = [device for device in found if device.paired_at and not device.revoked_at]
    found = paired if len(paired) == 1 else found
    if len(found) > 1:
        ids = ", ".join(str(device.pk) for device in found)
        raise CommandError(f"{len(found)} devices are named {text!r}; give an id instead: {ids}")
    return found[0]


def duration(text: str) -> timedelta:
    """Parse ``90s``, ``10m``, ``2h`` or ``7d`` for argparse; at most ten years."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text.strip())
    span = timedelta(seconds=int(found[1]) * UNITS[found[2]]) if found else timedelta()
    if not timedelta() < span <= LONGEST:
        text = f"{text!r} is no duration such as 90s, 10m, 2h or 7d (at most {LONGEST.days}d)"
        raise argparse.ArgumentTypeError(text)
    return span


def device_name(text: str) -> str:
    """Check a device's name for argparse: it fits its column and a terminal."""
    name = text.strip()
    if not 0 < len(name) <= NAME_CHARS or terminal_safe(name) != name:
        raise argparse.ArgumentTypeError(f"a name has 1 to {NAME_CHARS} printable characters")
    return name
