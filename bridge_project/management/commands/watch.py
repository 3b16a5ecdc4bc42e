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
from bridge_project.terminal.watcher import Watcher

_STDIN: Final = io.FileIO(0, closefd=False)


class Command(BaseCommand):
    help = (
        "A device in the terminal: pairs itself with the bridge of this machine, joins every"
        " session, prints a line for each message, and carries out commands that are typed or"
        " piped, one a line (`help` lists them). Ctrl-C and the end of the input end it; what"
        " happens meanwhile is shown the next time."
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
        watcher = Watcher(
            Identity(conf),
            show=lambda line: print(line, flush=True),
            note=lambda line: print(line, file=notes, flush=True),
            ask=_agree if options["yes"] else _ask if sys.stdin.isatty() else None,
            raw=raw,
            colour=colour,
        )
        try:
            asyncio.run(_run(watcher))
        except Refused as refused:
            raise CommandError(str(refused)) from None
        except BrokenPipeError:  # whoever read the output has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _agree(_question: str) -> bool:
    return True


async def _ask(question: str) -> bool:
    print(f"{question} [y/N] ", end="", flush=True)
    return (await _read_line()).strip().lower() in ("y", "yes")


async def _run(watcher: Watcher) -> None:
    """Run until a signal or the last command; then close in order."""
    running = asyncio.create_task(watcher.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    reading = asyncio.create_task(_carry_out(watcher))
    reading.add_done_callback(lambda _: running.cancel())
    with contextlib.suppress(asyncio.CancelledError):
        await running
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading


async def _carry_out(watcher: Watcher) -> None:
    """Run standard input line by line; wait for a connection before each line.

    Return at its end. Without a single line, as at /dev/null, nobody is there to end it.
    """
    await watcher.ready.wait()  # before that the person may be asked about a warning
    given = sys.stdin.isatty()
    while line := await _read_line():
        given = True
        await watcher.ready.wait()
        await run_line(watcher.commands, line)
    if not given:
        await asyncio.Event().wait()


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
