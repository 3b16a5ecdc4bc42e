"""Refuse a device from now on and close its sockets (D15, D43)."""

import getpass
from typing import Any

from django.core.management.base import CommandParser

from devices_app import pairing
from devices_app.management.base import DeviceCommand, find_device


class Command(DeviceCommand):
    help = (
        "Revoke a device: its tokens are refused at once, and its live connections are"
        " closed within two seconds. It can be paired again only as a new device."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = "the device's id (see list_devices), or its name when only one has it"
        parser.add_argument("device", metavar="NAME_OR_ID", help=which)

    def handle(self, *args: Any, **options: Any) -> None:
        device = find_device(options["device"])
        text = f"{device} is revoked."
        if not pairing.revoke(device, who=getpass.getuser()):
            text = f"{device} was revoked already, at {device.revoked_at:%Y-%m-%d %H:%M:%S} UTC."
        self.stdout.write(text)
