"""Check data directory, disk, file limits, spool and the agent's hooks."""

import json
import os
import resource
import shlex
import shutil
import stat
import sys
from datetime import timedelta
from typing import Final

import psutil

from bridge_project.kernel import limits
from bridge_project.kernel.database import sqlite_file
from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import Snapshot, read_secret
from hooks_app.management.commands.install_hooks import default_settings
from hooks_app.producer.install import SettingsError, install, installed
from hooks_app.producer.shell_command import HOOK_MARK
from hooks_app.producer.spool import spool_status

DIRECTORIES: Final = ("secrets", "tls", "spool", "logs")
FILES: Final = (".env", "watch.json", "bridge.sqlite3", "tls/ca.key", "tls/server.key")
SECRETS: Final = tuple(
    f"secrets/{name}" for name in ("hook_token", "admin_token", "django_secret", "push_key")
)
FILES_MIN: Final = 256  # sockets, database, logs and what an agent's git needs
FILES_LOW: Final = 1024
WAITING_SECONDS: Final = 30.0  # a running forwarder needs less than one


def files(seen: Snapshot) -> list[Finding]:
    """Check that the data directory is the owner's alone, and holds the tokens (D45)."""
    root = seen.conf.bridge_data_dir
    if not root.is_dir():
        return [broken(f"The data directory {root} is not there.", seen.run)]
    own, found = f'sudo chown -R "$(id -u)" {shlex.quote(str(root))}', []
    for path in (root, *(root / name for name in (*DIRECTORIES, *FILES, *SECRETS))):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            found.append(broken(f"{path} cannot be looked at: {error.strerror}.", own))
            continue
        if status.st_uid != os.geteuid() and os.geteuid() != 0:
            found.append(broken(f"{path} belongs to another user.", own))
        elif (mode := stat.S_IMODE(status.st_mode)) & 0o077:
            text = f"{path} has mode {mode:04o}: other users of this machine can get at it."
            right = "700" if stat.S_ISDIR(status.st_mode) else "600"
            found.append(broken(text, f"chmod {right} {shlex.quote(str(path))}"))
    if not os.access(root, os.W_OK | os.X_OK):
        found.append(broken(f"{root} cannot be written.", f"chmod 700 {shlex.quote(str(root))}"))
    for name in ("hook_token", "admin_token"):
        if not read_secret(seen.conf, name):
            text = f"There is no {name.replace('_', ' ')} yet: a start makes what is missing."
            found.append(broken(text, seen.run))
    return found or [ok(f"{root} is private, the tokens are there.")]


def settings(seen: Snapshot) -> list[Finding]:
    """Name variables that look like settings but are not in capitals."""
    found = []
    for name, place in seen.conf.unread:
        remedy = f"unset {name}   # and set {name.upper()}"
        if os.path.isabs(place):
            remedy = f"sed -i 's/^{name}=/{name.upper()}=/' {shlex.quote(place)}"
        text = f"{name} in {place} is not read: names of settings are in capitals."
        found.append(warning(text, remedy))
    return found or [ok("Every name that could be a setting is read.")]


def disk(seen: Snapshot) -> Finding:
    """Check for room where database and spool are; the least counts (D48)."""
    database = (sqlite_file(seen.conf) or seen.conf.bridge_data_dir).parent
    places = [
        next(one for one in (path, *path.parents) if one.is_dir())
        for path in (seen.conf.bridge_data_dir, database)
    ]
    place = min(places, key=lambda one: shutil.disk_usage(one).free)
    free, least = shutil.disk_usage(place).free, limits.DISK_FREE_MIN_BYTES
    text = f"{free // limits.MB} MB free at {place}"
    show = f"df -h {shlex.quote(str(place))}   # then remove what is not needed"
    if free < least:
        text += f"; under {least // limits.MB} MB the bridge calls itself unhealthy."
        return broken(text, show)
    if free < 10 * least:
        return warning(f"Only {text}.", show)
    return ok(f"{text}.")


def file_limit(seen: Snapshot) -> Finding:
    """Report how many files the running bridge may open, else this shell."""
    whose, limit, used = "A process started here", resource.getrlimit(resource.RLIMIT_NOFILE)[0], 0
    try:
        bridge = psutil.Process(int(seen.holder))
        whose, limit = "The bridge", bridge.rlimit(resource.RLIMIT_NOFILE)[0]
        used = bridge.num_fds()  # only root can know: a bridge lets nobody look into it
    except (ValueError, AttributeError, psutil.Error):  # no rlimit but on Linux
        pass
    if limit == resource.RLIM_INFINITY:
        limit = sys.maxsize
    text = f"{whose} may open {limit} files{f', {used} are open' if used else ''}."
    more = f"ulimit -n 4096 && {seen.run}"
    if limit < FILES_MIN or used > limit * 9 // 10:
        return broken(text, more)
    return warning(text, more) if limit < FILES_LOW else ok(text)


def spool(seen: Snapshot) -> list[Finding]:
    """Report events that the forwarder has not sent, could not, or dropped (D47)."""
    place = seen.conf.bridge_data_dir / "spool"
    if not place.is_dir():
        text = f"{place} is not there: what the hooks say is lost."
        return [broken(text, seen.run)] if seen.recorded else []
    status, found = spool_status(place), []
    if status["full"]:
        text = "It is full: what the hooks say is lost until a running bridge has made room."
        found.append(broken(text, seen.run))
    if (age := status["oldest_age_seconds"] or 0.0) > WAITING_SECONDS:
        size, waits = f"{status['bytes'] / limits.MB:.1f} MB", timedelta(seconds=int(age))
        text = f"{status['waiting']} events wait, the oldest for {waits} ({size})."
        if seen.health:
            found.append(broken(text, seen.log_tail))
        else:
            found.append(warning(f"{text} They are sent when the bridge runs.", seen.run))
    if status["rejected"]:
        given = [str(one.get("reason")) for one in status["reasons"] if isinstance(one, dict)]
        reasons = "; ".join(dict.fromkeys(given)) or "no reason is kept"
        text = f"{status['rejected']} events were refused for good and set aside: {reasons}."
        aside = shlex.quote(str(place / "rejected"))
        look = f"ls -l {aside}   # the events, each with its reason in a .why file"
        found.append(warning(text, look, f"rm -r {aside}   # when they are not needed"))
    return found or [ok(f"{status['waiting'] or 'No'} events wait, none was refused.")]


def hooks(seen: Snapshot) -> Finding:
    """Check that the agent's settings file has all our entries for this spool (D43)."""
    file, place = default_settings(), str(seen.conf.bridge_data_dir / "spool")
    quoted, repair = shlex.quote(str(file)), seen.make("hooks")
    try:
        text = file.read_text(encoding="utf-8")
        current, ours = install(text, place) == text, installed(text, place)
    except FileNotFoundError:
        return warning(f"No agent reports to this bridge: {file} is not there.", repair)
    except OSError as error:
        chown = f'sudo chown "$(id -u)" {quoted}'
        return broken(f"{file} cannot be read: {error.strerror}.", chown)
    except (SettingsError, UnicodeDecodeError) as error:
        wrong = error if isinstance(error, SettingsError) else "it is not UTF-8"
        editor = os.environ.get("EDITOR") or "nano"
        return broken(f"{file} (of claude-code): {wrong}.", f"{editor} {quoted}", repair)
    if not ours:
        other = "; it has those of another data directory" if HOOK_MARK in text else ""
        return warning(f"claude-code does not report here: no hooks in {file}{other}.", repair)
    if not current:
        return warning(f"The hooks in {file} are not all there, or of an older version.", repair)
    if json.loads(text.removeprefix("\ufeff")).get("disableAllHooks") is True:
        turn_on = 's/"disableAllHooks": *true/"disableAllHooks": false/'
        text = f'{file} has them, but also "disableAllHooks": true.'
        return broken(text, f"sed -i '{turn_on}' {quoted}")
    return ok(f"claude-code reports to this bridge ({file}).")
