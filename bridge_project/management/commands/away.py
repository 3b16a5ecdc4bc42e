"""Say that the owner is away, or back (D66): `away`."""

import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from sessions_app import away


class Command(BaseCommand):
    help = (
        "Say that you are away: what agents in your terminals ask then waits for an answer from a"
        " paired device also where they show no dialog meanwhile, as for subagents. It is over"
        " after 12 hours, and when you write a prompt at this machine."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--back", action="store_true", help="say that you are back")

    def handle(self, *args: Any, **options: Any) -> None:
        gone = not options["back"]
        known = away.set_away(gone, who=getpass.getuser())
        was = "were" if known else "are"
        self.stdout.write(f"You {was} {'away' if gone else 'at the machine'}.")
