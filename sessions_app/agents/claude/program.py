"""Find claude-code's program and its version, or say what is missing (D41)."""

import importlib.metadata
import importlib.util
import os
import shutil
from pathlib import Path

NAME = "claude-code"
PACKAGE = "claude-agent-sdk"
PROGRAM = "claude"
REQUIREMENTS = "requirements-claude.txt"


def problem() -> str | None:
    """Return why no session can start, and the remedy; None when one can."""
    if program() is not None:
        return None
    there = package() is not None
    missing = f"The program {PROGRAM} of {PACKAGE}" if there else PACKAGE
    return f"{missing} is not installed. Install it with: {mend()}"


def mend() -> str:
    """Return the command that installs what is missing."""
    again = "" if package() is None else "--force-reinstall "
    return f".venv/bin/python -m pip install {again}-r {REQUIREMENTS}"


def program() -> Path | None:
    """Return the agent's own program: the one that came with the SDK, else the user's."""
    where = package()
    if where is None:
        return None
    bundled = where / "_bundled" / PROGRAM
    if os.access(bundled, os.X_OK) and bundled.is_file():
        return bundled
    found = shutil.which(PROGRAM)
    return Path(found) if found else None


def version() -> str:
    """Return the version of the SDK; empty without it or its program."""
    try:
        return importlib.metadata.version(PACKAGE) if program() is not None else ""
    except importlib.metadata.PackageNotFoundError:  # it was copied there, not installed
        return ""


def package() -> Path | None:
    """Return the directory of the SDK, without importing it; None without it."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    return Path(spec.origin).parent if spec is not None and spec.origin else None
