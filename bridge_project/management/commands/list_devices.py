"""List devices: who is connected, and when and where each was last seen (D43)."""

from typing import Any

from bridge_project.kernel.config import conf
from bridge_project.kernel.own_commands import make_command
from bridge_project.kernel.text import terminal_safe
from devices_app import pairing
from devices_app.management.base import DeviceCommand
from devices_app.models import Device
from sessions_app.socket import presence

HEADINGS = ("ID", "NAME", "STATE", "PLATFORM", "VERSION", "LAST SEEN (UTC)", "ADDRESS")


class Command(DeviceCommand):
    help = (
        "List the devices. STATE: waiting (its code was not used yet), paired, connected, void (its"
        " code was not used in time), expired, revoked."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        devices = Device.objects.prefetch_related("tokens")
        connected = set(presence.live().values_list("device_id", flat=True))
        rows = [_row(device, device.pk in connected) for device in devices]
        none = f"No devices yet. `{make_command(conf, 'qr')}` pairs one."
        self.stdout.write(_table([[*HEADINGS], *rows]) if rows else none)


def _row(device: Device, connected: bool) -> list[str]:
    state = str(pairing.state(device))
    seen = f"{device.last_seen_at:%Y-%m-%d %H:%M:%S}" if device.last_seen_at else ""
    if connected and state == "paired":
        state, seen = "connected", "now"
    what = (device.platform, device.client_version, seen, device.last_address)
    return [terminal_safe(cell) or "-" for cell in (str(device.pk), device.name, state, *what)]


def _table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
