"""Database and Redis: reachable, whole, writable, and of the version that this code knows. No
Django connection is used, so nothing waits long.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import time
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote, urlsplit

import redis
from django.db.migrations.loader import MigrationLoader

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf
from bridge_project.kernel.database import databases
from bridge_project.operations import database_copies
from bridge_project.operations.doctor.bridge import run
from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import Look
from bridge_project.operations.startup import manage

WAIT_SECONDS: Final = 1.5  # for a lock, or an answer
CHECK_SECONDS: Final = 2.0  # a large database is not checked to its end
OPCODES: Final = 10_000  # SQLite asks this often whether the time is over

Migration = tuple[str, str]


def database(seen: Look) -> list[Finding]:
    """One finding, or more when several things are wrong with it."""
    settings = databases(seen.conf)["default"]
    return (
        _sqlite(seen, str(settings["NAME"]))
        if settings["ENGINE"].endswith("sqlite3")
        else _postgresql(seen.conf, settings)
    )


def _sqlite(seen: Look, path: str) -> list[Finding]:
    conf, quoted = seen.conf, shlex.quote(path)
    if not os.path.exists(path):
        if seen.recorded is None:
            return [warning("database", "There is none yet: the first start makes it.", run(conf))]
        return [
            broken(
                "database",
                f"{path} is missing.",
                f"{manage(conf, 'restore')} {shlex.quote(str(database_copies.newest_copy(conf) or 'BACKUP.tar.gz'))}",
                f"{manage(conf, 'serve --new-database')}   # without a backup; every device must then be paired again",
            )
        ]
    try:
        with closing(
            sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=WAIT_SECONDS)
        ) as opened:
            whole = _quick_check(opened)
            applied = {
                (str(app), str(name))
                for app, name in opened.execute("SELECT app, name FROM django_migrations")
            }
        with closing(
            sqlite3.connect(
                f"file:{quote(path)}?mode=rw", uri=True, timeout=WAIT_SECONDS, isolation_level=None
            )
        ) as opened:
            opened.execute("BEGIN IMMEDIATE")
            opened.execute("ROLLBACK")
    except sqlite3.Error as error:
        return [_sqlite_error(conf, path, error)]
    if whole not in ("ok", ""):
        return [broken("database", f"{path} is damaged: {whole}.", *_set_aside(conf, quoted))]
    size = f"{os.path.getsize(path) / limits.MB:.1f} MB"
    checked = "whole" if whole else f"too large to be checked within {CHECK_SECONDS:g} s"
    return _versions(conf, applied) or [ok("database", f"SQLite, {size}, {checked}, up to date.")]


def _sqlite_error(conf: Conf, path: str, error: sqlite3.Error) -> Finding:
    text, quoted = " ".join(str(error).split()), shlex.quote(path)
    if "locked" in text or "busy" in text:
        return broken(
            "database",
            f"{path} is locked: another program has held it for {WAIT_SECONDS:g} s or longer.",
            f"fuser -v {quoted}   # then end that program",
        )
    if "no such table" in text:
        return broken("database", f"{path} has no tables yet.", run(conf))
    if "readonly" in text or "unable to open" in text:
        return broken("database", f"{path} cannot be written: {text}.", f"chmod 600 {quoted}")
    return broken("database", f"{path} is damaged: {text}.", *_set_aside(conf, quoted))


def _set_aside(conf: Conf, quoted: str) -> tuple[str, ...]:
    return (
        f"{manage(conf, 'restore')} BACKUP.tar.gz   # of a bridge that is stopped; or, without a backup, and every device must then be paired again:",
        f"mv {quoted} {quoted}.damaged && {run(conf)}",
    )


def _quick_check(opened: sqlite3.Connection) -> str:
    """``ok``, the first thing wrong, or nothing when there was no time to find out."""
    until = time.monotonic() + CHECK_SECONDS
    opened.set_progress_handler(lambda: int(time.monotonic() > until), OPCODES)
    try:
        return str(opened.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        return ""
    finally:
        opened.set_progress_handler(None, OPCODES)


def _postgresql(conf: Conf, settings: dict[str, Any]) -> list[Finding]:
    import psycopg

    where = f"{settings['HOST'] or 'localhost'}:{settings['PORT'] or 5432}"
    own = settings["OPTIONS"]
    names = {
        "host": settings["HOST"],
        "port": settings["PORT"],
        "user": settings["USER"],
        "password": settings["PASSWORD"],
        "dbname": settings["NAME"],
    }
    given = own | {name: value for name, value in names.items() if value} | {"connect_timeout": 2}
    try:
        with psycopg.connect(**given, autocommit=True) as opened:
            opened.execute("SET statement_timeout = '2s'")
            applied = {
                (str(app), str(name))
                for app, name in opened.execute("SELECT app, name FROM django_migrations")
            }
            row = opened.execute("SELECT current_setting('transaction_read_only')").fetchone()
    except psycopg.errors.UndefinedTable:
        return [
            broken(
                "database",
                f"PostgreSQL at {where}: {settings['NAME']} has no tables yet.",
                run(conf),
            )
        ]
    except psycopg.Error as error:
        text = str(error).strip().partition("\n")[0]
        return [
            broken(
                "database",
                f"PostgreSQL at {where} does not answer as it should: {text}.",
                f"pg_isready -h {where.replace(':', ' -p ')}",
            )
        ]
    if row is not None and row[0] == "on":
        return [
            broken(
                "database",
                f"PostgreSQL at {where} takes no writes: it is a standby.",
                "DATABASE_URL must name the primary.",
            )
        ]
    return _versions(conf, applied) or [ok("database", f"PostgreSQL at {where}, up to date.")]


def _versions(conf: Conf, applied: set[Migration]) -> list[Finding]:
    """Nothing when the tables are what this code expects."""
    loader = MigrationLoader(None)
    newer = database_copies.unknown_migrations((f"{app}.{name}" for app, name in applied), loader)
    if newer:
        text = (
            f"It was used by a newer version of the bridge ({', '.join(newer[:3])}) than this code."
        )
        return [broken("database", text, f"git pull && {run(conf)}")]
    missing = (
        set(loader.disk_migrations)
        - applied
        - {key for key, migration in loader.disk_migrations.items() if migration.replaces}
    )
    if missing:
        return [
            broken(
                "database",
                f"{len(missing)} changes of its tables are still to be made: a start makes them.",
                run(conf),
            )
        ]
    return []


def redis_server(seen: Look) -> list[Finding]:
    """Only where REDIS_URL is set: what several processes hear each other through (D46)."""
    url = seen.conf.redis_url
    if not url:
        return []
    parts = urlsplit(url)
    where = (
        parts.path
        if parts.scheme == "unix"
        else f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    )
    try:
        with redis.Redis.from_url(
            url, socket_connect_timeout=WAIT_SECONDS, socket_timeout=WAIT_SECONDS
        ) as client:
            client.ping()
            version = client.info("server").get("redis_version")
    except (redis.RedisError, OSError, ValueError) as error:
        text = f"Redis at {where} does not answer ({error.__class__.__name__}): events still arrive, later, but /health is 503 and limits hold per process."
        start = (
            "sudo systemctl start redis-server"
            if parts.hostname in ("localhost", "127.0.0.1", "::1", None)
            else f"redis-cli -h {parts.hostname} -p {parts.port or 6379} ping"
        )
        return [
            broken(
                "redis",
                text,
                start,
                f"unset REDIS_URL; {run(seen.conf)}   # one process needs no Redis",
            )
        ]
    return [ok("redis", f"Redis {version} at {where} answers.")]
