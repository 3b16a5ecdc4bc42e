"""Find, stop and start the systemd unit or process that runs this bridge."""

import getpass
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from django.core.management.base import CommandError

from bridge_project.kernel.config import Conf
from bridge_project.kernel.place import IN_CLONE, PROJECT_DIR, default_data_dir
from bridge_project.operations.doctor import snapshot

RUNS: Final = re.compile(r"\b(?:manage\.py|agent-bridge) (?:run|serve)\b")
_OPTION: Final = re.compile(
    r"^\s*(Environment|WorkingDirectory|ExecStart)\s*=\s*(.*)$", re.MULTILINE
)
USER: Final[tuple[str, ...]] = ("systemctl", "--user")
SYSTEM: Final[tuple[str, ...]] = ("systemctl",)
PATIENCE_SECONDS: Final = 60.0  # a stop takes 25 at most, a first answer after a start a few
SYSTEMCTL_SECONDS: Final = 90


@dataclass(frozen=True, slots=True)
class Unit:
    """Describe a systemd unit that runs this code with this data directory."""

    name: str
    file: Path
    manager: tuple[str, ...]  # systemctl, and whose units it means

    def command(self, *words: str) -> str:
        """Return a systemctl command about it, for a person to run."""
        sudo = ("sudo",) if self.manager == SYSTEM else ()
        return shlex.join([*sudo, *self.manager, *words, self.name])

    def control(self, *words: str) -> None:
        """Run systemctl about it. Raises CommandError with the command to run instead."""
        try:
            done = _run([*self.manager, *words, self.name])
            reason = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            done, reason = None, f"no answer in {SYSTEMCTL_SECONDS} s"
        if done is None or done.returncode:
            text = f"`{shlex.join([*self.manager, *words, self.name])}` failed ({reason})"
            raise CommandError(f"{text}. Run `{self.command(*words)}`, then this again.")

    def remove(self) -> None:
        """Stop it and remove its file. Raises CommandError or OSError."""
        self.control("disable", "--now")
        self.file.unlink()
        _run([*self.manager, "daemon-reload"])


def units(conf: Conf) -> list[Unit]:
    """Return the units, the user's own and the system's, that run this bridge."""
    if shutil.which("systemctl") is None:
        return []
    own = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "systemd" / "user"
    managers = ((USER, own), (SYSTEM, Path("/etc/systemd/system")))
    return [
        Unit(file.name.replace("@.", f"@{getpass.getuser()}."), file, manager)
        for manager, directory in managers
        for file in sorted(directory.glob("*.service"))
        if _is_ours(file, conf)
    ]


def running_unit(conf: Conf) -> Unit | None:
    """Return the unit whose process holds the data directory."""
    holder = snapshot.holder(conf)
    for unit in units(conf) if holder else []:
        shown = _run([*unit.manager, "show", "--property=MainPID", "--value", unit.name])
        if shown.stdout.strip() == holder:
            return unit
    return None


def stop(conf: Conf, unit: Unit | None) -> bool:
    """Stop the running bridge; return whether there was one. Raises CommandError."""
    holder = snapshot.holder(conf)
    if not holder:
        return False
    if unit is not None:
        unit.control("stop")
    else:
        try:
            process = psutil.Process(int(holder))
            # the number may be a process of another container's
            words = " ".join(process.cmdline())
            if not RUNS.search(words) and "bridge_project.asgi" not in words:
                raise ValueError
            process.terminate()
        except (psutil.Error, ValueError):
            text = f"A bridge serves from {conf.bridge_data_dir} (process {holder})"
            raise CommandError(f"{text}, but not as a process of yours. Stop it first.") from None
    if not _wait(lambda: not snapshot.holder(conf)):
        raise CommandError(f"Process {holder} has not stopped. Nothing was changed.")
    return True


def start(conf: Conf, unit: Unit) -> None:
    """Start the unit and wait until the bridge answers. Raises CommandError."""
    unit.control("start")
    if not _wait(lambda: snapshot.take(conf).health is not None):
        log = shlex.join(["journalctl", *unit.manager[1:], "-n", "20", "-u", unit.name])
        raise CommandError(f"{unit.name} was started and does not answer; `{log}` says why.")


def _wait(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _is_ours(file: Path, conf: Conf) -> bool:
    """Return whether a unit file runs this code with this data directory."""
    try:
        text = file.read_text(errors="replace")
        for specifier, value in (("%h", str(Path.home())), ("%i", getpass.getuser())):
            text = text.replace(specifier, value)
        given = _OPTION.findall(text)
        words = [
            word for name, value in given if name == "Environment" for word in shlex.split(value)
        ]
        program = shlex.split(dict(given)["ExecStart"])[0]
    except (KeyError, IndexError, OSError, ValueError):
        return False
    data = dict(word.split("=", 1) for word in words if "=" in word).get("BRIDGE_DATA_DIR")
    here = os.path.realpath(data or default_data_dir()) == os.path.realpath(conf.bridge_data_dir)
    ours = os.path.dirname(os.path.realpath(program)) == os.path.join(sys.prefix, "bin")
    if IN_CLONE:
        ours = Path(dict(given).get("WorkingDirectory", "").strip()).resolve() == PROJECT_DIR
    return RUNS.search(text) is not None and here and ours


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SYSTEMCTL_SECONDS,
        stdin=subprocess.DEVNULL,
        check=False,
    )
