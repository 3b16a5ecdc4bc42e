"""Lock and check the data directory, and find its database, before listening."""

import contextlib
import fcntl
import io
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import structlog
from django.core.management import call_command
from django.core.management.base import CommandError

from bridge_project.composition import database_copies
from bridge_project.kernel import child_environment, data_files, limits
from bridge_project.kernel.config import SECRETS, Conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.kernel.own_commands import make_command, manage
from bridge_project.kernel.path_walk import identity
from bridge_project.kernel.private_files import make_private_dir
from bridge_project.network import server_address

log = structlog.get_logger("bridge.startup")


@contextlib.contextmanager
def only_server(conf: Conf) -> Iterator[None]:
    """Lock the data directory; the system unlocks it when the process dies.

    The directory of secrets is locked too: serve.lock may be removed while a bridge runs. Raises
    CommandError, one line, when another process serves from it.
    """
    os.umask(0o077)  # whatever this process writes from here on is for its owner alone
    child_environment.hide_process()
    root = make_private_dir(conf.bridge_data_dir)
    secrets, lock = make_private_dir(root, "secrets"), root / "serve.lock"
    with contextlib.ExitStack() as opened:

        def open_file(path: Path, flags: int) -> int:
            """Keep a file open, so that no other file gets its inode number."""
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
            opened.callback(os.close, descriptor)
            return descriptor

        lock_fd = open_file(lock, os.O_RDWR | os.O_CREAT)
        try:
            _lock(lock_fd, open_file(secrets, os.O_RDONLY | os.O_DIRECTORY))
        except BlockingIOError:
            holder = os.pread(lock_fd, 20, 0).decode(errors="replace").strip() or "unknown"
            raise CommandError(
                f"A bridge runs with {conf.bridge_data_dir} already (process {holder})."
                " Stop it first; a second bridge needs its own BRIDGE_DATA_DIR."
            ) from None
        os.truncate(lock_fd, 0)
        os.write(lock_fd, f"{os.getpid()}\n".encode())
        directory = open_file(root, os.O_RDONLY | os.O_DIRECTORY)
        data_files.files.others = {
            str(path): identity(os.fstat(one)) for path, one in ((root, directory), (lock, lock_fd))
        }
        opened.callback(data_files.files.others.clear)
        yield


def _lock(*descriptors: int) -> None:
    """Lock all, after a moment's wait: others lock one to see who serves."""
    until = time.monotonic() + limits.SERVE_LOCK_SECONDS
    for one in descriptors:
        while True:
            try:
                fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)


def check_system(conf: Conf) -> None:
    """Make or read the secrets, run Django's checks. Raises ConfError or CommandError."""
    for secret in SECRETS:
        conf.secret(secret)
    # named as it should be: the log takes `bridge_hook_…` for a token
    for name, place, meant in conf.unread:
        text = "a name is not read, for it is no setting"
        log.warning(text, not_read=name.upper(), meant=meant, place=place)
    call_command("check", stdout=io.StringIO())


def make_database(conf: Conf, *, new: bool = False) -> None:
    """Create the SQLite database on the first start, or on request by `new`.

    A bridge has run here if its certificate or recorded address exists: these are made after the
    database and its migrations, so a first start that was interrupted is not refused. If so, and
    the database is missing, raises CommandError, one line that names the newest copy.
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
        copy, back = database_copies.newest_copy(conf), "There is no copy of it in backups/"
        if copy is not None:
            back = f"To go on with its newest copy: `{restore_command(conf, copy)}`"
        raise CommandError(
            f"The database {path} is {'missing' if size is None else 'empty'}, but this bridge's"
            f" secrets and certificate are there. {back}. To begin with an empty one, and pair"
            f" every device again: `{manage(conf, 'serve --new-database')}`.",
            returncode=data_files.NEEDS_A_PERSON,
        )
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        setting = "DATABASE_URL" if conf.database_url else "BRIDGE_DATA_DIR"
        text = f"{setting}: the database cannot be used ({error.strerror}: {path})."
        raise CommandError(text) from None


def check_made(conf: Conf) -> None:
    """Raise CommandError unless `serve` has made a data directory and a database."""
    if server_address.recorded(conf) is None:
        raise CommandError(
            f"BRIDGE_DATA_DIR: {conf.bridge_data_dir} was never made ready."
            f" Run `{make_command(conf, 'run')}` once."
        )
    make_database(conf)


def restore_command(conf: Conf, file: Path) -> str:
    return manage(conf, f"restore {shlex.quote(str(file))}")
