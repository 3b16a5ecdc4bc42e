"""Run the bridge (D42, D43): `serve`."""

import argparse
import io
import sys
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from bridge_project.kernel import data_files, threads
from bridge_project.kernel.config import conf
from bridge_project.network import certificates, server_address
from bridge_project.operations import banner, migrations, startup

PHONE = "phone"


class Command(BaseCommand):
    help = (
        "Run the bridge. All its settings are environment variables, or lines of .env in the data"
        " directory; docs/settings.md lists them."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        anew = (
            "begin with an empty database where this bridge's own is missing;"
            " every device must then be paired again"
        )
        parser.add_argument("--new-database", action="store_true", help=anew)

    def handle(self, *args: Any, **options: Any) -> None:
        with startup.only_server(conf):
            startup.make_database(conf, new=options["new_database"])  # first: see there
            for name in ("hook_token", "admin_token"):
                conf.secret(name)  # made now, so that the paths which the banner names exist
            self.certificates = certificates.load_or_renew(conf)
            startup.check_system(conf)
            migrations.migrate(conf)
            self.here = server_address.current(conf, self.certificates)
            server_address.record(conf, self.here)

            from bridge_project.asgi import routes
            from bridge_project.composition import background

            # installs the reactor: only here, after everything that can be refused
            from bridge_project.edge import server
            from bridge_project.http.transport_middleware import TransportMiddleware

            server.Server(
                TransportMiddleware(routes),
                conf=conf,
                certificates=self.certificates,
                on_start=background.start_all,
                on_stop=background.stop_all,
                on_listening=self._listening,
            ).run()
        if taken := data_files.files.taken:
            raise CommandError(taken, returncode=data_files.NEEDS_A_PERSON)

    async def _listening(self) -> None:
        code = ""
        if sys.stdout.isatty() and self.here.base_url.startswith("https://"):
            code = await threads.writers.run(self._pairing_code)
        print(banner.banner(conf, self.certificates, self.here, code), flush=True)

    def _pairing_code(self) -> str:
        """Make a code for the terminal; delete unused ones of earlier starts."""
        from devices_app.models import Device

        with transaction.atomic():
            unused = Device.objects.filter(name=PHONE, paired_at=None)
            unused.exclude(tokens__use_by__gt=timezone.now()).delete()
        out = io.StringIO()
        call_command("mint_pairing_qr", name=PHONE, stdout=out)
        return out.getvalue()
