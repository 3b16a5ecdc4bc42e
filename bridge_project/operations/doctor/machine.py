"""Check data directory, disk, spool and the agent's hooks."""

import json
import os
import shlex
import shutil
import stat
from datetime import timedelta
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.database import sqlite_file
from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import Snapshot, read_secret
from hooks_app.management.commands.install_hooks import default_settings
from hooks_app.producer.install import SettingsError, install, installed
from hooks_app.producer.shell_command import HOOK_MARK
from hooks_app.producer.spool import spool_status

WAITING_SECONDS: Final = 30.0  # a running forwarder needs less than one


def files(seen: Snapshot) -> Finding:
    """Check that the data directory is the owner's alone, and holds the tokens (D45)."""
    root = seen.conf.bridge_data_dir
    quoted = shlex.quote(str(root))
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        own = f'sudo chown -R "$(id -u)" {quoted} && chmod 700 {quoted}'
        return broken(f"{root} is not yours to write.", own)
    private = (root, root / ".env", *root.glob("secrets/*"), *root.glob("tls/*.key"))
    for path in private:
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            text = f"{path} has mode {stat.S_IMODE(path.stat().st_mode):04o}"
            text += ": other users of this machine can get at it."
            return broken(text, f"chmod -R go= {quoted}")
    if not all(read_secret(seen.conf, name) for name in ("hook_token", "admin_token")):
        return broken("A token is missing: a start makes it.", seen.run)
    return ok(f"{root} is private, the tokens are there.")


def settings(seen: Snapshot) -> list[Finding]:
    """Name variables that look like settings but are not in capitals."""
    return [
        warning(
            f"{name} in {place} is not read: names of settings are in capitals.",
            f"unset {name}   # or remove it there, and set {name.upper()}",
        )
        for name, place in seen.conf.unread
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
        text = f"{place} is not there: what the hooks say is lost."
        return [broken(text, seen.run)] if seen.recorded else []
    status, found = spool_status(place), []
    if status["full"]:
        text = "It is full: what the hooks say is lost until a running bridge has made room."
        found.append(broken(text, seen.run))
    if (age := status["oldest_age_seconds"] or 0.0) > WAITING_SECONDS:
        text = f"{status['waiting']} events wait, the oldest for {timedelta(seconds=int(age))}."
        if seen.health:
            found.append(broken(text, seen.log_tail))
        else:
            found.append(warning(f"{text} They are sent when the bridge runs.", seen.run))
    if status["rejected"]:
        reasons = "; ".join(dict.fromkeys(str(one.get("reason")) for one in status["reasons"]))
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
    except (OSError, SettingsError, UnicodeDecodeError) as error:
        editor = os.environ.get("EDITOR") or "nano"
        return broken(f"{file} (of claude-code): {error}.", f"{editor} {quoted}", repair)
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
