"""Say that the owner is away, or back (D66): `away`."""

import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.own_commands import manage
from bridge_project.network import server_address
from bridge_project.protocol.types import parse_timestamp
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
        text = "You are at the machine already." if known else "You are back at the machine."
        if gone and known:
            text = f"You are away already, since {parse_timestamp(known.since).astimezone():%H:%M}."
        elif gone:
            hours, back = limits.AWAY_SECONDS // 3600, manage(conf, "away --back")
            text = f"You are away, for {hours} hours, until you write a prompt here, or `{back}`."
        self.stdout.write(text)
        if gone and not server_address.holder(conf):
            run = server_address.run_command(conf)
            self.stdout.write(f"The bridge does not run, so no phone is asked: `{run}`.")
