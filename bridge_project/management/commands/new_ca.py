"""Make a new certificate authority after asking for confirmation (D55): `new_ca`."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bridge_project.kernel.config import ConfError, conf
from bridge_project.kernel.questions import agrees
from bridge_project.network.certificates import load_or_renew

WHAT = (
    "This makes a new certificate authority for the bridge, which is good for the names and"
    " addresses that it has now. Paired devices stay paired: the key of the bridge's certificate"
    " is kept. But every phone and browser that trusts the old authority must install /ca.crt or"
    " /ca.mobileconfig again."
)


class Command(BaseCommand):
    help = "Make a new certificate authority; the key that pairing codes name is kept."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def handle(self, *args: Any, **options: Any) -> None:
        if conf.bridge_tls_cert:
            raise CommandError("BRIDGE_TLS_CERT names a certificate, so there is no authority.")
        self.stdout.write(WHAT)
        if not options["yes"]:
            if not sys.stdin.isatty():
                raise CommandError("Nothing was done: without a terminal give --yes.")
            if not agrees("Go on?"):
                raise CommandError("Nothing was done.")
        try:
            made = load_or_renew(conf, new_authority=True)
        except ConfError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(
            f"Made: the certificate is for {', '.join(made.names)}."
            " A bridge that runs serves it within a minute."
        )
