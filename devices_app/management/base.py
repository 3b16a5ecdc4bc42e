"""What the commands share: a database that may not be there yet, the bridge's address, names that
may be ambiguous, durations.
"""

from __future__ import annotations

import argparse
import re
import unicodedata
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection

from bridge_project.kernel.config import conf
from bridge_project.kernel.data_files import NotInPlace
from bridge_project.network import certificates as tls_certificates
from bridge_project.network import server_address
from bridge_project.network.server_address import Address
from devices_app.models import Device

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST = timedelta(days=3650)
NAME_MAX_CHARS = 80


class DatabaseCommand(BaseCommand):
    """A command that needs ``table``. It works while the bridge runs, and says what to do where the
    bridge has never run.
    """

    requires_system_checks: list[str] = []
    table: str

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            there = self.table in connection.introspection.table_names()
        except OperationalError as error:
            if isinstance(error.__cause__, NotInPlace):
                raise CommandError(f"{error}. Start the bridge once: `make run`.") from None
            raise CommandError(
                f"The database cannot be opened ({str(error).strip()}). Start the bridge once: `make run`."
            ) from None
        if not there:
            raise CommandError("There is no database yet. Start the bridge once: `make run`.")
        return super().execute(*args, **options)


class DeviceCommand(DatabaseCommand):
    table = Device._meta.db_table


def bridge_address() -> Address:
    """Where ``serve`` said that it is, else where it would be."""
    found = server_address.recorded(conf)
    if found is not None:
        return found
    return server_address.current(conf, tls_certificates.ensure(conf))


def find_device(text: str) -> Device:
    """The device with this id, else the one with this name; CommandError when there is none, or
    several.
    """
    if text.isascii() and text.isdigit() and len(text) < 19:
        device = Device.objects.filter(pk=int(text)).first()
        if device is not None:
            return device
    named = list(Device.objects.filter(name=text))
    if not named:
        raise CommandError(
            f"No device has the id or name {text!r}. `python manage.py list_devices` shows all."
        )
    if len(named) > 1:
        raise CommandError(
            f"{len(named)} devices are named {text!r}; give an id instead: {', '.join(str(device.pk) for device in named)}"
        )
    return named[0]


def duration(text: str) -> timedelta:
    """``90s``, ``10m``, ``2h``, ``7d``, for argparse; more than nothing, at most ten years."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text.strip())
    span = timedelta(seconds=int(found[1]) * UNITS[found[2]]) if found else timedelta()
    if not timedelta() < span <= LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no duration such as 90s, 10m, 2h or 7d (at most {LONGEST.days}d)"
        )
    return span


def device_name(text: str) -> str:
    """A name that fits its column and a line of a terminal, for argparse."""
    name = text.strip()
    if not 0 < len(name) <= NAME_MAX_CHARS or printable(name) != name:
        raise argparse.ArgumentTypeError(f"a name has 1 to {NAME_MAX_CHARS} printable characters")
    return name


def printable(text: str) -> str:
    """``text`` without what could move a terminal's cursor or colours: what a client said of itself
    is shown here.
    """
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c)[0] == "C" else c for c in text
    )
