"""Check the bridge and its machine, and print remedies (D43): `doctor`."""

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from bridge_project.kernel.config import conf
from bridge_project.operations.doctor.checks import examine
from bridge_project.operations.doctor.findings import as_json, as_lines, worst


class Command(BaseCommand):
    help = (
        "Send an event the whole way, from the hook command to a device, and look at everything on"
        " it: what works, what does not, and the command that fixes it. Ends with 0 when nothing"
        " is broken, with 1 otherwise; it takes a few seconds, never more than about 20, and with"
        " --agent up to a minute more."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        for_machines = "for a machine: {status, checks: [{check, level, text, mend}]}"
        parser.add_argument("--json", action="store_true", help=for_machines)
        start = "also start this agent, in an empty directory and without a prompt, and close it"
        notify = "also send a test to each address of BRIDGE_NOTIFY_URLS"
        parser.add_argument("--send", action="store_true", help=notify)
        parser.add_argument("--agent", default="", metavar="NAME", help=start)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = examine(conf, options["agent"], send=options["send"])
        except KeyboardInterrupt:
            os._exit(130)
        print(as_json(found) if options["json"] else "\n".join(as_lines(found)))
        sys.stdout.flush()
        # Not SystemExit: the interpreter's end would wait for the thread of a check that hangs.
        os._exit(int(worst(found) == "broken"))
