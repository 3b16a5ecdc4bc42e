"""Find claude-code's program and its version, or say what is missing (D41, D75)."""

import importlib.util
import os
import shlex
from importlib import metadata
from pathlib import Path

from bridge_project.kernel.place import IN_CLONE, installer
from bridge_project.kernel.place import PROGRAM as OURS
from sessions_app.agents import found

NAME = "claude-code"
PACKAGE = "claude-agent-sdk"
PROGRAM = found.Program("claude", "Claude Code")
REQUIREMENTS = "requirements-claude.txt"


def problem() -> str | None:
    """Return why no session can start, and the remedy; None when one can."""
    if package() is None:
        there = PROGRAM.path() is not None
        missing = f"{PACKAGE} is not installed" if there else PROGRAM.problem()
        return f"{str(missing).rstrip('.')}. Install it with: {mend()}"
    return None if program() is not None else f"{PROGRAM.problem()} {mend()} brings it."


def mend() -> str:
    """Return the command that installs the SDK, and a program if none is there."""
    by, wanted = installer(), f"-r {REQUIREMENTS}"
    if not IN_CLONE:
        extra = (one for one in metadata.requires(OURS) or () if one.startswith(PACKAGE))
        wanted = shlex.quote(next(extra).partition(";")[0].strip())
    if package() is not None:
        return f"{by.add} {by.again} {wanted}"
    small = f"{by.source}{PACKAGE} " if PROGRAM.path() is not None else ""
    return f"{by.add} {small}{wanted}"


def program() -> Path | None:
    """Return the agent's program: the user's, else the one in the SDK (D75)."""
    where = package()
    if where is None:
        return None
    if (path := PROGRAM.path()) is not None:
        return Path(path)
    bundled = where / "_bundled" / PROGRAM.name
    return bundled if os.access(bundled, os.X_OK) and bundled.is_file() else None


def asked() -> found.Answer:
    """Return what its program says of its version; call this in a thread."""
    path = program()
    return found.ask(str(path)) if path is not None else found.Answer()


def package() -> Path | None:
    """Return the directory of the SDK, without importing it; None without it."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    return Path(spec.origin).parent if spec is not None and spec.origin else None
