"""``watch``: a device in the terminal that shows what arrives (D43)."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bridge_project.kernel.config import conf
from bridge_project.terminal import identity, screen
from bridge_project.terminal.client import Refused, Target
from bridge_project.terminal.console import Console
from bridge_project.terminal.render import Renderer
from bridge_project.terminal.watcher import Asker, Watcher

Input = Callable[[Console, Callable[[], Awaitable[Any]]], Coroutine[Any, Any, None]]


class Command(BaseCommand):
    help = (
        "A device in the terminal: pairs itself with the bridge of this machine, joins every session and prints a line for each message. With prompt-toolkit "
        "installed there is a prompt for commands: decide approvals, look at diffs, commit, read files. "
        "Ctrl-C ends it; what happens meanwhile is shown the next time."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--raw",
            action="store_true",
            help="print the messages as JSON, one a line; everything else goes to standard error",
        )
        parser.add_argument(
            "--session",
            action="append",
            default=[],
            metavar="ID",
            help="follow only this session; may be given several times",
        )
        parser.add_argument(
            "--url", help="a bridge elsewhere: its wss:// address, or a whole pairing link"
        )
        parser.add_argument("--token", help="a device token for --url")
        parser.add_argument(
            "--pin",
            default="",
            help="hex SHA-256 of the public key of --url; without it the certificate must be trusted by this system",
        )
        parser.add_argument(
            "--plain",
            action="store_true",
            help="only follow, also in a terminal: no prompt for commands",
        )
        parser.add_argument(
            "--commands",
            action="store_true",
            help="carry out commands from standard input, one a line (`help` lists them), and end with it",
        )
        parser.add_argument(
            "--yes",
            action="store_true",
            help="accept warnings, such as that a connection is public, without asking",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with contextlib.ExitStack() as stack:
            try:
                if options["url"]:
                    elsewhere = _given(options["url"], options["token"], options["pin"])
                    watcher = self._watcher(lambda: elsewhere, options)
                else:
                    path = stack.enter_context(identity.place(conf))
                    keep = partial(identity.keep, path)
                    watcher = self._watcher(lambda: identity.target(conf, path), options, keep)
                asyncio.run(_until_stopped(watcher, _input(options)))
            except Refused as refused:
                raise CommandError(str(refused)) from None
            except BrokenPipeError:  # whoever read the output has enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _watcher(
        self,
        target: Callable[[], Target],
        options: dict[str, Any],
        keep: Callable[[str, str], None] | None = None,
    ) -> Watcher:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and not options["no_color"]
        notes = sys.stderr if options["raw"] else sys.stdout
        return Watcher(
            target,
            show=lambda line: print(line, flush=True),
            note=lambda line: print(line, file=notes, flush=True),
            renderer=Renderer(colour=colour or options["force_color"]),
            raw=options["raw"],
            sessions=options["session"],
            ask=_asker(yes=options["yes"]),
            keep=keep,
        )


def _given(url: str, token: str | None, pin: str) -> Target:
    if url.startswith("https://"):
        try:
            return Target.from_link(url)
        except ValueError:
            raise CommandError(
                "--url: a wss:// address or a whole pairing link (https://…/pair#…) is needed."
            ) from None
    if not token:
        raise CommandError("--url needs --token, or a whole pairing link.")
    return Target(url=url, token=token, pin=pin.lower().replace(":", ""))


def _asker(*, yes: bool) -> Asker | None:
    async def agree(_question: str) -> bool:
        return True

    async def ask(question: str) -> bool:
        print(f"{question} [y/N] ", end="", flush=True)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            loop.remove_reader(sys.stdin)
            answer.set_result(sys.stdin.readline())

        loop.add_reader(sys.stdin, read)
        try:
            return (await answer).strip().lower() in ("y", "yes")
        finally:
            loop.remove_reader(sys.stdin)

    if yes:
        return agree
    return ask if sys.stdin.isatty() else None


def _input(options: dict[str, Any]) -> Input | None:
    """Where commands come from: a pipe that was asked for, a prompt where there can be one, or
    nowhere.
    """
    if options["commands"]:
        return screen.pipe
    return (
        screen.prompt
        if not options["plain"] and not options["raw"] and screen.available()
        else None
    )


async def _until_stopped(watcher: Watcher, commands: Input | None) -> None:
    """Run until SIGINT or SIGTERM, or until there are no more commands; then close the connection
    in order.
    """
    running = asyncio.create_task(watcher.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    if commands is not None:
        reading = asyncio.create_task(commands(watcher.console, watcher.ready.wait))
        reading.add_done_callback(lambda _: running.cancel())
        running.add_done_callback(lambda _: reading.cancel())
    with contextlib.suppress(asyncio.CancelledError):
        await running
    if commands is not None and reading.done() and not reading.cancelled():
        reading.result()
