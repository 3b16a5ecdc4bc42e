"""What ``serve`` does before the server listens, and what it tells the person who started it (D42 to D45)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import structlog
from django.core import checks
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from bridge_project import address, background, interfaces, maintenance, tls, transport
from bridge_project.address import Address
from bridge_project.bootstrap import Progress
from bridge_project.conf import PROJECT_DIR, Conf, make_private_dir
from bridge_project.maintenance import MaintenanceError
from bridge_project.tls import Certificates

log = structlog.get_logger("bridge.startup")

MIGRATION_LOCK = 0x42524944  # any number that all processes of this bridge take, and nothing else in its database does
DATABASE_SECONDS = 5  # a database server that takes longer to answer is not there
ADDRESS_SECONDS = 30.0  # a laptop that changes networks is found again by the commands after this
MODE_WORDS = {
    transport.ConnectionMode.LOCAL_ONLY: "this machine only; no phone can reach it",
    transport.ConnectionMode.PRIVATE_NETWORK: "devices in the same private network",
    transport.ConnectionMode.SECURE_REMOTE: "devices in your mesh, or through your tunnel",
    transport.ConnectionMode.DIRECT_PUBLIC: "the public internet; each device must acknowledge that first",
    transport.ConnectionMode.MISCONFIGURED: "misconfigured: BRIDGE_PUBLIC_URL is not an https address, so every device is rejected until it is corrected",
}


@contextlib.contextmanager
def only_server(conf: Conf) -> Iterator[None]:
    """Hold the data directory for as long as the context lasts; the system lets go of it when the process dies.

    Raises CommandError, one line, when another process serves from it.
    """
    os.umask(0o077)  # whatever this process writes from here on is for its owner alone: the database, the logs, the spool
    path = make_private_dir(conf.bridge_data_dir) / "serve.lock"
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().strip() or "unknown"
            raise CommandError(
                f"Another bridge serves from {conf.bridge_data_dir} (process {holder}). Stop it, or give this one its own BRIDGE_DATA_DIR."
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def check_system() -> None:
    """Django's and our own system checks. Raises CommandError that lists what must be mended first; warnings go to the log."""
    found = checks.run_checks()
    serious = [message for message in found if message.is_serious() and not message.is_silenced()]
    for message in found:
        if message not in serious and not message.is_silenced():
            log.warning("system check", id=message.id, text=message.msg)
    if serious:
        raise CommandError("\n".join(" ".join(f"{message.id}: {message.msg} {message.hint or ''}".split()) for message in serious))


def migrate(conf: Conf) -> None:
    """Bring the database's tables up to date. Nothing to do takes one query; of several processes that start together one does it.

    A database that holds something is copied first (SQLite). Raises CommandError, one line, when the database does not answer, cannot be
    copied, or was written by a newer version.
    """
    try:
        _answers()
        if not _pending():
            return
        with _migrations_locked(), Progress("Preparing the database", None):
            if names := _pending():  # of those that waited for the lock only the first finds something to do
                _copy_first(conf, names)
                call_command("migrate", interactive=False, verbosity=0)
    except MaintenanceError as error:
        raise CommandError(str(error)) from None
    except OperationalError as error:
        setting = "DATABASE_URL" if connection.vendor == "postgresql" else "BRIDGE_DATA_DIR"
        raise CommandError(f"{setting}: the database cannot be used ({' '.join(str(error).split())}).") from None
    finally:
        connection.close()  # the server's threads open their own


def _answers() -> None:
    """Ask a database server once, with a time limit: the pool would try for long, and log every try."""
    if connection.vendor == "postgresql":
        import psycopg

        try:
            psycopg.connect(**connection.get_connection_params() | {"connect_timeout": DATABASE_SECONDS}).close()
        except psycopg.OperationalError as error:
            raise OperationalError(str(error).partition("\n")[0]) from None


def _pending() -> list[str]:
    """The migrations to be applied, ``application.name``. Raises MaintenanceError for a database that has some which this code does not know."""
    executor = MigrationExecutor(connection)
    applied = [f"{app}.{name}" for app, name in executor.loader.applied_migrations]
    if unknown := maintenance.unknown_migrations(applied, executor.loader):
        raise maintenance.newer(unknown, "The database")
    return [f"{migration.app_label}.{migration.name}" for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]


def _copy_first(conf: Conf, names: list[str]) -> None:
    """There is no way back for a migrated database but a copy."""
    if not MigrationRecorder(connection).applied_migrations():
        return  # it is new
    copy = maintenance.before_migrations(conf, names)
    if copy is not None:
        log.info("the database was copied before it is migrated", copy=str(copy), migrations=names)
    else:
        log.warning("a database server is migrated without a copy: dumping it (pg_dump) is its operator's business", migrations=names)


@contextlib.contextmanager
def _migrations_locked() -> Iterator[None]:
    path = maintenance.sqlite_path()
    if path is not None:
        with maintenance.sqlite_locked(path):
            yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])


# -- where the bridge is -----------------------------------------------------------------------------------------------------


def here(conf: Conf, certificates: Certificates) -> Address:
    """The address for other devices: BRIDGE_PUBLIC_URL, else the one by which this machine reaches its network, else this machine."""
    base = transport.base_url(conf, _own_host(conf))
    return Address(
        base_url=base,
        ws_url=transport.websocket_url(base),
        pin=certificates.pin,
        fingerprint=certificates.fingerprint,
        local_ws_url=transport.websocket_url(transport.local_url(conf)),
    )


def _own_host(conf: Conf) -> str:
    if conf.bridge_host not in transport.EVERYWHERE:
        return conf.bridge_host
    others = [text for text in interfaces.local_addresses() if transport.mode_of_address(text) is not transport.ConnectionMode.LOCAL_ONLY]
    own = [text for text in (interfaces.primary_address(), *sorted(others, key=lambda text: ":" in text)) if text]
    return next((text for text in own if transport.accepts_on(conf.bridge_host, text)), "")


def mode(conf: Conf, base_url: str) -> transport.ConnectionMode:
    """The connection mode of devices that use this address (D20)."""
    return transport.mode_of_url(base_url, conf.bridge_tunnel_domains)


class AddressKeeper:
    """Keeps the recorded address true while the bridge runs: networks change under a laptop, and certificates are renewed."""

    def __init__(self, conf: Conf) -> None:
        self.conf = conf
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(ADDRESS_SECONDS)
            try:
                now = await asyncio.to_thread(lambda: here(self.conf, tls.ensure(self.conf)))
                if now != address.recorded(self.conf):
                    address.record(self.conf, now)
                    log.info("the address changed", address=now.base_url)
            except (OSError, ValueError) as error:  # a full disk, a certificate that was damaged: the next round tries again
                log.warning("the address could not be recorded", error=str(error))


def register(conf: Conf) -> None:
    """Add this module's own background work."""
    keeper = AddressKeeper(conf)
    background.register("address", keeper.start, keeper.stop)


# -- what is said ------------------------------------------------------------------------------------------------------------


def banner(conf: Conf, certificates: Certificates, here: Address) -> list[str]:
    """The lines that a newcomer needs: addresses, who can reach them, where things are. No token, only where each one is."""
    others = [] if conf.bridge_public_url else _other_addresses(conf, here)
    kind = "own" if certificates.own else "BRIDGE_TLS_CERT"
    rows = [
        ("Address", f"{here.base_url}   WebSocket: {here.ws_url}"),
        ("", f"also {', '.join(others)}" if others else ""),
        ("Reached by", MODE_WORDS[mode(conf, here.base_url)]),
        ("Certificate", f"{kind}, until {certificates.not_after:%Y-%m-%d}, SHA-256 {certificates.fingerprint[:16]}…"),
        ("Data", str(conf.bridge_data_dir)),
        ("Hook token", _token_place(conf, "hook_token")),
        ("Admin token", _token_place(conf, "admin_token")),
    ]
    return ["The bridge is running.", "", *(f"  {name:<12} {value}" for name, value in rows if value)]


def ending(conf: Conf) -> list[str]:
    """The last lines: the one next command, and how to stop."""
    return [f"Next, in a second terminal: {make_command(conf, 'hooks')}   (connects the coding agent on this machine)", "To stop: Ctrl-C"]


def pairing_note(conf: Conf) -> str:
    return f"Another code: {make_command(conf, 'qr')}"


def make_command(conf: Conf, target: str) -> str:
    """The command as this bridge needs it: one with its own data directory must be told so."""
    own = "" if conf.bridge_data_dir == PROJECT_DIR / "var" else f"BRIDGE_DATA_DIR={shlex.quote(str(conf.bridge_data_dir))} "
    return f"{own}make {target}"


def _token_place(conf: Conf, name: str) -> str:
    path: Path = conf.secret_path(name)
    return f"the setting BRIDGE_{name.upper()}" if getattr(conf, f"bridge_{name}") else str(path)


def _other_addresses(conf: Conf, here: Address) -> list[str]:
    """The bridge's address on every other interface that it listens on; link-local and container networks included, for the eye to choose."""
    if conf.bridge_host not in transport.EVERYWHERE:
        return []
    wanted = ["localhost", *(text for text in interfaces.local_addresses() if transport.accepts_on(conf.bridge_host, text))]
    urls = [transport.base_url(conf, host) for host in wanted if host not in ("127.0.0.1", "::1")]
    return [url for url in dict.fromkeys(urls) if url != here.base_url]
