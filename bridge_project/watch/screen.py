"""Where commands come from: a prompt below what arrives, or lines of a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from bridge_project.watch.console import COMMANDS, Console


def available() -> bool:
    """Whether the interactive screen can be shown: it needs a terminal, and prompt-toolkit, which is an extra."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        import prompt_toolkit  # noqa: F401 - asked whether it is there
    except ImportError:
        return False
    return True


async def prompt(console: Console, ready: Callable[[], Awaitable[Any]]) -> None:
    """Read commands at a prompt until the person leaves (Ctrl-D); what arrives is printed above it."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.patch_stdout import patch_stdout

    def toolbar() -> str:
        waiting = len(console.pending)
        session = console.sessions.get(console.current or "") or console.current or "no session"
        return f" {session[:60]} · {f'{waiting} to decide: approve, reject' if waiting else 'nothing to decide'} · help"

    session: PromptSession[str] = PromptSession(completer=WordCompleter([*COMMANDS, "quit"], sentence=True), bottom_toolbar=toolbar)
    await ready()  # before that the person may be asked about a warning
    with patch_stdout(raw=True):
        while True:
            try:
                line = await session.prompt_async("> ")
            except (EOFError, KeyboardInterrupt):
                return
            if line.strip() in ("quit", "exit"):
                return
            await ready()
            await console.do(line)


async def pipe(console: Console, ready: Callable[[], Awaitable[Any]]) -> None:
    """Carry out the lines of standard input, one after the other, each when there is a connection; ends with the input."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        await ready()
        await console.do(line)
