"""The machine: the data directory and its modes, disk, file limits, the spool, and the hooks in the
agent's settings file (D45, D47).
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import stat
import sys
from pathlib import Path
from typing import Any, Final

from bridge_project.kernel import limits
from bridge_project.kernel.database import databases
from bridge_project.operations.doctor.bridge import log_tail, run
from bridge_project.operations.doctor.findings import Finding, broken, ok, read_secret, warning
from bridge_project.operations.doctor.snapshot import Look
from bridge_project.operations.startup import make_command
from hooks_app.management.commands.install_hooks import default_settings
from hooks_app.producer.install import SettingsError, install, installed
from hooks_app.producer.program import HOOK_MARK, spool_status

AGENT: Final = "claude-code"  # whose settings file `install_hooks` knows
PRIVATE_DIRECTORIES: Final = ("", "secrets", "tls", "spool", "logs")
PRIVATE_FILES: Final = (
    "secrets/hook_token",
    "secrets/admin_token",
    "secrets/django_secret",
    "tls/ca.key",
    "tls/server.key",
    ".env",
    "watch.json",
    "bridge.sqlite3",
)
DISK_LOW_FACTOR: Final = 10  # ten times what makes the bridge refuse events is worth a word
INODES_MIN: Final = 1000
FILES_MIN: Final = 256  # sockets, database, logs and what an agent's git needs
FILES_LOW: Final = 1024
WAITING_SECONDS: Final = 30.0  # a running forwarder needs less than one


def files(seen: Look) -> list[Finding]:
    """The data directory is the owner's alone, 0700, and its secrets are 0600 (D45)."""
    conf = seen.conf
    root = conf.bridge_data_dir
    if not root.is_dir():
        return [broken("files", f"The data directory {root} is not there.", run(conf))]
    wanted = [(root / name, 0o700) for name in PRIVATE_DIRECTORIES] + [
        (root / name, 0o600) for name in PRIVATE_FILES
    ]
    found: list[Finding] = []
    for path, mode in wanted:
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            found.append(
                broken(
                    "files",
                    f"{path} cannot be looked at: {error.strerror}.",
                    f'sudo chown -R "$(id -u)" {shlex.quote(str(root))}',
                )
            )
            continue
        if status.st_uid != os.geteuid() and os.geteuid() != 0:
            found.append(
                broken(
                    "files",
                    f"{path} belongs to another user.",
                    f'sudo chown -R "$(id -u)" {shlex.quote(str(root))}',
                )
            )
        elif stat.S_IMODE(status.st_mode) & 0o077:
            text = f"{path} has mode {stat.S_IMODE(status.st_mode):04o}: other users of this machine can get at it."
            found.append(broken("files", text, f"chmod {mode:o} {shlex.quote(str(path))}"))
    if not os.access(root, os.W_OK | os.X_OK):
        found.append(
            broken("files", f"{root} cannot be written.", f"chmod 700 {shlex.quote(str(root))}")
        )
    missing = [name for name in ("hook_token", "admin_token") if not read_secret(conf, name)]
    if missing:
        found.append(
            broken(
                "files",
                f"There is no {' and no '.join(name.replace('_', ' ') for name in missing)} yet: a start makes what is missing.",
                run(conf),
            )
        )
    return found or [ok("files", f"{root} is private, the tokens are there.")]


def settings(seen: Look) -> list[Finding]:
    """Variables that are meant as settings, and are not read since they are not in capitals."""
    found = []
    for name, place in seen.conf.unread:
        mend = f"unset {name}   # and set {name.upper()}"
        if os.path.isabs(place):
            mend = f"sed -i 's/^{name}=/{name.upper()}=/' {shlex.quote(place)}"
        found.append(
            warning(
                "settings",
                f"{name} in {place} is not read: names of settings are in capitals.",
                mend,
            )
        )
    return found or [ok("settings", "Every name that could be a setting is read.")]


def disk(seen: Look) -> list[Finding]:
    """Room where the database is and where the spool is (D48)."""
    conf = seen.conf
    name = str(databases(conf)["default"]["NAME"])
    places = dict.fromkeys(
        (conf.bridge_data_dir, Path(name).parent)
        if os.path.isabs(name)
        else (conf.bridge_data_dir,)
    )
    found = []
    for place in (_existing(place) for place in places):
        free, system = shutil.disk_usage(place).free, os.statvfs(place)
        show = f"df -h {shlex.quote(str(place))}   # then remove what is not needed"
        if free < limits.DISK_FREE_MIN_BYTES:
            least = limits.DISK_FREE_MIN_BYTES // limits.MB
            found.append(
                broken(
                    "disk",
                    f"{free // limits.MB} MB free at {place}; under {least} MB the bridge calls itself unhealthy.",
                    show,
                )
            )
        elif system.f_files and system.f_favail < INODES_MIN:
            found.append(
                broken(
                    "disk",
                    f"{system.f_favail} files can still be made at {place}.",
                    f"df -i {shlex.quote(str(place))}",
                )
            )
        elif free < DISK_LOW_FACTOR * limits.DISK_FREE_MIN_BYTES:
            found.append(warning("disk", f"Only {free // limits.MB} MB free at {place}.", show))
    return found or [
        ok(
            "disk",
            f"{shutil.disk_usage(_existing(conf.bridge_data_dir)).free / 2**30:.1f} GB free.",
        )
    ]


def _existing(path: Path) -> Path:
    return next((one for one in (path, *path.parents) if one.is_dir()), Path("/"))


def file_limit(seen: Look) -> list[Finding]:
    """How many files and sockets the bridge may open: the running process's own limit, else that of
    this shell.
    """
    bridges, used = _limit_of(seen.holder), _open_of(seen.holder)
    whose, limit = (
        ("The bridge", bridges)
        if bridges
        else ("A process started here", _bounded(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    )
    more = f"ulimit -n 4096 && {run(seen.conf)}"
    text = f"{whose} may open {limit} files{f', {used} are open' if used else ''}."
    if limit < FILES_MIN or used > limit * 9 // 10:
        return [broken("file limit", text, more)]
    if limit < FILES_LOW:
        return [warning("file limit", text, more)]
    return [ok("file limit", text)]


def _limit_of(process: str) -> int:
    try:
        lines = (
            Path(f"/proc/{process}/limits").read_text(encoding="ascii").splitlines()
            if process.isdigit()
            else []
        )
    except OSError:
        lines = []
    told = next((line.split()[3] for line in lines if line.startswith("Max open files")), "")
    return _bounded(int(told)) if told.isdigit() else 0


def _bounded(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def _open_of(process: str) -> int:
    """How many are open, 0 when only root can know: a bridge lets nobody look into it."""
    try:
        return len(os.listdir(f"/proc/{process}/fd")) if process.isdigit() else 0
    except OSError:
        return 0


def spool(seen: Look) -> list[Finding]:
    """What the hooks wrote and the forwarder has not sent, could not send, or had no room for
    (D47).
    """
    conf = seen.conf
    place = conf.bridge_data_dir / "spool"
    status = spool_status(place)
    if not place.is_dir():
        return (
            [broken("spool", f"{place} is not there: what the hooks say is lost.", run(conf))]
            if seen.recorded
            else []
        )
    found = []
    if status["full"]:
        found.append(
            broken(
                "spool",
                "It is full: what the hooks say is lost until a running bridge has made room.",
                run(conf),
            )
        )
    age = status["oldest_age_seconds"] or 0.0
    if age > WAITING_SECONDS:
        text = f"{status['waiting']} events wait, the oldest for {_duration(age)} ({status['bytes'] / limits.MB:.1f} MB)."
        found.append(
            broken("spool", text, log_tail(conf))
            if seen.health
            else warning("spool", f"{text} They are sent when the bridge runs.", run(conf))
        )
    if status["rejected"]:
        reasons = "; ".join(
            dict.fromkeys(
                str(one.get("reason")) for one in status["reasons"] if isinstance(one, dict)
            )
        )
        aside = shlex.quote(str(place / "rejected"))
        text = f"{status['rejected']} events were refused for good and set aside: {reasons or 'no reason is kept'}."
        found.append(
            warning(
                "spool",
                text,
                f"ls -l {aside}   # the events, each with its reason in a .why file",
                f"rm -r {aside}   # when they are not needed",
            )
        )
    return found or [ok("spool", f"{status['waiting'] or 'No'} events wait, none was refused.")]


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def hooks(seen: Look) -> list[Finding]:
    """Is the agent told to report here: its settings file has our entries, all of them, for this
    spool (D43).
    """
    conf, file = seen.conf, default_settings()
    place, mend = str(conf.bridge_data_dir / "spool"), make_command(conf, "hooks")
    try:
        text = file.read_text(encoding="utf-8")
        current, ours = install(text, place) == text, installed(text, place)
    except FileNotFoundError:
        return [warning("hooks", f"No agent reports to this bridge: {file} is not there.", mend)]
    except OSError as error:
        return [
            broken(
                "hooks",
                f"{file} cannot be read: {error.strerror}.",
                f'sudo chown "$(id -u)" {shlex.quote(str(file))}',
            )
        ]
    except (SettingsError, UnicodeDecodeError) as error:
        text = str(error) if isinstance(error, SettingsError) else "it is not UTF-8"
        return [
            broken(
                "hooks",
                f"{file} (of {AGENT}): {text}.",
                f"{os.environ.get('EDITOR') or 'nano'} {shlex.quote(str(file))}",
                mend,
            )
        ]
    settings = json.loads(text.lstrip("\ufeff"))
    if not ours:
        other = "; hooks of a bridge with another data directory are" if _marked(settings) else ""
        return [
            warning(
                "hooks",
                f"{AGENT} does not report to this bridge: its hooks are not in {file}{other}.",
                mend,
            )
        ]
    if not current:
        return [
            warning(
                "hooks",
                f"The hooks in {file} (of {AGENT}) are not all there, or of an older version.",
                mend,
            )
        ]
    if settings.get("disableAllHooks") is True:
        return [
            broken(
                "hooks",
                f'{file} has them, but also "disableAllHooks": true.',
                f'sed -i \'s/"disableAllHooks": *true/"disableAllHooks": false/\' {file}',
            )
        ]
    return [ok("hooks", f"{AGENT} reports to this bridge ({file}).")]


def _marked(settings: dict[str, Any]) -> bool:
    """Whether any hook of any bridge is there."""
    commands = [
        hook.get("command")
        for entries in settings.get("hooks", {}).values()
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("hooks"), list)
        for hook in entry["hooks"]
        if isinstance(hook, dict)
    ]
    return any(isinstance(command, str) and command.endswith(HOOK_MARK) for command in commands)
