"""``prune``: remove now what a running bridge removes by itself each minute (D30, D31, D34)."""

from __future__ import annotations

from typing import Any

from devices_app import pairing
from devices_app.management.base import DatabaseCommand
from hooks_app import ingest
from sessions_app import lifecycle, log
from sessions_app.models import LogRow


class Command(DatabaseCommand):
    help = (
        "Remove what is past its bounds: rows of the log, sessions, devices that never paired, and the memory of events. A running bridge does so each minute."
    )
    table = LogRow._meta.db_table

    def handle(self, *args: Any, **options: Any) -> None:
        closed = lifecycle.close_idle()
        removed = (
            (log.prune(), "rows of the log"),
            (lifecycle.forget_closed(), "sessions"),
            (pairing.forget_void(), "devices that never paired"),
            (ingest.forget_old(), "memories of events"),
        )
        self.stdout.write(f"Removed {', '.join(f'{count} {what}' for count, what in removed)}; closed {closed} idle sessions.")
