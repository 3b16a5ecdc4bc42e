"""What happens before Django can be imported: find a Python, make `.venv`, install the pinned requirements, then hand over (D42).

Standard library only, and readable by Python 3.8, so that an older Python can say what is missing instead of failing.
Everything in the environment is run as `.venv/bin/python -m …`: its scripts would break in a directory with a space in its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from typing import Callable, Iterator, NoReturn, Optional, Tuple

Measure = Optional[Tuple[Callable[[], int], int]]  # how many are done, and how many there are

PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(PROJECT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "bridge-stamp.json")
UNFINISHED = os.path.join(VENV, "bridge-unfinished")  # there while the environment is being changed: what is found with it is not trusted
REQUIREMENTS = {"run": "requirements.txt", "test": os.path.join("tests", "requirements.txt")}
OLDEST = (3, 11)
CHECKED = ((3, 13), (3, 12), (3, 11))  # the pinned requirements were checked on these; a newer one is taken only when there is nothing else
QUIET_SECONDS = 2.0  # what takes longer says so
PLAIN_SECONDS = 10.0  # between two lines of progress where there is no terminal

PROBE = "import sys; print('%d.%d' % sys.version_info[:2]); import ensurepip, venv"


class Missing(Exception):
    """Something the machine lacks; the text is the one line to print."""


def main(arguments: list[str]) -> int:
    command = arguments[0] if arguments else "run"
    if command not in COMMANDS:
        print("bootstrap: no such command: " + command, file=sys.stderr)
        return 2
    os.chdir(PROJECT)
    for variable in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # ours, not those of a make that the bridge or a test starts
        os.environ.pop(variable, None)
    try:
        return COMMANDS[command](arguments[1:])
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


# -- the machine -----------------------------------------------------------------------------------------------------------


def probe(python: str) -> tuple[tuple[int, int] | None, bool]:
    """A Python's version, and whether it can make a virtual environment with pip; (None, False) when it does not run."""
    try:
        done = subprocess.run([python, "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=60, check=False)
        major, minor = done.stdout.split()[0].decode().split(".")
    except (OSError, IndexError, ValueError, subprocess.TimeoutExpired):
        return None, False
    return (int(major), int(minor)), done.returncode == 0


def candidates() -> list[str]:
    """Every Python on the path that could do, the one that runs this file included."""
    names = [f"python3.{minor}" for minor in range(20, OLDEST[1] - 1, -1)] + ["python3"]
    found = [shutil.which(name) for name in names] + [sys.executable]
    return list(dict.fromkeys(path for path in found if path))


def choose(probed: list[tuple[str, tuple[int, int] | None, bool]]) -> str:
    """The newest of the checked versions, else the newest. Raises Missing, which names the package to install."""
    able = [(version, path) for path, version, complete in probed if version and version >= OLDEST and complete]
    if able:
        best = max(able, key=lambda pair: (pair[0] in CHECKED, pair[0]))
        return next(path for version, path in able if version == best[0])
    versions = [version for _, version, _ in probed if version]
    newest = max(versions) if versions else (0, 0)
    if newest >= OLDEST:
        name = f"{newest[0]}.{newest[1]}"
        raise Missing(f"Python {name} cannot make virtual environments: install the package python{name}-venv (Debian: apt install python3-venv).")
    found = f", here is {newest[0]}.{newest[1]}" if versions else ""
    raise Missing(f"Python 3.11 or newer is needed{found}: install the packages python3.11 and python3.11-venv (Debian: apt install python3 python3-venv).")


def find_python() -> str:
    return choose([(path, *probe(path)) for path in candidates()])


def need_git() -> None:
    if shutil.which("git") is None:
        raise Missing("git is missing: install the package git (Debian: apt install git).")


# -- the environment -------------------------------------------------------------------------------------------------------


def pinned_hash(kind: str) -> str:
    """What the installed packages must have been made from."""
    digest = hashlib.sha256()
    for name in included(REQUIREMENTS[kind]):
        with open(os.path.join(PROJECT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def read_stamp() -> dict[str, str]:
    try:
        with open(STAMP, encoding="utf-8") as file:
            stamp = json.load(file)
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def venv_version() -> str:
    """The environment's Python version, empty when it is broken: removed, half made, or without pip."""
    check = "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2]) if sys.prefix != sys.base_prefix and u.find_spec('pip') else None"
    try:
        done = subprocess.run([PYTHON, "-c", check], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode().strip() if done.returncode == 0 else ""


def usable(stamp: dict[str, str]) -> bool:
    """Whether the environment may be kept: finished, in its place, and its Python the one it was made with."""
    if os.path.exists(UNFINISHED):
        return False
    version = venv_version()
    if not version or tuple(map(int, version.split("."))) < OLDEST:
        return False
    return not stamp or (stamp.get("python") == version and stamp.get("path") == VENV)


def prepare(kind: str) -> None:
    """`.venv` with what `kind` ("run" or "test") needs. Nothing to do takes about 50 ms; two at once wait for each other."""
    need_git()
    with only_one() as lock:
        stamp = read_stamp()
        kept = usable(stamp)
        if kept and stamp.get(kind) == pinned_hash(kind):
            return
        if not kept:
            python = find_python()
            if os.path.lexists(VENV):
                remove(VENV)
            os.mkdir(VENV)
            mark_unfinished()
            stamp = {}
            # pip in a step of its own: when it fails inside venv, venv keeps what it said to itself.
            run_step([python, "-m", "venv", "--without-pip", VENV], "Making the virtual environment", None, lock)
            run_step([PYTHON, "-m", "ensurepip", "--default-pip"], "Putting pip into it", None, lock)
        mark_unfinished()
        install(kind, lock)
        stamp.update(python=venv_version(), path=VENV, **{kind: pinned_hash(kind)})
        if kind == "test":
            stamp["run"] = pinned_hash("run")
        write_stamp(stamp)
        os.unlink(UNFINISHED)


def mark_unfinished() -> None:
    with open(UNFINISHED, "w", encoding="utf-8") as file:
        file.write("The environment is being changed; when this file is still here afterwards, it is made anew.\n")


def write_stamp(stamp: dict[str, str]) -> None:
    with open(STAMP + ".new", "w", encoding="utf-8") as file:
        json.dump(stamp, file, indent=2)
    os.replace(STAMP + ".new", STAMP)


def remove(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError as error:
        raise Missing(f"{os.path.relpath(path, PROJECT)} cannot be removed ({error.strerror}): remove it and try again.") from None


@contextlib.contextmanager
def only_one() -> Iterator[int]:
    """Hold the set-up's lock. It is the requirements file itself: always there, and no file is left behind."""
    descriptor = os.open(os.path.join(PROJECT, "requirements.txt"), os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with Progress("Waiting for another set-up in this directory", None):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def install(kind: str, lock: int) -> None:
    arguments = ["install", "--no-input", "--no-color", "--progress-bar", "off", "--disable-pip-version-check", "--prefer-binary", "-r", REQUIREMENTS[kind]]
    pattern = os.path.join(glob.escape(VENV), "lib", "python*", "site-packages", "*.dist-info")
    title = "Installing requirements" if kind == "run" else "Installing requirements and test tools"
    run_step([PYTHON, "-m", "pip", *arguments], title, (lambda: len(glob.glob(pattern)), pins(REQUIREMENTS[kind])), lock)


def included(name: str) -> list[str]:
    """A requirements file and those that it includes, in the project."""
    found = [name]
    with open(os.path.join(PROJECT, name), encoding="utf-8") as file:
        for line in file:
            if line.startswith("-r "):
                found += included(os.path.normpath(os.path.join(os.path.dirname(name), line[3:].strip())))
    return found


def pins(name: str) -> int:
    """About how many packages a requirements file names, those of the files it includes counted."""
    count = 0
    for one in included(name):
        with open(os.path.join(PROJECT, one), encoding="utf-8") as file:
            count += sum("==" in line and ";" not in line and not line.startswith("#") for line in file)
    return count


def run_step(command: list[str], title: str, measure: Measure, lock: int) -> None:
    """Run a command, quiet but for its progress; when it fails, everything it said is shown. It holds the lock too: killed with us or not."""
    environment = dict(os.environ, PIP_USER="0", PYTHONUNBUFFERED="1")
    for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    with tempfile.TemporaryFile() as output, Progress(title, measure):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, pass_fds=(lock,))
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        output.seek(0)
        said = output.read().decode("utf-8", "replace").rstrip()
    if code:
        raise Missing(f"{said}\n{title} failed (exit code {code}); what it said is above.")


class Progress:
    """Says what is going on once it has taken two seconds: one line kept up to date on a terminal, else a line now and then."""

    def __init__(self, title: str, measure: Measure) -> None:
        self.title = title
        self.measure = measure
        self.started = time.monotonic()
        self.over = threading.Event()
        self.shown = False
        self.terminal = sys.stdout.isatty()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Progress:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()
        if self.shown:
            outcome = "stopped" if error[0] else "done"
            end = f"{self.title}: {outcome} after {time.monotonic() - self.started:.0f} s"
            print("\r\033[K" + end if self.terminal else end, flush=True)

    def _watch(self) -> None:
        if self.over.wait(QUIET_SECONDS):
            return
        while True:
            self.shown = True
            print("\r\033[K" + self.line() if self.terminal else self.line(), end="" if self.terminal else "\n", flush=True)
            if self.over.wait(0.5 if self.terminal else PLAIN_SECONDS):
                return

    def line(self) -> str:
        if self.measure is None:
            return self.title + " …"
        done, expected = self.measure
        count = min(done(), expected)
        return f"{self.title}: {count} of {expected} …" if count > 2 else f"{self.title}: fetching {expected} packages …"


# -- the commands ----------------------------------------------------------------------------------------------------------


def hand_over(words: list[str]) -> NoReturn:
    """Become `.venv/bin/python …`: same process, so that signals and the exit code are its own."""
    sys.stdout.flush()
    os.execv(PYTHON, [PYTHON, *words])


def command_manage(arguments: list[str]) -> int:
    prepare("run")
    hand_over(["manage.py", *arguments])


def command_setup(arguments: list[str]) -> int:
    prepare(arguments[0] if arguments else "run")
    return 0


def command_check(arguments: list[str]) -> int:
    """What developers run (tests/checks.py), with the environment that it needs."""
    prepare("test")
    hand_over(["-m", "tests.checks", *arguments])


COMMANDS = {"manage": command_manage, "setup": command_setup, "check": command_check}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
