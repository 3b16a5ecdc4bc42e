"""Show in the terminal the messages that a device gets (D43): `watch`."""

import asyncio
import contextlib
import io
import os
import signal
import sys
import threading
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bridge_project.kernel.config import conf
from bridge_project.terminal.client import Refused
from bridge_project.terminal.commands import run_line
from bridge_project.terminal.identity import Identity
from bridge_project.terminal.watcher import Printer, Watcher

_STDIN: Final = io.FileIO(0, closefd=False)
_LINES_MAX: Final = 1000  # read ahead of the command that is being carried out


class Command(BaseCommand):
    help = (
        "A device in the terminal: pairs itself with the bridge of this machine, joins every"
        " session, prints a line for each message, and carries out commands that are typed or"
        " piped, one a line (`help` lists them). Ctrl-C ends it, and the end of what was typed or"
        " piped; what happens meanwhile, such as an answer, is shown the next time. A second one"
        " takes over from the first."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        raw = "print the messages as JSON, one a line; everything else goes to standard error"
        parser.add_argument("--raw", action="store_true", help=raw)
        yes = "accept warnings, such as that a connection is public, without asking"
        parser.add_argument("--yes", action="store_true", help=yes)

    def handle(self, *args: Any, **options: Any) -> None:
        raw = options["raw"]
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and not options["no_color"]
        notes = sys.stderr if raw else sys.stdout

        def note(line: str) -> None:
            print(line, file=notes, flush=True)

        lines = _Lines(note)
        watcher = Watcher(
            Identity(conf),
            show=lambda line: print(line, flush=True),
            note=note,
            ask=_agree if options["yes"] else lines.ask if _STDIN.isatty() else None,
            raw=raw,
            colour=colour,
        )
        try:
            asyncio.run(_run(watcher, lines))
        except Refused as refused:
            raise CommandError(str(refused)) from None


async def _agree(_question: str) -> bool:
    return True


class _Lines:
    """Take standard input line by line: commands, and answers to questions."""

    def __init__(self, note: Printer) -> None:
        self._note = note
        self._commands: asyncio.Queue[str] = asyncio.Queue(_LINES_MAX)  # an empty one is the end
        self._answer: asyncio.Future[str] | None = None

    async def ask(self, question: str) -> bool:
        self._answer = asyncio.get_running_loop().create_future()
        self._note(f"{question} [y/N]")
        return (await self._answer).strip().lower() in ("y", "yes")

    async def read(self) -> None:
        """Read until the input ends; a line after a question is its answer.

        Without a single line, as at /dev/null, nobody is there to end `watch`: read for ever.
        """
        given = _STDIN.isatty()
        while line := await _read_line():
            given = True
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(line)
            else:
                await self._commands.put(line)
        if self._answer is not None and not self._answer.done():
            self._answer.set_result("")
        if given:
            await self._commands.put("")

    async def carry_out(self, watcher: Watcher) -> None:
        """Carry out commands until the last; the first waits for the connection.

        Later ones are refused without it: what they were meant for may have changed meanwhile.
        """
        connected = False
        while line := await self._commands.get():
            if not connected or watcher.console.client is not None:
                if watcher.console.client is None and _STDIN.isatty():
                    self._note("-- this waits for the connection")
                await watcher.ready.wait()
            connected = True
            await run_line(watcher.commands, line)


async def _run(watcher: Watcher, lines: _Lines) -> None:
    """Run until a signal or the last command; then close in order."""
    running = asyncio.create_task(watcher.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    working = [asyncio.create_task(work) for work in (lines.carry_out(watcher), lines.read())]
    working[0].add_done_callback(lambda _: running.cancel())
    with contextlib.suppress(asyncio.CancelledError):
        await running
    for task in working:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


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
