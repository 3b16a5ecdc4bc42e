"""Commands that an ACP agent has the bridge run, with the spec's time limit and bounded output
(SPEC Limits).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from acp import schema

from bridge_project.kernel import limits
from bridge_project.kernel.child_process import Output
from bridge_project.kernel.path_jail import default_jail
from sessions_app.agents.process import groups
from sessions_app.agents.process.shell import finished

_SHELL = "/bin/sh"


class NoTerminal(LookupError):
    """The agent names a terminal that there is not, or wants one too many; the text is for the
    agent.
    """


@dataclass(slots=True)
class Terminal:
    """A command that runs or has run."""

    group: groups.Group
    output: Output
    seconds: float
    work: asyncio.Task[None] | None = None
    timed_out: bool = False
    unwanted: bool = False  # ended because the agent, or nobody any more, wanted it
    began: float = field(default_factory=time.monotonic)
    took_ms: int | None = None

    @property
    def text(self) -> str:
        note = f"\n[ended: it took longer than {self.seconds:g} seconds]" if self.timed_out else ""
        return self.output.text + note

    @property
    def status(self) -> schema.TerminalExitStatus | None:
        code = self.group.returncode
        if code is None:
            return None
        if code < 0:
            return schema.TerminalExitStatus(
                signal=signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
            )
        return schema.TerminalExitStatus(exit_code=code)

    async def run(self) -> None:
        """Until the command has ended, or is ended with all it started for it took too long."""
        in_time = await finished(
            self.group,
            self.seconds,
            self.output.read(self.group.stdout),
            self.output.read(self.group.stderr),
        )
        self.timed_out = not in_time
        self.took_ms = round((time.monotonic() - self.began) * 1000)


class Terminals:
    """The terminals of one session."""

    def __init__(
        self, directory: Path, *, seconds: float = limits.TOOL_TIMEOUT_BASH_SECONDS
    ) -> None:
        self._directory = directory
        self._seconds = seconds
        self._terminals: dict[str, Terminal] = {}
        # those of released terminals too, whose commands may have left something running
        self._groups = groups.Groups()

    async def create(
        self,
        command: str,
        arguments: Sequence[str],
        cwd: str | None,
        more: Mapping[str, str],
        limit: int | None,
    ) -> str:
        """Start a command and return its terminal's id. One without arguments may be a line for the
        shell.

        Raises BridgeError for a directory outside the roots (D12), OSError when it cannot be
        started, NoTerminal when there are too many.
        """
        if len(self._terminals) >= limits.ACP_TERMINALS:
            raise NoTerminal(f"{limits.ACP_TERMINALS} terminals are open; release one first")
        with default_jail().open_dir(
            cwd or str(self._directory), base=str(self._directory)
        ) as opened:
            directory = Path(opened.path)
        line = (
            [command, *arguments]
            if arguments or (os.sep in command and os.access(command, os.X_OK))
            else [_SHELL, "-c", command]
        )
        group = await groups.start(
            line,
            directory,
            more={
                name: value
                for name, value in more.items()
                if name and "=" not in name and "\0" not in name + value
            },
        )
        output = Output(
            min(limit if limit is not None else limits.TOOL_OUTPUT_BYTES, limits.TOOL_OUTPUT_BYTES),
            tail=True,
        )
        terminal = Terminal(group, output, self._seconds)
        self._groups.add(group)
        terminal.work = asyncio.create_task(terminal.run())
        terminal_id = f"terminal-{uuid.uuid4()}"
        self._terminals[terminal_id] = terminal
        return terminal_id

    def get(self, terminal_id: str) -> Terminal:
        if (found := self._terminals.get(terminal_id)) is None:
            raise NoTerminal(f"there is no terminal {terminal_id[:100]}")
        return found

    def when_over(self, terminal_id: str, tell: Callable[[Terminal], None]) -> None:
        """Call ``tell`` once the command has ended and all that it printed is read."""
        terminal = self.get(terminal_id)
        assert terminal.work is not None
        terminal.work.add_done_callback(lambda _: tell(terminal))

    def text(self, terminal_id: str) -> str:
        """What it has printed, empty for one that there is not (any more)."""
        found = self._terminals.get(terminal_id)
        return found.text if found else ""

    async def wait(self, terminal_id: str) -> Terminal:
        terminal = self.get(terminal_id)
        if terminal.work is not None:
            await asyncio.wait({terminal.work})
        return terminal

    async def kill(self, terminal_id: str) -> None:
        terminal = self.get(terminal_id)
        terminal.unwanted = terminal.group.returncode is None
        await groups.end_group(terminal.group)

    async def release(self, terminal_id: str) -> None:
        """Forget a terminal; a command that still runs is ended, what one has left running goes
        on.
        """
        terminal = self.get(terminal_id)
        if not terminal.group.exited.is_set():
            await self._end(terminal)
        elif terminal.work is not None:
            await asyncio.wait({terminal.work})
        self._terminals.pop(terminal_id, None)

    async def end_background(self) -> None:
        """End every command, and what commands have left running; their terminals can still be
        asked.
        """
        for terminal in self._terminals.values():
            terminal.unwanted = terminal.unwanted or terminal.group.returncode is None
        await self._groups.end()

    async def close(self) -> None:
        """End all of them at once: what will not end when told takes as long as one."""
        terminals = list(self._terminals.values())
        self._terminals.clear()
        await asyncio.gather(*map(self._end, terminals))
        await self._groups.end()

    async def _end(self, terminal: Terminal) -> None:
        terminal.unwanted = terminal.unwanted or terminal.group.returncode is None
        await groups.end_group(terminal.group)
        if terminal.work is not None:
            await asyncio.wait({terminal.work})
