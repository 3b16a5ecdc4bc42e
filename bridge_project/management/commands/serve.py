"""Run the bridge (D42, D43): `serve`."""

import io
import shlex
import sys
import threading
from dataclasses import replace
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from bridge_project.composition import migrations, roots, startup
from bridge_project.kernel import data_files, limits, threads
from bridge_project.kernel.config import conf
from bridge_project.kernel.own_commands import make_command
from bridge_project.kernel.place import IN_CLONE
from bridge_project.network import certificates, server_address, transport
from bridge_project.network.certificate_files import Certificates
from bridge_project.network.server_address import Address

PHONE = "phone"


class Command(BaseCommand):
    help = (
        "Run the bridge. All its settings are environment variables, or lines of .env in the data"
        " directory; docs/settings.md lists them."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        where = (
            "a directory that agents may use and devices may see (default: BRIDGE_ALLOWED_ROOTS,"
            " else the one in which this is started)"
        )
        parser.add_argument("directories", nargs="*", metavar="DIR", help=where)
        anew = (
            "begin with an empty database where this bridge's own is missing;"
            " every device must then be paired again"
        )
        parser.add_argument("--new-database", action="store_true", help=anew)
        kept = (
            "leave the agents when the bridge is stopped: the next start goes on with them,"
            " and without one they end two minutes later"
        )
        parser.add_argument("--keep-agents", action="store_true", help=kept)

    def handle(self, *args: Any, **options: Any) -> None:
        roots.choose(conf, options["directories"])
        with startup.only_server(conf):
            startup.make_database(conf, new=options["new_database"])  # first: see there
            self.certificates = certificates.load_or_renew(conf)
            startup.check_system(conf)
            migrations.migrate(conf)
            here = server_address.current(conf, self.certificates)
            self.here = replace(here, arguments=_arguments(options))

            from bridge_project.asgi import routes

            # installs the reactor: only here, after everything that can be refused
            from bridge_project.edge import server
            from bridge_project.http.transport_middleware import TransportMiddleware
            from sessions_app.agents.supervisor import supervisor

            supervisor.keeps_agents = options["keep_agents"]
            server.Server(
                TransportMiddleware(routes),
                conf=conf,
                certificates=self.certificates,
                on_listening=self._listening,
            ).run()
        fault = data_files.files.fault
        threads.exit_after(limits.EXIT_SECONDS, data_files.NEEDS_A_PERSON if fault else 0)
        if fault:
            raise CommandError(fault, returncode=data_files.NEEDS_A_PERSON)
        print("The bridge has stopped.", flush=True)

    async def _listening(self) -> None:
        before, code = server_address.recorded(conf), ""
        server_address.record(conf, self.here)  # not before: a port in use leaves the last one
        if sys.stdout.isatty() and self.here.base_url.startswith("https://"):
            code = await threads.writers.run(self._pairing_code)
        print(_banner(self.certificates, self.here, before, code), flush=True)
        # in a thread that nobody waits for: a program may take seconds to say its version
        threading.Thread(target=_print_agents, daemon=True).start()

    def _pairing_code(self) -> str:
        """Make a code for the terminal; delete unused ones of earlier starts."""
        from devices_app.models import Device

        with transaction.atomic():
            unused = Device.objects.filter(name=PHONE, paired_at=None)
            unused.exclude(tokens__use_by__gt=timezone.now()).delete()
        out = io.StringIO()
        call_command("mint_pairing_qr", name=PHONE, stdout=out)
        return out.getvalue()


def _arguments(options: dict[str, Any]) -> str:
    """Return what has to be given to a start elsewhere, for it to be as this one."""
    unasked = IN_CLONE or conf.bridge_allowed_roots
    roots = () if unasked and not options["directories"] else conf.allowed_roots
    return shlex.join([*(["--keep-agents"] if options["keep_agents"] else []), *roots])


def _banner(certificates: Certificates, here: Address, before: Address | None, code: str) -> str:
    """Return what is printed at the start, without tokens."""
    mode = transport.mode_of_url(here.base_url, conf.bridge_tunnel_domains)
    kind = "own" if certificates.ca else "BRIDGE_TLS_CERT"
    until, fingerprint = f"{certificates.not_after:%Y-%m-%d}", certificates.fingerprint[:16]
    rows = [
        ("Address", f"{here.base_url}   WebSocket: {here.ws_url}"),
        ("Web client", f"{here.base_url}/app/ (pair with a code first)"),
        ("Reached by", transport.MODE_WORDS[mode]),
        ("Certificate", f"{kind}, until {until}, SHA-256 {fingerprint}…"),
        ("Agents use", roots.described(conf)),
        ("Data", str(conf.bridge_data_dir)),
        ("Hook token", _token_place("hook_token")),
        ("Admin token", _token_place("admin_token")),
    ]
    lines = ["The bridge is running.", ""]
    lines += [f"  {name:<12} {value}" for name, value in rows]
    if before is not None and before.port not in (None, here.port):
        kept = f"to keep it: BRIDGE_PORT={before.port} in {conf.bridge_data_dir}/.env"
        lines += ["", f"Devices paired before look for it at port {before.port}; {kept}"]
    if code:
        lines += ["", code.rstrip("\n"), "", f"Another code: {make_command(conf, 'qr')}"]
    watch, hooks = make_command(conf, "watch"), make_command(conf, "hooks")
    lines += ["", f"Next, in a second terminal: {watch}   (shows what arrives)"]
    lines += [f"Once: {hooks}   (connects this machine's agents)", "To stop: Ctrl-C"]
    return "\n".join(lines)


def _print_agents() -> None:
    """Print which agents can start here, and which cannot."""
    from sessions_app.agents import registry

    kinds = {kind.name: kind for kind in registry.KINDS.values() if kind.real}
    known = [one for one in registry.listed() if one.name in kinds]
    lines = [f"Agents (default: {registry.preferred()}):"]
    for one in known:
        if one.can_start:
            about = " ".join(filter(None, (one.version, kinds[one.name].path(), one.reason)))
            lines.append(f"  {one.name:<16} {about}")
    if missing := [one.name for one in known if not one.can_start]:
        doctor = make_command(conf, "doctor")
        lines.append(f"  Not ready here: {', '.join(missing)}. {doctor} says why.")
    print("\n".join(lines if known else [*lines, "  none but demo"]), flush=True)


def _token_place(name: str) -> str:
    given = getattr(conf, f"bridge_{name}")
    return f"the setting BRIDGE_{name.upper()}" if given else str(conf.secret_path(name))
