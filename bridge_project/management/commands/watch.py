"""Show in the terminal the messages that a device gets (D43): `watch`."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bridge_project.kernel.config import conf
from bridge_project.terminal import stdin
from bridge_project.terminal.client import Refused
from bridge_project.terminal.identity import Identity
from bridge_project.terminal.watcher import Watcher


class Command(BaseCommand):
    help = (
        "A device in the terminal: pairs itself with the bridge of this machine, joins every"
        " session and prints a line for each message. With prompt-toolkit installed there is a"
        " prompt for commands: decide approvals, look at diffs, commit, read files. Ctrl-C ends it;"
        " what happens meanwhile is shown the next time."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        raw = "print the messages as JSON, one a line; everything else goes to standard error"
        parser.add_argument("--raw", action="store_true", help=raw)
        commands = (
            "carry out commands from standard input, one a line (`help` lists them), and end with"
            " it"
        )
        parser.add_argument("--commands", action="store_true", help=commands)
        yes = "accept warnings, such as that a connection is public, without asking"
        parser.add_argument("--yes", action="store_true", help=yes)

    def handle(self, *args: Any, **options: Any) -> None:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and not options["no_color"]
        notes = sys.stderr if options["raw"] else sys.stdout
        watcher = Watcher(
            Identity(conf),
            show=lambda line: print(line, flush=True),
            note=lambda line: print(line, file=notes, flush=True),
            colour=colour or options["force_color"],
            raw=options["raw"],
            ask=_agree if options["yes"] else _ask if sys.stdin.isatty() else None,
        )
        try:
            asyncio.run(_run(watcher, commands=options["commands"]))
        except Refused as refused:
            raise CommandError(str(refused)) from None
        except BrokenPipeError:  # whoever read the output has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _agree(_question: str) -> bool:
    return True


async def _ask(question: str) -> bool:
    print(f"{question} [y/N] ", end="", flush=True)
    return (await stdin.read_line()).strip().lower() in ("y", "yes")


async def _run(watcher: Watcher, *, commands: bool) -> None:
    """Run until a signal or the last command; then close in order."""
    running = asyncio.create_task(watcher.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    may_prompt = not commands and not watcher.raw and stdin.can_prompt()
    source = stdin.pipe if commands else stdin.prompt if may_prompt else None
    reading = asyncio.create_task(source(watcher)) if source else None
    if reading is not None:
        reading.add_done_callback(lambda _: running.cancel())
    with contextlib.suppress(asyncio.CancelledError):
        await running
    if reading is not None:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
