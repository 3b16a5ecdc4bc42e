"""Show in the terminal the messages that a device gets (D43): `watch`."""

import asyncio
import contextlib
import importlib.util
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bridge_project.kernel.config import conf
from bridge_project.terminal.client import Refused
from bridge_project.terminal.commands import COMMANDS, run_line
from bridge_project.terminal.identity import Identity
from bridge_project.terminal.watcher import Watcher

Source = Callable[[Watcher], Coroutine[Any, Any, None]]

_STDIN: Final = io.FileIO(0, closefd=False)


class Command(BaseCommand):
    help = (
        "A device in the terminal: pairs itself with the bridge of this machine, joins every"
        " session and prints a line for each message. With prompt-toolkit installed there is a"
        " prompt for commands: decide approvals, look at diffs, commit, read files. Ctrl-C ends it;"
        " what happens meanwhile is shown the next time."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        raw = "print the messages as JSON, one a line; everything else goes to standard error"
        parser.add_argument("--raw", action="store_true", help=raw)
        commands = (
            "carry out commands from standard input, one a line (try `help`), and end with it"
        )
        parser.add_argument("--commands", action="store_true", help=commands)
        yes = "accept warnings, such as that a connection is public, without asking"
        parser.add_argument("--yes", action="store_true", help=yes)

    def handle(self, *args: Any, **options: Any) -> None:
        raw, terminal = options["raw"], sys.stdin.isatty() and sys.stdout.isatty()
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and not options["no_color"]
        notes = sys.stderr if raw else sys.stdout
        watcher = Watcher(
            Identity(conf),
            show=lambda line: print(line, flush=True),
            note=lambda line: print(line, file=notes, flush=True),
            ask=_agree if options["yes"] else _ask if sys.stdin.isatty() else None,
            raw=raw,
            colour=colour,
        )
        source = _pipe if options["commands"] else None
        if source is None and terminal and not raw:
            if importlib.util.find_spec("prompt_toolkit"):
                source = _prompt
            else:
                print("-- To type commands: .venv/bin/python -m pip install prompt-toolkit")
        try:
            asyncio.run(_run(watcher, source))
        except Refused as refused:
            raise CommandError(str(refused)) from None
        except BrokenPipeError:  # whoever read the output has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _agree(_question: str) -> bool:
    return True


async def _ask(question: str) -> bool:
    print(f"{question} [y/N] ", end="", flush=True)
    return (await _read_line()).strip().lower() in ("y", "yes")


async def _run(watcher: Watcher, source: Source | None) -> None:
    """Run until a signal or the last command; then close in order."""
    running = asyncio.create_task(watcher.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    reading = asyncio.create_task(source(watcher)) if source else running
    reading.add_done_callback(lambda _: running.cancel())
    with contextlib.suppress(asyncio.CancelledError):
        await running
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading


async def _prompt(watcher: Watcher) -> None:
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
    with patch_stdout(raw=True), contextlib.suppress(EOFError, KeyboardInterrupt):
        while (line := await session.prompt_async("> ")).strip() != "quit":
            # without a connection it is refused: what it was meant for may have changed meanwhile
            if watcher.console.client is not None:
                await watcher.ready.wait()
            await run_line(watcher.commands, line)


async def _pipe(watcher: Watcher) -> None:
    """Run standard input line by line; wait for a connection before each line."""
    await watcher.ready.wait()
    while line := await _read_line():
        await watcher.ready.wait()
        await run_line(watcher.commands, line)


async def _read_line() -> str:
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
