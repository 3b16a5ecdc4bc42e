"""Make a pairing token and show it as a QR code, or for a program (D43)."""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.own_commands import make_command
from bridge_project.kernel.private_files import write_private_file
from bridge_project.network import server_address
from devices_app import qr
from devices_app.management.base import DeviceCommand, device_name, duration, find_device

FORMATS = ("terminal", *qr.RENDERERS)
WORDS = """\
{code}
Pair {it.name}: scan the code with the phone's camera, or open the link on the device.
The page leads into the web client, {it.base_url}/app/; any other client works too.
Valid until {until:%Y-%m-%d %H:%M %Z}, for one device.

  {it.link}

  certificate's fingerprint (SHA-256): {it.fingerprint}
  its authority's, to compare when a phone is to trust it: `{doctor}`
"""


class Command(DeviceCommand):
    help = (
        "Make a pairing token and show it as a QR code. The token is void when it is"
        " not used within --ttl; after that it holds until it is revoked, "
        "or until --lifetime. It is shown here once and stored nowhere: whoever sees"
        " the code can pair."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        whose = parser.add_mutually_exclusive_group()
        name = "name of the new device (default: Device and its number)"
        whose.add_argument("--name", type=device_name, help=name)
        known = (
            "a paired device that gets a new token and keeps its place in the log; its old token"
            " ends when the new one is first used"
        )
        whose.add_argument("--device", metavar="ID_OR_NAME", help=known)
        ttl = "how long the code can be used for pairing: 90s, 10m, 2h, 7d (default: 10m)"
        usual = timedelta(seconds=limits.PAIRING_TTL_SECONDS)
        parser.add_argument("--ttl", type=duration, default=usual, help=ttl)
        lifetime = "how long the token itself is valid, from now (default: until it is revoked)"
        parser.add_argument("--lifetime", type=duration, help=lifetime)
        forms = (
            "terminal: a QR code and the link (default); png, svg: a picture; url: the link;"
            " json: for programs"
        )
        parser.add_argument("--format", choices=FORMATS, default="terminal", help=forms)
        output = "write to this file, readable by you alone, instead of the terminal"
        parser.add_argument("--output", type=Path, metavar="FILE", help=output)

    def handle(self, *args: Any, **options: Any) -> None:
        form, output, colour = options["format"], options["output"], sys.stdout.isatty()
        if form == "png" and output is None and colour:
            raise CommandError("A PNG would garble the terminal: give --output FILE.")
        if output is not None and not output.absolute().parent.is_dir():
            raise CommandError(f"There is no directory {output.absolute().parent}.")
        known = find_device(options["device"]) if options["device"] else None
        lasts = {"ttl": options["ttl"], "lifetime": options["lifetime"]}
        try:
            invitation = qr.invite(options["name"] or "", device=known, **lasts)[1]
        except ValueError as error:
            raise CommandError(str(error)) from None
        if form == "terminal":
            code = qr.terminal(invitation, colour=output is None and colour)
            until = datetime.fromisoformat(invitation.expires_at).astimezone()
            doctor = make_command(conf, "doctor")
            text = WORDS.format(code=code, it=invitation, until=until, doctor=doctor)
            if invitation.is_local:
                text += "\nThis address is for this machine alone: no phone can reach it.\n"
            content = text.encode()
        else:
            content = qr.RENDERERS[form](invitation)
        if output is None:
            self._print(content)
        else:
            try:
                write_private_file(output, content)
            except OSError as error:
                raise CommandError(f"{output} cannot be written: {error.strerror}") from None
            self.stderr.write(f"Written to {output}; valid until {invitation.expires_at}.")
        if not server_address.holder(conf):
            self.stderr.write(f"The bridge does not run: `{server_address.run_command(conf)}`.")

    def _print(self, content: bytes) -> None:
        # a picture is bytes, which Django's wrapper does not take
        raw = getattr(self.stdout._out, "buffer", None)
        if raw is None:
            self.stdout.write(content.decode("utf-8", "surrogateescape"), ending="")
        else:
            self.stdout.flush()
            raw.write(content)
            raw.flush()
