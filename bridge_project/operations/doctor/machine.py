"""Check what the bridge needs here: files, disk, spool, hooks, database, Redis."""

import json
import os
import platform
import shlex
import shutil
import sqlite3
import stat
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from django.db.migrations.loader import MigrationLoader

from bridge_project.composition import database_copies
from bridge_project.kernel import limits, ways
from bridge_project.kernel.database import database_settings, sqlite_file, unused_sqlite
from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import Snapshot, read_secret
from hooks_app.producer.agents import AGENTS, CLAUDE, HookedAgent
from hooks_app.producer.install import (
    ASKS_NOBODY,
    SettingsError,
    answering,
    asks_somebody,
    install,
    installed,
)
from hooks_app.producer.shell_command import HOOK_MARK
from hooks_app.producer.spool import spool_status

WAITING_SECONDS: Final = 30.0  # a running forwarder needs less than one
SERVER_SECONDS: Final = 1.5  # for a lock, or an answer


def files(seen: Snapshot) -> Finding:
    """Check that the data directory is the owner's alone, and holds the tokens (D45)."""
    root = seen.conf.bridge_data_dir
    quoted = shlex.quote(str(root))
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        own = f'sudo chown -R "$(id -u)" {quoted} && chmod 700 {quoted}'
        return broken(f"{root} is not yours to write.", own)
    own = f"chmod -R go= {quoted}"
    for path in (root, *root.glob("secrets/*"), *root.glob("tls/*.key")):
        if open_to := _open_to_others(path):
            return broken(open_to, own)
    if not all(read_secret(seen.conf, name) for name in ("hook_token", "admin_token")):
        return broken("A token is missing; a start makes it.", seen.start())
    return ok(f"{root} is private, the tokens are there.")


def _open_to_others(path: Path) -> str:
    """Say that a file is readable by others, if it is."""
    if not path.exists() or not (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        return ""
    return f"{path} has mode {mode:04o}: only its directory protects it."


def system(seen: Snapshot) -> Finding:
    """Name the ways that are taken here, where systems differ (D77)."""
    told = ", ".join(f"{way}: {name}" for way, name in ways.chosen().items())
    where = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return ok(f"{where}; {told}.")


def settings(seen: Snapshot) -> list[Finding]:
    """Name variables that look like settings and are none."""
    return [
        warning(
            f"{name} in {place} is not read: it is no setting{meant and f'; {meant} is'}.",
            f"{seen.without(name)}{meant and f'   # and set {meant}'}",
        )
        for name, place, meant in seen.conf.unread
    ]


def disk(seen: Snapshot) -> Finding:
    """Check for room where database and spool are; the least counts (D48)."""
    database = (sqlite_file(seen.conf) or seen.conf.bridge_data_dir).parent
    places = [one for one in (seen.conf.bridge_data_dir, database) if one.is_dir()]
    free, place = min((shutil.disk_usage(one).free, one) for one in places)
    least = limits.DISK_FREE_MIN_BYTES
    text = f"{free // limits.MB} MB free at {place}"
    show = f"df -h {shlex.quote(str(place))}   # then remove what is not needed"
    if free < least:
        text += f"; under {least // limits.MB} MB the bridge calls itself unhealthy."
        return broken(text, show)
    return ok(f"{text}.") if free > 10 * least else warning(f"Only {text}.", show)


def spool(seen: Snapshot) -> list[Finding]:
    """Report events that the forwarder has not sent, could not, or dropped (D47)."""
    place = seen.conf.bridge_data_dir / "spool"
    if not place.is_dir():
        text = f"{place} is missing: hook events are lost."
        return [broken(text, seen.start())] if seen.recorded else []
    status, found = spool_status(place), []
    if status["full"]:
        text = "It is full: hook events are lost until a running bridge has made room."
        found.append(broken(text, seen.start()))
    if (age := status["oldest_age_seconds"] or 0.0) > WAITING_SECONDS:
        text = f"{status['waiting']} events wait, the oldest for {timedelta(seconds=int(age))}."
        if seen.health:
            found.append(broken(text, seen.log_tail))
        else:
            found.append(warning(f"{text} They are sent when the bridge runs.", seen.start()))
    if status["rejected"]:
        reasons = "; ".join(dict.fromkeys(str(one.get("reason")) for one in status["reasons"]))
        text = f"{status['rejected']} events were refused for good and set aside: {reasons}."
        aside = shlex.quote(str(place / "rejected"))
        look = f"ls -l {aside}   # the events, each with its reason in a .why file"
        found.append(warning(text, look, f"rm -r {aside}   # when they are not needed"))
    return found or [ok(f"{status['waiting'] or 'No'} events wait, none was refused.")]


def hooks(seen: Snapshot) -> list[Finding]:
    """Check that settings files of agents have all our entries for this spool (D43).

    Only Claude Code's must have them.
    """
    first = sorted(AGENTS.values(), key=lambda agent: agent.name != CLAUDE)
    return [found for agent in first if (found := _hooks_of(seen, agent))]


def _hooks_of(seen: Snapshot, agent: HookedAgent) -> Finding | None:
    """Check one agent's; None: another than Claude Code, which does not report here."""
    file, place = agent.settings(), str(seen.conf.bridge_data_dir / "spool")
    needed, quoted, text = agent.name == CLAUDE, shlex.quote(str(file)), ""
    repair = seen.make("hooks", "" if needed else agent.name)
    try:
        text = file.read_text(encoding="utf-8")
        ours = installed(text, place, agent=agent)
        current = install(text, place, agent=agent) == text
    except FileNotFoundError:
        missing = f"No agent reports to this bridge: {file} is not there."
        return warning(missing, repair) if needed else None
    except (OSError, SettingsError, UnicodeDecodeError) as error:
        if not needed and HOOK_MARK not in text:  # what it may be wrong with is not ours
            return None
        editor = os.environ.get("EDITOR") or "nano"
        return broken(f"{file} (of {agent.name}): {error}.", f"{editor} {quoted}", repair)
    if not ours:
        other = "; it has those of another data directory" if HOOK_MARK in text else ""
        text = f"{agent.name} does not report here: no hooks in {file}{other}."
        return warning(text, repair) if needed or other else None
    if not current:
        return warning(f"The hooks in {file} are not all there, or of an older version.", repair)
    answers = answering(text, place, agent=agent)
    where = "can be answered from devices too" if answers else "is answered there only"
    reports = f"{agent.name} reports to this bridge ({file}); what it asks in a terminal {where}."
    if agent.waits and answers:
        reports = f"{reports.removesuffix('.')}, while you are away."
    return _asks(file, text, reports, answers) if needed else ok(reports)


def _asks(file: Path, text: str, reports: str, answers: bool) -> Finding:
    """Say what else in Claude Code's settings decides whether its hooks are asked."""
    settings = json.loads(text.removeprefix("\ufeff"))
    if settings.get("disableAllHooks") is True:
        turn_on = 's/"disableAllHooks": *true/"disableAllHooks": false/'
        said = f'{file} has them, but also "disableAllHooks": true.'
        return broken(said, f"sed -i '{turn_on}' {shlex.quote(str(file))}")
    if asks_somebody(text):
        return ok(reports)
    text = f"{reports} {ASKS_NOBODY.format('it')}"
    return warning(text) if answers else ok(text)  # whoever wants to answer wants to be asked


def database(seen: Snapshot) -> Finding:
    """Check, without a long wait, that the database is writable and of this version."""
    path = sqlite_file(seen.conf)
    return _postgresql(seen) if path is None else _sqlite(seen, path)


def _sqlite(seen: Snapshot, path: Path) -> Finding:
    quoted = shlex.quote(str(path))
    if not path.exists():
        if seen.recorded is None:
            return warning("There is none yet: the first start makes it.", seen.start())
        copy = database_copies.newest_copy(seen.conf) or "BACKUP.tar.gz"
        anew = "serve --new-database   # without a backup; every device must be paired again"
        restore = seen.manage(f"restore {shlex.quote(str(copy))}")
        return broken(f"{path} is missing.", restore, seen.manage(anew))
    try:
        with database_copies.opened(path, wait=SERVER_SECONDS) as opened:
            opened.execute("BEGIN IMMEDIATE")
            opened.execute("ROLLBACK")
            applied = {str(name) for (name,) in opened.execute(database_copies.APPLIED)}
    except sqlite3.OperationalError as error:  # locked, read-only, without tables
        look = f"fuser -v {quoted}; ls -l {quoted}   # who holds it, and who may write it"
        return broken(f"{path} cannot be used: {error}.", look, seen.start())
    except sqlite3.DatabaseError as error:
        return broken(
            f"{path} is damaged: {error}.",
            seen.manage("restore BACKUP.tar.gz   # of a bridge that is stopped; or, without one:"),
            f"mv {quoted} {quoted}.damaged && {seen.manage('serve --new-database')}",
        )
    size = f"{path.stat().st_size / limits.MB:.1f} MB"
    return _versions(seen, applied) or ok(f"SQLite, {size}, up to date.")


def _postgresql(seen: Snapshot) -> Finding:
    import psycopg

    # not by the URL: libpq reads it in another way than the bridge, and may repeat the password
    given = database_settings(seen.conf)
    host, port = given["HOST"] or "localhost", given["PORT"] or 5432
    names = ("HOST", "PORT", "USER", "PASSWORD")
    how = {name.lower(): given[name] for name in names if given[name]} | given["OPTIONS"]
    how |= {"dbname": given["NAME"], "connect_timeout": 2, "autocommit": True}
    try:
        with psycopg.connect(**how) as opened:
            opened.execute("SET statement_timeout = '2s'")
            applied = {str(name) for (name,) in opened.execute(database_copies.APPLIED)}
    except psycopg.Error as error:
        why = str(error).strip().splitlines()[0]
        ready = f"pg_isready -h {host} -p {port}   # if it is, a start makes missing tables"
        return broken(f"PostgreSQL at {host}:{port} does not answer as it should: {why}.", ready)
    left = unused_sqlite(seen.conf)
    unused = f"; {left} is not used, nor are the devices in it" if left is not None else ""
    return _versions(seen, applied) or ok(f"PostgreSQL at {host}:{port}, up to date{unused}.")


def _versions(seen: Snapshot, applied: set[str]) -> Finding | None:
    """Return None when the tables are what this code expects."""
    loader = MigrationLoader(None)
    start = seen.make("upgrade" if seen.holder else "run")
    if newer := database_copies.unknown_migrations(applied, loader):
        text = f"A newer version of the bridge has used it ({', '.join(newer[:3])})."
        return broken(text, f"git pull && {start}")
    needed = {str(one) for one in loader.disk_migrations.values() if not one.replaces}
    if missing := needed - applied:
        return broken(f"{len(missing)} changes of its tables are still to be made.", start)
    return None


def redis_server(seen: Snapshot) -> Finding | None:
    """Check the Redis of REDIS_URL, which connects several processes (D46)."""
    if not seen.conf.redis_url:
        return None
    import redis  # 5 MB of memory, of no use without a Redis

    parts = urlsplit(seen.conf.redis_url)
    where = f"{parts.hostname or parts.path}:{parts.port or 6379}"
    wait = {"socket_connect_timeout": SERVER_SECONDS, "socket_timeout": SERVER_SECONDS}
    try:
        with redis.Redis.from_url(seen.conf.redis_url, **wait) as client:
            version = client.info("server").get("redis_version")
    except (redis.RedisError, OSError, ValueError) as error:
        return broken(
            f"Redis at {where} does not answer ({type(error).__name__}): events still arrive, "
            "later, but /health is 503 and limits hold per process.",
            "sudo systemctl start redis-server   # on its machine",
            f"{seen.without('REDIS_URL')}; {seen.start()}   # one process needs no Redis",
        )
    return ok(f"Redis {version} at {where} answers.")
