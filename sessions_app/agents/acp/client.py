"""Serve an ACP agent: take its reports, and do what it asks of the bridge.

An agent asks for permission itself for what it does itself (``permissions.py``). It can also have
the bridge write files and run commands. The bridge does this without asking when a call that names
just this file or command was approved and still runs; otherwise it asks, as a call of its own.
Reading inside the allowed roots needs no approval: a paired device can do it too. A failure of the
bridge is reported once: with the agent's own call where there is one, else as a call of the
bridge's.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from acp import RequestError, schema

from bridge_project.kernel.errors import BridgeError
from sessions_app.agents import events
from sessions_app.agents.acp import errors, files
from sessions_app.agents.acp.content import HistoryCollector, text_of
from sessions_app.agents.acp.modes import mode_in
from sessions_app.agents.acp.permissions import Permissions, reason_of
from sessions_app.agents.acp.record import Record, own_record
from sessions_app.agents.acp.terminal import Terminal, Terminals
from sessions_app.agents.acp.tool_calls import ToolCalls
from sessions_app.agents.diffs import Change, diff_of_texts
from sessions_app.agents.driver import PendingApprovals
from sessions_app.agents.process import shell
from sessions_app.agents.sanitize import clean
from sessions_app.approvals.tool_result import INTERRUPTED


class AcpClient:
    """Handle what one session's ACP agent reports and requests.

    The ACP library calls this. Handlers begin in the order of the messages, and report before they
    first wait.
    """

    def __init__(
        self,
        queue: events.EventQueue,
        approvals: PendingApprovals,
        directory: Path,
        mode_reported: Callable[[str], None],
    ) -> None:
        self._events = queue
        self._directory = directory
        self._mode_reported = mode_reported
        self.terminals = Terminals(directory)
        self.calls = ToolCalls(queue, directory, self.terminals.text)
        self.permissions = Permissions(approvals, self.calls, queue)
        self.in_turn = False
        self.collector: HistoryCollector | None = None  # from loading to the first prompt
        self.cost: dict[str, Any] = {}  # the session's, once the agent has told it
        self.updated = asyncio.Event()

    def begin_turn(self) -> None:
        """Begin a turn; calls that are still open belong to it."""
        self.collector, self.calls.interrupted, self.in_turn = None, False, True

    def end_turn(self) -> None:
        """Withdraw the requests and close the calls that the agent left open."""
        self.permissions.withdraw()
        self.calls.end_turn()
        self.in_turn = False

    def interrupt(self) -> None:
        """Withdraw all questions; outside a turn close the calls too."""
        self.calls.interrupt()
        self.permissions.withdraw()
        if not self.in_turn:
            self.end_turn()
            self.calls.interrupted = False

    # -- what the agent reports --------------------------------------------------------------------

    async def session_update(self, update: Any, **_: Any) -> None:
        """Report an update; outside a turn only one of a call that was asked about.

        Another one is history then, or an echoed prompt.
        """
        self.updated.set()
        if (mode := mode_in(update)) is not None:
            self._mode_reported(mode)
            return
        match update:
            case schema.UsageUpdate(cost=cost) if cost is not None:
                self.cost = {"cost": {"amount": cost.amount, "currency": cost.currency}}
            case schema.ToolCallProgress() if self.calls.has(update.tool_call_id):
                self.calls.update(update)
            case _ if not self.in_turn:
                if self.collector is not None:
                    self.collector.take(update)
            case schema.AgentMessageChunk():
                if text := clean(text_of(update.content)):
                    self._events.put(events.Chunk(text))
            case schema.AgentThoughtChunk():
                self._events.note_activity()
                self.calls.think(clean(text_of(update.content)))
            case schema.ToolCallStart() | schema.ToolCallProgress():
                self.calls.update(update)
            case _:
                return  # echoed prompts, plans, commands: devices are told none of these

    async def request_permission(
        self, tool_call: Any, options: list[Any], **_: Any
    ) -> schema.RequestPermissionResponse:
        return await self.permissions.answer(tool_call, options)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ignore an agent's own notifications."""

    # -- files -------------------------------------------------------------------------------------

    async def read_text_file(
        self, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> schema.ReadTextFileResponse:
        try:
            text = await files.read(path, self._directory, line, limit)
        except (BridgeError, OSError) as error:  # TimeoutError is an OSError
            # Agents check whether a file exists before they write it: no tool has failed then.
            if not errors.is_missing(error):
                call = own_record("Read", {"file_path": path}).call
                self._events.put(events.ToolStarted(call))
                self._events.put(events.ToolFailed(call, errors.failure_of(error)))
            errors.refuse(error, path)
        return schema.ReadTextFileResponse(content=text)

    async def write_text_file(
        self, path: str, content: str, **_: Any
    ) -> schema.WriteTextFileResponse:
        granted, old = self.calls.granted(), ""  # now: the call may be over once the file is read
        with suppress(BridgeError, OSError):  # then it is written anew, or cannot be
            old = await files.read(path, self._directory)
        change = (real := self.calls.real(path), old, content)
        covering = (one for one in granted if one.grant and one.grant.covers_text(*change))
        record = next(covering, None)
        if record is None:
            where = self._shown(path, real)
            record = await self._ask("Write", {"file_path": where, "content": content})
        with self._working(record, path):
            before = await files.write(path, self._directory, content, real)
        record.wrote.append(change := Change(path, before or "", content))
        if record.own:
            diff = diff_of_texts([change])
            self._events.put(events.ToolSucceeded(record.call, f"Wrote {path}", diff))
        return schema.WriteTextFileResponse()

    # -- commands ----------------------------------------------------------------------------------

    async def create_terminal(
        self,
        command: str,
        args: list[str] | None = None,
        env: list[Any] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> schema.CreateTerminalResponse:
        arguments, more = args or [], {variable.name: variable.value for variable in env or []}
        shown, inner = shell.quoted(command, arguments), shell.script(command, arguments)
        real = self.calls.real(cwd or ".")
        record = self.calls.granting_command(shown, inner, real, more)
        if record is None:
            place = ({"cwd": cwd} if cwd else {}) | ({"env": more} if more else {})
            record = await self._ask("Bash", {"command": shown} | place)
        with self._working(record, shown):
            terminal_id, terminal = await self.terminals.create(
                command, arguments, cwd, real, more, output_byte_limit
            )
        terminal.over.add_done_callback(lambda _: self._command_ended(record, terminal))
        return schema.CreateTerminalResponse(terminal_id=terminal_id)

    async def terminal_output(self, terminal_id: str, **_: Any) -> schema.TerminalOutputResponse:
        terminal = self.terminals.get(terminal_id)
        return schema.TerminalOutputResponse(
            output=terminal.text, truncated=terminal.out.cut, exit_status=terminal.status
        )

    async def wait_for_terminal_exit(
        self, terminal_id: str, **_: Any
    ) -> schema.WaitForTerminalExitResponse:
        terminal = self.terminals.get(terminal_id)
        await asyncio.wait({terminal.over})
        status = terminal.status or schema.TerminalExitStatus()
        return schema.WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    async def kill_terminal(self, terminal_id: str, **_: Any) -> schema.KillTerminalResponse:
        await self.terminals.get(terminal_id).kill()
        return schema.KillTerminalResponse()

    async def release_terminal(self, terminal_id: str, **_: Any) -> schema.ReleaseTerminalResponse:
        await self.terminals.release(terminal_id)
        return schema.ReleaseTerminalResponse()

    # -- approvals and failures --------------------------------------------------------------------

    def _shown(self, path: str, real: str) -> str:
        """Return a path as the agent wrote it, but where it leads if a link is on the way."""
        as_written = (os.path.normpath(self._directory / path), f"{path}\0")  # or not known
        return path if real in as_written else real

    async def _ask(self, tool: str, params: dict[str, Any]) -> Record:
        """Ask a person to approve a call. Raises RequestError when they do not."""
        if self.calls.interrupted:
            raise RequestError(errors.REFUSED, INTERRUPTED)
        record = own_record(tool, params)
        with self.calls.waiting(record):
            verdict = await self.permissions.ask(record)
        if verdict is None or verdict.decision != "approved":
            why = INTERRUPTED if verdict is None else reason_of(verdict)
            self.calls.stop(record, why)
            raise RequestError(errors.REFUSED, why)
        return record

    @contextmanager
    def _working(self, record: Record, what: str) -> Iterator[None]:
        """Report a failure of what is done for a call, and refuse it to the agent."""
        try:
            yield
        except (BridgeError, OSError, ValueError) as error:
            record.failure = errors.failure_of(error)
            if record.own:  # the agent ends its own calls
                self._events.put(events.ToolFailed(record.call, record.failure))
            errors.refuse(error, what)

    def _command_ended(self, record: Record, terminal: Terminal) -> None:
        record.failure = terminal.failure
        if record.own and terminal.interrupted:
            self._events.put(events.ToolStopped(record.call, INTERRUPTED))
        elif record.own:
            self._events.put(terminal.outcome(record.call))
