"""Make `.venv`, install the pinned requirements, run the command (D42).

Standard library only: it runs before anything is installed, with the Python that the Makefile has
chosen. Everything is run as `.venv/bin/python -m …`: scripts in `.venv/bin` break in a path with a
space.
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
import time
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
VENV = PROJECT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "bridge-stamp.json"  # absent while the environment is being changed
REQUIREMENTS = {"run": "requirements.txt", "test": "tests/requirements.txt"}
COMMANDS = {"manage": ["manage.py"], "check": ["-m", "tests.checks"]}


class Missing(Exception):
    """Report what the machine lacks; the text is what to print."""


def main(arguments: list[str]) -> int:
    """Run `manage …`, `check …` (tests/checks.py) or `setup`, in its environment."""
    what, *rest = arguments
    os.chdir(PROJECT)
    for variable in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # not for a make that the bridge starts
        os.environ.pop(variable, None)
    try:
        prepare("test" if what == "check" else "run")
    except Missing as missing:
        print(missing, file=sys.stderr)
        if rest[:1] == ["upgrade"]:
            text = "The database was not touched, and a bridge that runs was not stopped."
            data = Path(os.environ.get("BRIDGE_DATA_DIR") or PROJECT / "var")
            if commit := earlier_commit(data / "server.json"):
                text += f" To go back: `git checkout {commit}` and `make setup`."
            print(text, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    if what in COMMANDS:  # as this process, so that signals and the exit code are its own
        sys.stdout.flush()
        os.execv(PYTHON, [str(PYTHON), *COMMANDS[what], *rest])
    return 0


def prepare(kind: str) -> None:
    """Make `.venv` hold what `kind` ("run" or "test") needs. Raises Missing.

    Two at once wait for each other. An environment that was interrupted, moved, or whose Python is
    gone is made anew.
    """
    if shutil.which("git") is None:
        raise Missing("git is missing: install the package git (Debian: apt install git).")
    with only_one() as lock:
        stamp, wanted = _read_stamp(), _hash(REQUIREMENTS[kind])
        if stamp.get(kind) == wanted:
            return
        if not stamp:
            _remove(VENV)
            # pip in a step of its own: when it fails inside venv, venv keeps the reason to itself.
            make = [sys.executable, "-m", "venv", "--without-pip", str(VENV)]
            run_step(make, "Making the virtual environment", lock)
            pip = [str(PYTHON), "-m", "ensurepip", "--default-pip"]
            run_step(pip, "Putting pip into it", lock)
        STAMP.unlink(missing_ok=True)
        pip = [str(PYTHON), "-m", "pip", "install", "--no-input", "--quiet", "--prefer-binary"]
        pip += ["--disable-pip-version-check", "-r", REQUIREMENTS[kind]]
        what = "requirements" if kind == "run" else "requirements and test tools"
        run_step(pip, f"Installing {what}", lock)
        # the tests' file includes the other
        stamp |= {"path": str(VENV), "run": _hash(REQUIREMENTS["run"]), kind: wanted}
        draft = STAMP.with_suffix(".new")
        draft.write_text(json.dumps(stamp, indent=2), encoding="utf-8")
        draft.replace(STAMP)


def earlier_commit(last_start: Path) -> str:
    """Return the commit that ran at the last start; "" if unknown, or the present one.

    `last_start` is the file that each start writes. git remembers what the clone was at that time.
    """
    try:
        moment = time.gmtime(last_start.stat().st_mtime)
    except OSError:
        return ""
    then = f"HEAD@{{{time.strftime('%Y-%m-%d %H:%M:%S +0000', moment)}}}"
    found = []
    for what in ("HEAD", then):
        command = ["git", "-C", str(PROJECT), "rev-parse", "--short", "--verify", "--quiet", what]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found.append(done.stdout.strip())
    return found[1] if found[0] != found[1] else ""


def _read_stamp() -> dict[str, str]:
    """Return what the environment was made from; empty when it must be made anew."""
    try:
        stamp: dict[str, str] = json.loads(STAMP.read_text(encoding="utf-8"))
        if stamp["path"] != str(VENV):
            return {}
        whole = "import sys, pip; sys.exit(sys.prefix == sys.base_prefix)"
        subprocess.run([PYTHON, "-c", whole], check=True, timeout=60, stderr=subprocess.DEVNULL)
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError):
        return {}
    return stamp


def _hash(name: str) -> str:
    """Return a digest of a requirements file and of those that it includes."""
    text = (PROJECT / name).read_text(encoding="utf-8")
    digest = hashlib.sha256(text.encode())
    for line in text.splitlines():
        if line.startswith("-r "):
            included = os.path.join(os.path.dirname(name), line[3:].strip())
            digest.update(_hash(included).encode())
    return digest.hexdigest()


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        text = f".venv cannot be removed ({error.strerror}): remove it and try again."
        raise Missing(text) from None


@contextlib.contextmanager
def only_one() -> Iterator[int]:
    """Hold the set-up's lock (the requirements file); yield its descriptor."""
    with open(PROJECT / "requirements.txt", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Waiting for another set-up in this directory …", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def run_step(command: list[str], title: str, lock: int) -> None:
    """Run a command and print how long it took; when it fails, all its output.

    It inherits the lock, so that nobody begins beside it when this process is killed.
    """
    ours = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    print(f"{title} …", flush=True)
    started = time.monotonic()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment | {"PIP_USER": "0"},
        pass_fds=(lock,),
        check=False,
    )
    if done.returncode:
        said = done.stdout.decode("utf-8", "replace").rstrip()
        text = f"{title} failed (exit code {done.returncode}); what it said is above."
        raise Missing(f"{said}\n{text}")
    print(f"{title}: done after {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
