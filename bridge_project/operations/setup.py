"""Make `.venv`, install the requirements, then run what `make` asks for (D42).

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
# the last one is installed, and includes those before it
REQUIREMENTS = {
    "run": ["requirements.txt"],
    "claude": ["requirements.txt", "requirements-claude.txt"],
    "test": ["requirements.txt", "requirements-claude.txt", "tests/requirements.txt"],
}
_WHAT = {
    "run": "requirements",
    "claude": "what the agent claude-code needs",
    "test": "requirements and test tools",
}
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
        # other commands do not start agents
        if (what == "setup" or rest[:1] in (["serve"], ["upgrade"])) and _has_claude():
            prepare_for_claude()
    except Missing as missing:
        print(missing, file=sys.stderr)
        if rest[:1] == ["upgrade"]:
            text = "The database was not touched, and a bridge that runs was not stopped."
            print(text, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    if what in COMMANDS:  # as this process, so that signals and the exit code are its own
        os.execv(PYTHON, [str(PYTHON), *COMMANDS[what], *rest])
    return 0


def prepare(kind: str) -> None:
    """Install in `.venv` what `kind` ("run" or "test") needs, once. Raises Missing."""
    if shutil.which("git") is None:
        raise Missing("git is missing: install the package git (Debian: apt install git).")
    with only_one() as lock:
        stamp, wanted = _read_stamp(), {name: _hash(name) for name in ("run", kind)}
        if stamp.get(kind) == wanted[kind] or (kind == "claude" and "test" in stamp):
            return
        if not stamp:
            if VENV.is_symlink():
                VENV.unlink()  # `--clear` would empty what it leads to
            make = [sys.executable, "-m", "venv", "--clear", str(VENV)]
            run_step(make, "Making the virtual environment", lock)
        if kind != "claude":  # which only adds: without it the environment is whole
            STAMP.unlink(missing_ok=True)
        pip = [str(PYTHON), "-m", "pip", "install", "--no-input", "-qq", "--prefer-binary"]
        pip += ["--disable-pip-version-check", "-r", REQUIREMENTS[kind][-1]]
        if kind == "claude":
            pip += ["--no-binary", "claude-agent-sdk"]  # its wheel brings the program, 165 MB
        run_step(pip, f"Installing {_WHAT[kind]}", lock)
        draft = STAMP.with_suffix(".new")
        draft.write_text(json.dumps(stamp | wanted | {"path": str(VENV)}), encoding="utf-8")
        draft.replace(STAMP)


def _has_claude() -> bool:
    """Return whether Claude Code may be here: agents/found.py decides later."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path.home() / ".local/bin")])
    return shutil.which("claude", path=path) is not None


def prepare_for_claude() -> None:
    """Install the SDK without its program; only print a failure (D75)."""
    try:
        prepare("claude")
    except Missing as missing:
        print(f"{missing} The bridge runs without the agent claude-code.", file=sys.stderr)


def _read_stamp() -> dict[str, str]:
    """Return what the environment was made from; empty when it must be made anew."""
    try:
        stamp: dict[str, str] = json.loads(STAMP.read_text(encoding="utf-8"))
        whole = "import sys, pip; sys.exit(sys.prefix == sys.base_prefix)"
        subprocess.run([PYTHON, "-c", whole], check=True, timeout=60, stderr=subprocess.DEVNULL)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return stamp if stamp.get("path") == str(VENV) else {}


def _hash(kind: str) -> str:
    texts = [(PROJECT / name).read_bytes() for name in REQUIREMENTS[kind]]
    return hashlib.sha256(b"".join(texts)).hexdigest()


@contextlib.contextmanager
def only_one() -> Iterator[int]:
    """Hold the set-up's lock (the requirements file); yield its descriptor."""
    with open(PROJECT / "requirements.txt", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another set-up in this directory …", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def run_step(command: list[str], title: str, lock: int) -> None:
    """Run a command and print how long it took. Raises Missing when it fails.

    It inherits the lock, so that nobody begins beside it when this process is killed.
    """
    print(f"{title} …", flush=True)
    started = time.monotonic()
    # what would have pip install elsewhere
    elsewhere = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in elsewhere}
    environment |= {"PIP_USER": "0", "PYTHONPATH": ""}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, env=environment, pass_fds=(lock,), check=False
    )
    if done.returncode:
        raise Missing(f"{title} failed (exit code {done.returncode}); what it said is above.")
    print(f"{title}: done after {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
