"""Read commands from a prompt below the output, or from standard input."""

import asyncio
import importlib.util
import io
import sys
import threading
from typing import Final

from bridge_project.terminal.commands import COMMANDS, carry_out
from bridge_project.terminal.watcher import Watcher

_STDIN: Final = io.FileIO(0, closefd=False)


def can_prompt() -> bool:
    """Tell whether a prompt is possible: a terminal, and prompt-toolkit."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return terminal and importlib.util.find_spec("prompt_toolkit") is not None


async def prompt(watcher: Watcher) -> None:
    """Run a prompt's commands until the person leaves; print arrivals above it."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.patch_stdout import patch_stdout

    def toolbar() -> str:
        console = watcher.console
        current = console.current
        name = console.titles.get(current, current) if current else "no session"
        waiting = len(console.pending)
        decide = f"{waiting} to decide: approve, reject, answer" if waiting else "nothing to decide"
        return f" {name[:60]} · {decide} · help"

    words = WordCompleter([*COMMANDS, "quit"], sentence=True)
    session: PromptSession[str] = PromptSession(completer=words, bottom_toolbar=toolbar)
    await watcher.ready.wait()  # before that the person may be asked about a warning
    with patch_stdout(raw=True):
        while True:
            try:
                line = await session.prompt_async("> ")
            except (EOFError, KeyboardInterrupt):
                return
            if line.strip() in ("quit", "exit"):
                return
            await watcher.ready.wait()
            await carry_out(watcher.console, line)


async def pipe(watcher: Watcher) -> None:
    """Run standard input line by line; wait for a connection before each line."""
    await watcher.ready.wait()
    while line := await read_line():
        await watcher.ready.wait()
        await carry_out(watcher.console, line)


async def read_line() -> str:
    """Read a line of standard input in a daemon thread; empty at its end."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def settle(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def read() -> None:
        text = _STDIN.readline().decode(errors="replace")
        loop.call_soon_threadsafe(settle, text)

    threading.Thread(target=read, daemon=True).start()
    return await line
