"""List paired devices, with when and where each was last seen (D43)."""

import argparse
import json
from datetime import datetime
from typing import Any

from bridge_project.kernel.text import terminal_safe
from bridge_project.protocol.types import now_text
from devices_app import pairing
from devices_app.management.base import DeviceCommand
from devices_app.models import Device

HEADINGS = ("ID", "NAME", "STATE", "PLATFORM", "VERSION", "LAST SEEN (UTC)", "ADDRESS")


class Command(DeviceCommand):
    help = (
        "List the devices. STATE: waiting (its code was not used yet), paired, void (its code was"
        " not used in time), expired, revoked."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        instead = "print a JSON array instead of a table"
        parser.add_argument("--json", action="store_true", help=instead)

    def handle(self, *args: Any, **options: Any) -> None:
        devices = list(Device.objects.prefetch_related("tokens"))
        if options["json"]:
            said = json.dumps([*map(_as_json, devices)], ensure_ascii=False, indent=2)
        elif not devices:
            said = "No devices yet. `python manage.py mint_pairing_qr` pairs one."
        else:
            said = _table([[*HEADINGS], *map(_row, devices)])
        self.stdout.write(said)


def _as_json(device: Device) -> dict[str, Any]:
    return {
        "id": device.pk,
        "name": device.name,
        "state": pairing.state(device),
        "platform": device.platform or None,
        "client_version": device.client_version or None,
        "last_seen_at": _text(device.last_seen_at),
        "last_address": device.last_address or None,
        "created_at": _text(device.created_at),
        "paired_at": _text(device.paired_at),
        "revoked_at": _text(device.revoked_at),
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else now_text(moment)


def _row(device: Device) -> list[str]:
    seen = f"{device.last_seen_at:%Y-%m-%d %H:%M:%S}" if device.last_seen_at else ""
    what = (device.platform, device.client_version, seen, device.last_address)
    cells = (str(device.pk), device.name, pairing.state(device), *what)
    return [terminal_safe(cell) or "-" for cell in cells]


def _table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
