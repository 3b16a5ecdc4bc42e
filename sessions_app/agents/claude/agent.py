"""Define the agent ``claude-code``: program, version, why it cannot start (D41).

It runs through claude-agent-sdk, an optional extra of the project, which is imported only when a
session of it starts.
"""

import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from sessions_app.agents.driver import AgentKind, Driver, HistoryMessage

NAME = "claude-code"
PACKAGE = "claude-agent-sdk"
PROGRAM = "claude"
REQUIREMENTS = "requirements-claude.txt"


def problem() -> str | None:
    """Return why no session can start, and the remedy; None when one can."""
    if program() is not None:
        return None
    there = _package() is not None
    missing = f"The program {PROGRAM} of {PACKAGE}" if there else PACKAGE
    return f"{missing} is not installed. Install it with: {mend()}"


def mend() -> str:
    """Return the command that installs what is missing."""
    again = "" if _package() is None else "--force-reinstall "
    return f".venv/bin/python -m pip install {again}-r {REQUIREMENTS}"


def program() -> Path | None:
    """Return the agent's own program: the one that came with the SDK, else the user's."""
    where = _package()
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


def make() -> Driver:
    """Return a driver for one session; starting it reports what is missing."""
    from sessions_app.agents.claude.driver import ClaudeDriver

    return ClaudeDriver()


def history(resume_id: str) -> Sequence[HistoryMessage]:
    """Return a session's conversation from its transcript; empty without the SDK."""
    if _package() is None:
        return ()
    from sessions_app.agents.claude.translation import read_transcript

    return read_transcript(resume_id)


KIND = AgentKind(NAME, make, problem, version, mend=mend, history=history)


def _package() -> Path | None:
    spec = importlib.util.find_spec("claude_agent_sdk")
    return Path(spec.origin).parent if spec is not None and spec.origin else None
