"""Make `.venv`, install the pinned requirements, then become the command that was asked for (D42).

Standard library only, and readable by Python 3.8, so that an older Python can say what is missing.
Everything is run as `.venv/bin/python -m …`: scripts in `.venv/bin` break in a path with a space.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Iterator, NoReturn

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(PROJECT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "bridge-stamp.json")  # absent while the environment is being changed
REQUIREMENTS = {"run": "requirements.txt", "test": os.path.join("tests", "requirements.txt")}
OLDEST = (3, 11)
CHECKED = (
    (3, 13),
    (3, 12),
    (3, 11),
)  # the pins were installed on these; a newer one is a last resort
PROBE = "import sys; print('%d.%d' % sys.version_info[:2]); import ensurepip, venv"


class Missing(Exception):
    """Something the machine lacks; the text is the one line to print."""


def main(arguments: list[str]) -> int:
    """Run `manage …`, `check …` (tests/checks.py) or `setup`, with the environment it needs."""
    what, rest = (arguments or [""])[0], arguments[1:]
    os.chdir(PROJECT)
    for variable in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # not for a make that the bridge starts
        os.environ.pop(variable, None)
    try:
        if what == "setup":
            prepare("run")
            return 0
        if what not in ("manage", "check"):
            raise Missing(f"set-up: no such command: {what}")
        prepare("run" if what == "manage" else "test")
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    return _become(["manage.py", *rest] if what == "manage" else ["-m", "tests.checks", *rest])


def _become(words: list[str]) -> NoReturn:
    """Run `.venv/bin/python WORDS` as this process, so that signals and the exit code are its
    own.
    """
    sys.stdout.flush()
    os.execv(PYTHON, [PYTHON, *words])


# -- the machine -----------------------------------------------------------------------------------


def find_python() -> str:
    """Return the newest usable Python on the path. Raises Missing, naming the package to
    install.
    """
    names = [f"python3.{minor}" for minor in range(20, OLDEST[1] - 1, -1)] + ["python3"]
    found = [path for path in map(shutil.which, names) if path] + [sys.executable]
    return choose([(path, *probe(path)) for path in dict.fromkeys(found)])


def probe(python: str) -> tuple[tuple[int, int] | None, bool]:
    """Return a Python's version (None: it does not run), and whether it can make environments."""
    try:
        done = _run([python, "-c", PROBE])
        major, minor = done.stdout.split()[0].decode().split(".")
    except (OSError, IndexError, ValueError, subprocess.TimeoutExpired):
        return None, False
    return (int(major), int(minor)), done.returncode == 0


def choose(probed: list[tuple[str, tuple[int, int] | None, bool]]) -> str:
    """Return the newest of the CHECKED versions, else the newest. Raises Missing."""
    able = [
        (v in CHECKED, v, path) for path, v, complete in probed if v and v >= OLDEST and complete
    ]
    if able:
        best = max(able, key=lambda entry: entry[:2])
        return next(entry[2] for entry in able if entry[:2] == best[:2])
    newest = max((version for _, version, _ in probed if version), default=(0, 0))
    name = "{}.{}".format(*newest)
    if newest >= OLDEST:
        raise Missing(
            f"Python {name} cannot make virtual environments: install the package python{name}-venv (Debian: apt install python3-venv)."
        )
    here = f", here is {name}" if newest > (0, 0) else ""
    raise Missing(
        f"Python 3.11 or newer is needed{here}: install the packages python3.11 and python3.11-venv (Debian: apt install python3 python3-venv)."
    )


# -- the environment -------------------------------------------------------------------------------


def prepare(kind: str) -> None:
    """Make `.venv` hold what ``kind`` ("run" or "test") needs. Nothing to do takes about 50 ms.

    Two at once wait for each other. An environment that was interrupted, moved, or made with
    another Python is made anew. Raises Missing.
    """
    if shutil.which("git") is None:
        raise Missing("git is missing: install the package git (Debian: apt install git).")
    with only_one() as lock:
        stamp = _read_stamp()
        wanted = _hash(REQUIREMENTS[kind])
        if stamp.get(kind) == wanted:
            return
        if not stamp:
            python = find_python()
            _remove(VENV)
            # pip in a step of its own: when it fails inside venv, venv keeps the reason to itself.
            make = [python, "-m", "venv", "--without-pip", VENV]
            run_step(make, "Making the virtual environment", lock)
            run_step([PYTHON, "-m", "ensurepip", "--default-pip"], "Putting pip into it", lock)
        else:
            os.unlink(STAMP)
        pip = [PYTHON, "-m", "pip", "install", "--no-input", "--quiet", "--prefer-binary"]
        pip += ["--disable-pip-version-check", "-r", REQUIREMENTS[kind]]
        run_step(
            pip, "Installing requirements" + ("" if kind == "run" else " and test tools"), lock
        )
        stamp.update({"python": _venv_version(), "path": VENV, kind: wanted})
        if kind == "test":  # its file includes the other
            stamp["run"] = _hash(REQUIREMENTS["run"])
        with open(STAMP + ".new", "w", encoding="utf-8") as file:
            json.dump(stamp, file, indent=2)
        os.replace(STAMP + ".new", STAMP)


def _read_stamp() -> dict[str, str]:
    """Return what the environment was made from; empty when it cannot be kept."""
    try:
        with open(STAMP, encoding="utf-8") as file:
            stamp = json.load(file)
        kept = stamp["path"] == VENV and stamp["python"] == _venv_version()
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return stamp if kept else {}


def _venv_version() -> str:
    """Return the environment's Python version; empty when it is broken or has no pip."""
    version, _ = probe(PYTHON)
    try:
        whole = _run([PYTHON, "-c", "import sys, pip; sys.exit(sys.prefix == sys.base_prefix)"])
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "{}.{}".format(*version) if version and whole.returncode == 0 else ""


def _hash(name: str) -> str:
    """Return a digest of a requirements file and of those that it includes."""
    digest = hashlib.sha256()
    with open(os.path.join(PROJECT, name), encoding="utf-8") as file:
        for line in file:
            digest.update(line.encode())
            if line.startswith("-r "):
                digest.update(_hash(os.path.join(os.path.dirname(name), line[3:].strip())).encode())
    return digest.hexdigest()


def _remove(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)
    except OSError as error:
        raise Missing(
            f".venv cannot be removed ({error.strerror}): remove it and try again."
        ) from None


@contextlib.contextmanager
def only_one() -> Iterator[int]:
    """Hold the set-up's lock (the requirements file itself); yield its file descriptor."""
    descriptor = os.open(os.path.join(PROJECT, "requirements.txt"), os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Waiting for another set-up in this directory …", flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _run(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    nothing = subprocess.DEVNULL
    return subprocess.run(
        command, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing, timeout=60, check=False
    )


def run_step(command: list[str], title: str, lock: int) -> None:
    """Run a command and say how long it took; when it fails, show all it said. Raises Missing.

    It inherits the lock, so that nobody begins beside it when this process is killed.
    """
    environment = dict(os.environ, PIP_USER="0")
    for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    print(f"{title} …", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        out, none = output, subprocess.DEVNULL
        process = subprocess.Popen(
            command, stdin=none, stdout=out, stderr=out, env=environment, pass_fds=(lock,)
        )
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
    print(f"{title}: done after {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
