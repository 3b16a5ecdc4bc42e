"""Find codex's program and its version, or say what is missing (D75)."""

import os
from typing import Final

from sessions_app.agents import found

NAME: Final = "codex"
PROGRAM: Final = found.Program("codex", "Codex")
_LOG_IN: Final = (
    "Run `codex login` in a terminal on the bridge's machine, as the user who runs the bridge, or "
    "name a model provider of your own in ~/.codex/config.toml."
)


def command() -> list[str]:
    """Return the words that run it; of one that is not there its start says so."""
    return found.command_of(PROGRAM.path() or os.path.join(os.sep, "gone", PROGRAM.name))


def asked() -> found.Answer:
    """Return what it says of its version; call this in a thread."""
    path = PROGRAM.path()
    return found.ask(path) if path is not None else found.Answer()


def log_in(why: str) -> str:
    """Return how a person logs it in, and why that is needed."""
    return f"codex wants a login ({why}). {_LOG_IN}"
