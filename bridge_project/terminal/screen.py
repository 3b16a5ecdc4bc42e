"""Where commands come from: a prompt below what arrives, or lines of a pipe."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from bridge_project.terminal.console import COMMANDS, Console

READ_BYTES: Final = 65536


def available() -> bool:
    """Whether the interactive screen can be shown: it needs a terminal, and prompt-toolkit, which
    is an extra.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        import prompt_toolkit  # noqa: F401 - asked whether it is there
    except ImportError:
        return False
    return True


async def prompt(console: Console, ready: Callable[[], Awaitable[Any]]) -> None:
    """Read commands at a prompt until the person leaves (Ctrl-D); what arrives is printed above
    it.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.patch_stdout import patch_stdout

    def toolbar() -> str:
        waiting = len(console.pending)
        session = console.sessions.get(console.current or "") or console.current or "no session"
        return f" {session[:60]} · {f'{waiting} to decide: approve, reject' if waiting else 'nothing to decide'} · help"

    session: PromptSession[str] = PromptSession(
        completer=WordCompleter([*COMMANDS, "quit"], sentence=True), bottom_toolbar=toolbar
    )
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
    """Carry out the lines of standard input, one after the other, each when there is a connection;
    ends with the input.
    """
    await ready()  # before that the person may be asked about a warning
    async for line in _lines(sys.stdin.fileno()):
        await ready()
        await console.do(line)


async def _lines(source: int) -> AsyncIterator[str]:
    """The lines of a file descriptor. Not in a thread, which would wait for the next line also when
    the program shall end.
    """
    whole = stat.S_ISREG(os.fstat(source).st_mode) or (
        not os.isatty(source) and stat.S_ISCHR(os.fstat(source).st_mode)
    )
    rest = b""
    while True:
        if not whole:  # a file and /dev/null can be read at any time, and not be waited for
            await _readable(source)
        data = os.read(source, READ_BYTES)
        *lines, rest = (rest + data).split(b"\n")
        for line in [*lines, *([rest] if rest and not data else [])]:
            yield line.decode(errors="replace")
        if not data:
            return


async def _readable(source: int) -> None:
    loop = asyncio.get_running_loop()
    there: asyncio.Future[None] = loop.create_future()

    def come() -> None:
        if not there.done():
            there.set_result(None)

    loop.add_reader(source, come)
    try:
        await there
    finally:
        loop.remove_reader(source)
