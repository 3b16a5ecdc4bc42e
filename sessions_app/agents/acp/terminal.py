"""Run an ACP agent's commands with a deadline and bounded output (SPEC Limits)."""

import asyncio
import signal
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from acp import RequestError, schema

from bridge_project.kernel import limits
from bridge_project.kernel.child_process import Output
from bridge_project.kernel.path_jail import default_jail
from sessions_app.agents.acp.errors import REFUSED
from sessions_app.agents.acp.files import check_place
from sessions_app.agents.process import groups, shell


class Terminal(shell.Command):
    """Hold a command, and what it has printed as its agent reads it."""

    interrupted = False  # ended by session_interrupt

    @property
    def text(self) -> str:
        late = f"\n[ended: it took longer than {limits.TOOL_TIMEOUT_BASH_SECONDS:g} seconds]"
        return self.out.text + (late if self.timed_out else "")

    @property
    def status(self) -> schema.TerminalExitStatus | None:
        """Return how it ended; None while it runs."""
        code = self.group.returncode
        if code is None or code >= 0:
            return None if code is None else schema.TerminalExitStatus(exit_code=code)
        known = -code in list(signal.Signals)
        return schema.TerminalExitStatus(signal=signal.Signals(-code).name if known else str(-code))


class Terminals:
    """Hold the terminals of one session."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._terminals: dict[str, Terminal] = {}
        # the last that were released: calls of which they are a part still show what they printed
        self._released: dict[str, Terminal] = {}
        # those of released terminals too, whose commands may have left something running
        self._groups = groups.Groups()

    async def create(
        self,
        command: str,
        arguments: Sequence[str],
        cwd: str | None,
        real: str,
        more: Mapping[str, str],
        limit: int | None,
    ) -> tuple[str, Terminal]:
        """Start a command; one without arguments is a line for the shell, as it was shown.

        Raises BridgeError for a directory outside the roots (D12), or that is not ``real`` any
        more, OSError, ValueError when there are too many, or when there is a NUL or a name that is
        none in it.
        """
        if len(self._terminals) >= limits.ACP_TERMINALS:
            raise ValueError(f"{limits.ACP_TERMINALS} terminals are open; release one first")
        if "\0" in real:
            raise ValueError("its directory has a NUL in it, or its disk does not answer")
        here = str(self._directory)
        with default_jail().open_dir(cwd or here, base=here) as opened:
            check_place(opened.path, real)
            directory = Path(opened.path)
        line = [command, *arguments] if arguments else ["/bin/sh", "-c", command]
        group = await groups.start(line, directory, more=more)
        self._groups.add(group)
        most = limits.TOOL_OUTPUT_BYTES
        output = Output(most if limit is None else min(limit, most), tail=True)
        terminal_id, terminal = f"terminal-{uuid.uuid4()}", Terminal(group, output)
        self._terminals[terminal_id] = terminal
        return terminal_id, terminal

    def get(self, terminal_id: str) -> Terminal:
        """Return a terminal. Raises RequestError, which tells the agent."""
        if (found := self._terminals.get(terminal_id)) is None:
            raise RequestError(REFUSED, f"there is no terminal {terminal_id[:100]}")
        return found

    def text(self, terminal_id: str) -> str:
        """Return a terminal's output, empty when there is none of that id."""
        found = self._terminals.get(terminal_id) or self._released.get(terminal_id)
        return found.text if found else ""

    async def release(self, terminal_id: str) -> None:
        """Forget a terminal and end its command, but not what that left running."""
        terminal = self.get(terminal_id)
        if not terminal.group.exited.is_set():
            await terminal.kill()
        await asyncio.wait({terminal.over})
        self._terminals.pop(terminal_id, None)
        self._released[terminal_id] = terminal
        if len(self._released) > limits.ACP_TERMINALS:
            del self._released[next(iter(self._released))]

    async def end_background(self) -> None:
        """End all commands and what they left running; keep the terminals."""
        for terminal in self._terminals.values():
            terminal.interrupted |= terminal.group.returncode is None
            terminal.mark_unwanted()
        await self._groups.end()

    async def close(self) -> None:
        """End all terminals at once, not one after the other."""
        terminals = list(self._terminals.values())
        self._terminals.clear()
        await asyncio.gather(*(terminal.kill() for terminal in terminals))
        await asyncio.gather(*(terminal.over for terminal in terminals), return_exceptions=True)
        await self._groups.end()
