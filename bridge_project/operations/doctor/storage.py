"""Check database and Redis: reachable, intact, writable, of this version.

No Django connection is used, so nothing waits long.
"""

import shlex
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from django.db.migrations.loader import MigrationLoader

from bridge_project.kernel import limits
from bridge_project.kernel.database import database_settings
from bridge_project.operations import database_copies
from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import Snapshot

WAIT_SECONDS: Final = 1.5  # for a lock, or an answer
CHECK_SECONDS: Final = 2.0  # a large database is not checked to its end
APPLIED: Final = "SELECT app, name FROM django_migrations"


def database(seen: Snapshot) -> Finding:
    """Check the database that the settings name."""
    settings = database_settings(seen.conf)
    if settings["ENGINE"].endswith("sqlite3"):
        return _sqlite(seen, Path(settings["NAME"]))
    return _postgresql(seen, settings)


def _sqlite(seen: Snapshot, path: Path) -> Finding:
    quoted = shlex.quote(str(path))
    if not path.exists():
        if seen.recorded is None:
            return warning("There is none yet: the first start makes it.", seen.run)
        copy = database_copies.newest_copy(seen.conf) or "BACKUP.tar.gz"
        anew = "serve --new-database   # without a backup; every device must be paired again"
        restore = seen.manage(f"restore {shlex.quote(str(copy))}")
        return broken(f"{path} is missing.", restore, seen.manage(anew))
    try:
        uri = f"{path.as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=WAIT_SECONDS)) as opened:
            opened.execute("BEGIN IMMEDIATE")
            opened.execute("ROLLBACK")
            whole = _quick_check(opened)
            applied = {(str(app), str(name)) for app, name in opened.execute(APPLIED)}
    except sqlite3.OperationalError as error:  # locked, read-only, without tables
        look = f"fuser -v {quoted}; ls -l {quoted}   # who holds it, and who may write it"
        return broken(f"{path} cannot be used: {error}.", look, seen.run)
    except sqlite3.DatabaseError as error:
        whole, applied = str(error), set()
    if whole not in ("ok", ""):
        return broken(
            f"{path} is damaged: {whole}.",
            seen.manage("restore BACKUP.tar.gz   # of a bridge that is stopped; or, without one:"),
            f"mv {quoted} {quoted}.damaged && {seen.manage('serve --new-database')}",
        )
    checked = "whole" if whole else f"too large to be checked within {CHECK_SECONDS:g} s"
    size = f"{path.stat().st_size / limits.MB:.1f} MB"
    return _versions(seen, applied) or ok(f"SQLite, {size}, {checked}, up to date.")


def _quick_check(opened: sqlite3.Connection) -> str:
    """Return `ok`, the first thing wrong, or "" when there was no time."""
    until = time.monotonic() + CHECK_SECONDS
    opened.set_progress_handler(lambda: int(time.monotonic() > until), 10_000)
    try:
        return str(opened.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        return ""
    finally:
        opened.set_progress_handler(None, 0)


def _postgresql(seen: Snapshot, settings: dict[str, Any]) -> Finding:
    import psycopg

    where = f"PostgreSQL at {settings['HOST'] or 'localhost'}:{settings['PORT'] or 5432}"
    names = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    given = {key: settings[name] for key, name in names.items() if settings[name]}
    given |= settings["OPTIONS"] | {"dbname": settings["NAME"], "connect_timeout": 2}
    try:
        with psycopg.connect(**given, autocommit=True) as opened:
            opened.execute("SET statement_timeout = '2s'")
            applied = {(str(app), str(name)) for app, name in opened.execute(APPLIED)}
    except psycopg.Error as error:
        text = f"{where} does not answer as it should: {str(error).strip().splitlines()[0]}."
        ready = f"pg_isready -h {settings['HOST'] or 'localhost'} -p {settings['PORT'] or 5432}"
        return broken(text, f"{ready}   # if it is, a start makes tables that are missing")
    return _versions(seen, applied) or ok(f"{where}, up to date.")


def _versions(seen: Snapshot, applied: set[tuple[str, str]]) -> Finding | None:
    """Return None when the tables are what this code expects."""
    loader = MigrationLoader(None)
    names = [f"{app}.{name}" for app, name in applied]
    if newer := database_copies.unknown_migrations(names, loader):
        text = f"A newer version of the bridge has used it ({', '.join(newer[:3])})."
        return broken(text, f"git pull && {seen.run}")
    replacing = {key for key, one in loader.disk_migrations.items() if one.replaces}
    if missing := loader.disk_migrations.keys() - applied - replacing:
        text = f"{len(missing)} changes of its tables are still to be made: a start makes them."
        return broken(text, seen.run)
    return None


def redis_server(seen: Snapshot) -> Finding | None:
    """Check the Redis of REDIS_URL, which connects several processes (D46)."""
    if not seen.conf.redis_url:
        return None
    import redis  # 5 MB of memory, of no use without a Redis

    parts = urlsplit(seen.conf.redis_url)
    where = f"{parts.hostname or parts.path}:{parts.port or 6379}"
    wait = {"socket_connect_timeout": WAIT_SECONDS, "socket_timeout": WAIT_SECONDS}
    try:
        with redis.Redis.from_url(seen.conf.redis_url, **wait) as client:
            version = client.info("server").get("redis_version")
    except (redis.RedisError, OSError, ValueError) as error:
        return broken(
            f"Redis at {where} does not answer ({type(error).__name__}): events still arrive, "
            "later, but /health is 503 and limits hold per process.",
            "sudo systemctl start redis-server   # on its machine",
            f"unset REDIS_URL; {seen.run}   # one process needs no Redis",
        )
    return ok(f"Redis {version} at {where} answers.")
