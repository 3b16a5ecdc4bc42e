"""Delete expired rows now, as a bridge does each minute (D30, D31, D34): `prune`."""

from typing import Any

from bridge_project.composition.chores import CHORES
from devices_app.management.base import DatabaseCommand
from sessions_app.models import LogRow


class Command(DatabaseCommand):
    help = "Remove what is past its bounds, and say how much. A running bridge does so each minute."
    table = LogRow._meta.db_table

    def handle(self, *args: Any, **options: Any) -> None:
        for what, chore in CHORES.items():
            self.stdout.write(f"{chore()} {what}")
