"""What ``serve`` does before the server listens, and what it tells the person who started it (D42
to D45).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import structlog
from django.core import checks
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from bridge_project.kernel import child_environment, data_files, limits
from bridge_project.kernel.config import PROJECT_DIR, Conf, make_private_dir
from bridge_project.kernel.database import sqlite_file
from bridge_project.network import certificates as tls_certificates
from bridge_project.network import interfaces, server_address, transport
from bridge_project.network.certificates import Certificates
from bridge_project.network.server_address import Address
from bridge_project.operations import database_copies
from bridge_project.operations.database_copies import MaintenanceError

log = structlog.get_logger("bridge.startup")

# any number that all processes of this bridge take, and nothing else in its database does
MIGRATION_LOCK = 0x42524944
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
    """Hold the data directory for as long as the context lasts; the system lets go of it when the
    process dies.

    The directory of secrets is locked too: serve.lock may be removed while a bridge runs.
    Raises CommandError, one line, when another process serves from it.
    """
    # whatever this process writes from here on is for its owner alone: the database, the logs, the
    # spool
    os.umask(0o077)
    child_environment.hide_process()
    root = make_private_dir(conf.bridge_data_dir)
    path = root / "serve.lock"
    with contextlib.ExitStack() as opened:
        file = opened.enter_context(
            open(
                os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+", encoding="ascii"
            )
        )
        secrets, data = (
            _opened_directory(one, opened) for one in (make_private_dir(root, "secrets"), root)
        )
        try:
            for lock in (file.fileno(), secrets):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().strip() or "unknown"
            raise CommandError(
                f"Another bridge serves from {conf.bridge_data_dir} (process {holder}). Stop it, or give this one its own BRIDGE_DATA_DIR."
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        data_files.files.note_open(root, data)
        data_files.files.note_open(path, file.fileno())
        opened.callback(data_files.files.forget_open)
        yield


def _opened_directory(path: Path, opened: contextlib.ExitStack) -> int:
    """A descriptor of a directory; while it is open, no other directory gets its inode number."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    opened.callback(os.close, descriptor)
    return descriptor


def check_system(conf: Conf) -> None:
    """Django's and our own system checks. Raises CommandError that lists what must be mended first;
    warnings go to the log.
    """
    # named as it should be: the log takes `bridge_hook_…` for a token
    for name, place in conf.unread:
        log.warning(
            "a setting is not read, since its name there is not in capitals",
            setting=name.upper(),
            place=place,
        )
    found = checks.run_checks()
    serious = [message for message in found if message.is_serious() and not message.is_silenced()]
    for message in found:
        if message not in serious and not message.is_silenced():
            log.warning("system check", id=message.id, text=message.msg)
    if serious:
        raise CommandError(
            "\n".join(
                " ".join(f"{message.id}: {message.msg} {message.hint or ''}".split())
                for message in serious
            )
        )


def make_database(conf: Conf, *, new: bool = False) -> None:
    """Make an empty SQLite database where there was none; ``new``: also where one is missing.

    One is missing where a bridge has run: its certificate is made after the database, and its
    address is recorded after the migrations, so that a first start that was cut short is not
    refused. Raises CommandError, one line that names the newest copy.
    """
    path = sqlite_file(conf)
    if path is None:
        return
    size = os.path.getsize(path) if os.path.exists(path) else None
    certificate = conf.bridge_data_dir / "tls" / "server.crt"
    has_run = server_address.path(conf).exists() or (size is None and certificate.exists())
    if size or (size == 0 and not has_run):
        return
    if has_run and not new:
        copy = database_copies.newest_copy(conf)
        back = "There is no copy of it in backups/"
        if copy is not None:
            back = f"To go on with its newest copy: `{_restore(conf, copy)}`"
        raise CommandError(
            f"The database {path} is {'missing' if size is None else 'empty'}, but this bridge's secrets and "
            f"certificate are there. {back}. To begin with an empty one, and pair every device again: "
            f"`{manage(conf, 'serve --new-database')}`.",
            returncode=data_files.NEEDS_A_PERSON,
        )
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise CommandError(
            f"BRIDGE_DATA_DIR: the database cannot be used ({error.strerror}: {path})."
        ) from None


def check_made(conf: Conf) -> None:
    """Refuse a data directory that `serve` has never made, or whose database is missing.

    Raises CommandError, one line.
    """
    if server_address.recorded(conf) is None:
        raise CommandError(
            f"BRIDGE_DATA_DIR: {conf.bridge_data_dir} was never made ready. Run `python manage.py serve` once with it."
        )
    make_database(conf)


def check_migrated() -> None:
    """Refuse a database for which migrations wait. Raises CommandError, one line."""
    try:
        _answers()
        waiting = _pending()
    except MaintenanceError as error:
        raise CommandError(str(error)) from None
    except OperationalError as error:
        raise _unusable(error) from None
    finally:
        connection.close()
    if waiting:
        raise CommandError(
            f"The database waits for migrations ({len(waiting)}). Run `python manage.py serve` once: it copies the database first."
        )


def _unusable(error: OperationalError) -> CommandError:
    setting = "DATABASE_URL" if connection.vendor == "postgresql" else "BRIDGE_DATA_DIR"
    return CommandError(f"{setting}: the database cannot be used ({' '.join(str(error).split())}).")


def migrate(conf: Conf) -> None:
    """Bring the database's tables up to date. Nothing to do takes one query; of several processes
    that start together one does it.

    A database that holds something is copied first (SQLite). Raises CommandError, one line, when
    the database does not answer, cannot be copied, or was written by a newer version.
    """
    try:
        _answers()
        if not _pending() and not database_copies.unfinished_copies(conf):
            return
        print("Preparing the database …", flush=True)  # noqa: T201 - a person waits, perhaps for minutes
        with _migrations_locked():
            copy = None
            # of those that waited for the lock only the first finds something to do
            if names := _pending():
                copy = _copy_first(conf, names)
                _apply(conf)
            database_copies.migrations_succeeded(conf, copy)
    except MaintenanceError as error:
        raise CommandError(str(error)) from None
    except OperationalError as error:
        raise _unusable(error) from None
    finally:
        connection.close()  # the server's threads open their own


def _answers() -> None:
    """Ask a database server once, with a time limit. Raises OperationalError of one line."""
    if connection.vendor == "postgresql":
        import psycopg

        try:
            psycopg.connect(
                **connection.get_connection_params() | {"connect_timeout": DATABASE_SECONDS}
            ).close()
        except psycopg.OperationalError as error:
            raise OperationalError(str(error).partition("\n")[0]) from None


def _pending() -> list[str]:
    """The migrations to be applied, ``application.name``. Raises MaintenanceError for a database
    that has some which this code does not know.
    """
    executor = MigrationExecutor(connection)
    applied = [f"{app}.{name}" for app, name in executor.loader.applied_migrations]
    if unknown := database_copies.unknown_migrations(applied, executor.loader):
        raise database_copies.newer(unknown, "The database")
    return [
        f"{migration.app_label}.{migration.name}"
        for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())
    ]


def _apply(conf: Conf) -> None:
    """Apply the migrations. Raises CommandError, one line that names the copy to go back to."""
    try:
        call_command("migrate", interactive=False, verbosity=0)
    except Exception as error:
        log.exception("a migration failed")
        copy = database_copies.way_back(conf)
        if copy is not None:
            back = f"To go back to the database as it was: `{_restore(conf, copy)}`, then start the version that you had"
        elif connection.vendor == "postgresql":
            back = "To go back: load your dump with pg_restore, then start the version that you had"
        else:
            back = "It was new: nothing is lost"
        text = " ".join(str(error).split())
        raise CommandError(
            f"A migration failed ({error.__class__.__name__}: {text}). {back}."
        ) from error


def _copy_first(conf: Conf, names: list[str]) -> Path | None:
    """Copy the database: there is no other way back. Returns None where there is no copy."""
    if not MigrationRecorder(connection).applied_migrations():
        return None  # it is new
    copy = database_copies.before_migrations(conf, names)
    if copy is not None:
        log.info("the database was copied before it is migrated", copy=str(copy), migrations=names)
    else:
        log.warning(
            "a database server is migrated without a copy: dumping it (pg_dump) is its operator's business",
            migrations=names,
        )
    return copy


@contextlib.contextmanager
def _migrations_locked() -> Iterator[None]:
    path = database_copies.sqlite_path()
    if path is not None:
        with database_copies.sqlite_locked(path):
            yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])


# -- where the bridge is ---------------------------------------------------------------------------


def here(conf: Conf, certificates: Certificates) -> Address:
    """The address for other devices: BRIDGE_PUBLIC_URL, else the one by which this machine reaches
    its network, else this machine.
    """
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
    others = [
        text
        for text in interfaces.local_addresses()
        if transport.mode_of_address(text) is not transport.ConnectionMode.LOCAL_ONLY
    ]
    own = [
        text
        for text in (interfaces.primary_address(), *sorted(others, key=lambda text: ":" in text))
        if text
    ]
    return next((text for text in own if transport.accepts_on(conf.bridge_host, text)), "")


def mode(conf: Conf, base_url: str) -> transport.ConnectionMode:
    """The connection mode of devices that use this address (D20)."""
    return transport.mode_of_url(base_url, conf.bridge_tunnel_domains)


class AddressKeeper:
    """Keeps the recorded address true while the bridge runs: networks change under a laptop, and
    certificates are renewed.
    """

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
                now = await asyncio.to_thread(
                    lambda: here(self.conf, tls_certificates.ensure(self.conf))
                )
                if now != server_address.recorded(self.conf):
                    server_address.record(self.conf, now)
                    log.info("the address changed", address=now.base_url)
            except (OSError, ValueError) as error:
                # a full disk, a certificate that was damaged: the next round tries again
                log.warning("the address could not be recorded", error=str(error))


class DataFilesKeeper:
    """Stops the bridge when the database, serve.lock or the data directory was taken away (D46)."""

    def __init__(self, conf: Conf) -> None:
        self.conf = conf
        self.files = data_files.files
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        database = sqlite_file(self.conf)
        if database is not None:
            await asyncio.to_thread(self.files.hold, database)
        self.task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        if (held := self.files.release()) is not None:
            await asyncio.to_thread(held.close)

    async def _keep(self) -> None:
        seen = None
        while True:
            await asyncio.sleep(limits.DATA_FILES_LOOK_SECONDS)
            now = await asyncio.to_thread(self.files.difference)
            if seen is not None and now is not None:
                break
            seen = now
        path, what = now
        # Nothing is stored from here on.
        self.files.taken = f"{path} {what} while the bridge ran, so it stops."
        self.files.taken += f" {await asyncio.to_thread(self._what_to_do, path)}"
        log.critical("data_files_taken", reason=self.files.taken)
        signal.raise_signal(signal.SIGTERM)

    def _what_to_do(self, path: str) -> str:
        if path == str(self.conf.bridge_data_dir):
            return "Put it back, and start the bridge again."
        if not self.files.is_database(path):
            return "Nothing is lost: start the bridge again."
        try:
            self.files.put_wal_aside()
            copy = self._rescue()
        except (sqlite3.Error, OSError) as error:
            return f"What the database held could not be copied ({error}). Put it back, or restore a backup, and start the bridge again."
        return f"What the database held was copied: `{_restore(self.conf, copy)}` brings it back; then start the bridge again."

    def _rescue(self) -> Path:
        """Copy what the open connection still sees, also of a file that was removed, to
        ``backups``.
        """
        directory = self.conf.bridge_data_dir / "backups"
        copy = make_private_dir(directory) / f"rescued-{database_copies.now_name()}.sqlite3"
        assert self.files.held is not None  # it was opened before the database's path was noted
        database_copies.copy_open(self.files.held, copy)
        return copy


# -- what is said ----------------------------------------------------------------------------------


def banner(conf: Conf, certificates: Certificates, here: Address) -> list[str]:
    """The lines that a newcomer needs: addresses, who can reach them, where things are. No token,
    only where each one is.
    """
    others = [] if conf.bridge_public_url else _other_addresses(conf, here)
    kind = "own" if certificates.own else "BRIDGE_TLS_CERT"
    rows = [
        ("Address", f"{here.base_url}   WebSocket: {here.ws_url}"),
        ("", f"also {', '.join(others)}" if others else ""),
        ("Reached by", MODE_WORDS[mode(conf, here.base_url)]),
        (
            "Certificate",
            f"{kind}, until {certificates.not_after:%Y-%m-%d}, SHA-256 {certificates.fingerprint[:16]}…",
        ),
        ("Data", str(conf.bridge_data_dir)),
        ("Hook token", _token_place(conf, "hook_token")),
        ("Admin token", _token_place(conf, "admin_token")),
    ]
    return [
        "The bridge is running.",
        "",
        *(f"  {name:<12} {value}" for name, value in rows if value),
    ]


def ending(conf: Conf) -> list[str]:
    """The last lines: the one next command, and how to stop."""
    return [
        f"Next, in a second terminal: {make_command(conf, 'hooks')}   (connects the coding agent on this machine)",
        "To stop: Ctrl-C",
    ]


def pairing_note(conf: Conf) -> str:
    return f"Another code: {make_command(conf, 'qr')}"


def make_command(conf: Conf, target: str) -> str:
    """The command as this bridge needs it: one with its own data directory must be told so."""
    own = (
        ""
        if conf.bridge_data_dir == PROJECT_DIR / "var"
        else f"BRIDGE_DATA_DIR={shlex.quote(str(conf.bridge_data_dir))} "
    )
    return f"{own}make {target}"


def manage(conf: Conf, command: str) -> str:
    """A command of manage.py as this bridge needs it."""
    return f"{make_command(conf, '').removesuffix('make ')}.venv/bin/python manage.py {command}"


def _restore(conf: Conf, file: Path) -> str:
    return manage(conf, f"restore {shlex.quote(str(file))}")


def _token_place(conf: Conf, name: str) -> str:
    path: Path = conf.secret_path(name)
    return f"the setting BRIDGE_{name.upper()}" if getattr(conf, f"bridge_{name}") else str(path)


def _other_addresses(conf: Conf, here: Address) -> list[str]:
    """The bridge's address on every other interface that it listens on; link-local and container
    networks included, for the eye to choose.
    """
    if conf.bridge_host not in transport.EVERYWHERE:
        return []
    wanted = [
        "localhost",
        *(
            text
            for text in interfaces.local_addresses()
            if transport.accepts_on(conf.bridge_host, text)
        ),
    ]
    urls = [transport.base_url(conf, host) for host in wanted if host not in ("127.0.0.1", "::1")]
    return [url for url in dict.fromkeys(urls) if url != here.base_url]
