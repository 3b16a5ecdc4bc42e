"""Find, stop and start the service or process that runs this bridge.

A service is a unit of systemd or, on macOS, a job of launchd (D77).
"""

import getpass
import os
import plistlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal
from xml.parsers.expat import ExpatError

import psutil
from django.core.management.base import CommandError

from bridge_project.kernel.config import Conf
from bridge_project.kernel.place import IN_CLONE, PROJECT_DIR, default_data_dir
from bridge_project.network import server_address
from bridge_project.operations.doctor import snapshot

RUNS: Final = re.compile(r"\b(?:manage\.py|agent-bridge) (?:run|serve)\b")
_OPTION: Final = re.compile(
    r"^\s*(Environment|WorkingDirectory|ExecStart)\s*=\s*(.*)$", re.MULTILINE
)
PATIENCE_SECONDS: Final = 60.0  # a stop takes 25 at most, a first answer after a start a few
MANAGER_SECONDS: Final = 90
_NOT_A_JOB: Final = (AttributeError, KeyError, TypeError, ValueError)  # a list of anything else
Act = Literal["stop", "start", "remove"]


@dataclass(frozen=True, slots=True)
class Unit(ABC):
    """Describe a service of the system that runs this code with this data directory."""

    name: str
    file: Path
    by_root: bool  # the system's, not the user's own
    taken: ClassVar[tuple[int, ...]] = (0,)  # exit statuses of a command that was taken

    @abstractmethod
    def words(self, act: Act) -> list[str]:
        """Return the command of the service manager that does this."""

    @abstractmethod
    def process(self) -> str:
        """Return the number of its process, or anything else where it does not run."""

    @abstractmethod
    def log(self) -> list[str]:
        """Return the command that shows its last lines."""

    def command(self, act: Act) -> str:
        """Return the command for a person to run."""
        return shlex.join([*(("sudo",) if self.by_root else ()), *self.words(act)])

    def control(self, act: Act) -> None:
        """Ask the service manager. Raises CommandError with the command to run instead."""
        words = self.words(act)
        try:
            done = _run(words)
            reason = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            done, reason = None, f"no answer in {MANAGER_SECONDS} s"
        if done is None or done.returncode not in self.taken:
            text = f"`{shlex.join(words)}` failed ({reason})"
            raise CommandError(f"{text}. Run `{self.command(act)}`, then this again.")

    def remove(self) -> None:
        """Stop it and remove its file. Raises CommandError or OSError."""
        self.control("remove")
        self.file.unlink()


class SystemdUnit(Unit):
    """Describe a unit of systemd, the system's or the user's own."""

    @property
    def _systemctl(self) -> list[str]:
        return ["systemctl", *(() if self.by_root else ("--user",))]

    def words(self, act: Act) -> list[str]:
        return [*self._systemctl, *(("disable", "--now") if act == "remove" else (act,)), self.name]

    def process(self) -> str:
        shown = _run([*self._systemctl, "show", "--property=MainPID", "--value", self.name])
        return shown.stdout.strip()

    def log(self) -> list[str]:
        user = () if self.by_root else ("--user",)
        return ["journalctl", *user, "-n", "20", "-u", self.name]

    def remove(self) -> None:
        Unit.remove(self)
        _run([*self._systemctl, "daemon-reload"])


class LaunchdJob(Unit):
    """Describe a job of launchd: a LaunchAgent of the user, or a LaunchDaemon."""

    taken: ClassVar[tuple[int, ...]] = (0, 36)  # 36: the job was told, and has not ended yet

    @property
    def _domain(self) -> str:
        return "system" if self.by_root else f"gui/{os.getuid()}"

    def words(self, act: Act) -> list[str]:
        if act == "start":
            return ["launchctl", "bootstrap", self._domain, str(self.file)]
        return ["launchctl", "bootout", f"{self._domain}/{self.name}"]

    def _print(self) -> subprocess.CompletedProcess[str]:
        return _run(["launchctl", "print", f"{self._domain}/{self.name}"])

    def process(self) -> str:
        found = re.search(r"^\s*pid = (\d+)$", self._print().stdout, re.MULTILINE)
        return found[1] if found else ""

    def log(self) -> list[str]:
        with self.file.open("rb") as file:
            return ["tail", "-n", "20", plistlib.load(file).get("StandardErrorPath", "/dev/null")]

    def remove(self) -> None:
        # one that was stopped is not there any more
        if self._print().returncode == 0:
            self.control("remove")
        self.file.unlink()


def units(conf: Conf) -> list[Unit]:
    """Return the services, the user's own and the system's, that run this bridge."""
    found: list[Unit] = []
    if shutil.which("systemctl") is not None:
        own = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "systemd/user"
        found += [
            SystemdUnit(file.name.replace("@.", f"@{getpass.getuser()}."), file, by_root)
            for by_root, directory in ((False, own), (True, Path("/etc/systemd/system")))
            for file in sorted(directory.glob("*.service"))
            if _is_ours(_read_unit(file), conf)
        ]
    if shutil.which("launchctl") is not None:
        own = Path.home() / "Library/LaunchAgents"
        found += [
            LaunchdJob(job.name, file, by_root)
            for by_root, directory in ((False, own), (True, Path("/Library/LaunchDaemons")))
            for file in sorted(directory.glob("*.plist"))
            if (job := _read_job(file)) and _is_ours(job, conf)
        ]
    return found


def running_unit(conf: Conf) -> Unit | None:
    """Return the unit whose process holds the data directory."""
    holder = server_address.holder(conf)
    for unit in units(conf) if holder else []:
        if unit.process() == holder:
            return unit
    return None


def stop(conf: Conf, unit: Unit | None) -> bool:
    """Stop the running bridge; return whether there was one. Raises CommandError."""
    holder = server_address.holder(conf)
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
    if not _wait(lambda: not server_address.holder(conf)):
        raise CommandError(f"Process {holder} has not stopped. Nothing was changed.")
    return True


def start(conf: Conf, unit: Unit) -> None:
    """Start the unit and wait until the bridge answers. Raises CommandError."""
    unit.control("start")
    if not _wait(lambda: snapshot.take(conf).health is not None):
        log = shlex.join(unit.log())
        raise CommandError(f"{unit.name} was started and does not answer; `{log}` says why.")


def _wait(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


@dataclass(frozen=True, slots=True)
class _Start:
    """Describe what a file of a service says of its start."""

    name: str
    command: list[str]
    directory: str
    environment: dict[str, str]


def _read_unit(file: Path) -> _Start | None:
    try:
        text = file.read_text(errors="replace")
        for specifier, value in (("%h", str(Path.home())), ("%i", getpass.getuser())):
            text = text.replace(specifier, value)
        given = _OPTION.findall(text)
        words = [
            word for name, value in given if name == "Environment" for word in shlex.split(value)
        ]
        options = dict(given)
        command = shlex.split(options["ExecStart"])
    except (KeyError, OSError, ValueError):
        return None
    environment = dict(word.split("=", 1) for word in words if "=" in word)
    return _Start(file.name, command, options.get("WorkingDirectory", "").strip(), environment)


def _read_job(file: Path) -> _Start | None:
    try:
        with file.open("rb") as opened:
            job = plistlib.load(opened)
        command = [str(word) for word in job["ProgramArguments"]]
        environment = {str(k): str(v) for k, v in job.get("EnvironmentVariables", {}).items()}
        return _Start(str(job["Label"]), command, str(job.get("WorkingDirectory", "")), environment)
    except (plistlib.InvalidFileException, ExpatError, OSError, *_NOT_A_JOB):
        return None


def _is_ours(start: _Start | None, conf: Conf) -> bool:
    """Return whether this starts this code with this data directory."""
    if start is None or not start.command or not RUNS.search(" ".join(start.command)):
        return False
    data = start.environment.get("BRIDGE_DATA_DIR") or default_data_dir()
    here = os.path.realpath(data) == os.path.realpath(conf.bridge_data_dir)
    program = os.path.dirname(os.path.realpath(start.command[0]))
    ours = program == os.path.join(sys.prefix, "bin")
    if IN_CLONE:
        ours = Path(start.directory).resolve() == PROJECT_DIR
    return here and ours


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=MANAGER_SECONDS,
        stdin=subprocess.DEVNULL,
        check=False,
    )
