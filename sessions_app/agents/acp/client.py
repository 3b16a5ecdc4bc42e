"""The bridge's side of an ACP conversation: what an agent tells it, asks of it, and has it do.

What the agent does itself, it asks for itself (``session/request_permission``). What it has the
bridge do, writing files and running commands, is held to the same rule here: it is done when a call
that names just this file or this command was approved and still runs; otherwise the bridge asks for
it, as a call of its own. Reading inside the allowed roots needs nobody: a paired device can do it
too. What the bridge failed at is said once: with the agent's own call, where there is one, else as
a call of the bridge's.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acp import RequestError, schema
from acp.meta import CLIENT_METHODS

from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.resources import ToolErrorDetails, ToolOutcome
from bridge_project.protocol.risk import risk_of
from sessions_app.agents.acp import errors, files
from sessions_app.agents.acp.modes import mode_in
from sessions_app.agents.acp.permissions import Asking, why_not
from sessions_app.agents.acp.terminal import NoTerminal, Terminal, Terminals
from sessions_app.agents.acp.tool_calls import Calls, Record, diff_of, text_of
from sessions_app.agents.driver import Chunk, Event, ToolFailed, ToolStarted, ToolSucceeded
from sessions_app.agents.process import shell
from sessions_app.agents.sanitize import clean
from sessions_app.approvals.tool_call import Call, describe

_SHELLS = frozenset(
    f"{where}{name}"
    for where in ("", "/bin/", "/usr/bin/")
    for name in ("sh", "bash", "zsh", "dash")
)
# with others, what is run is not only what the last argument says
_FLAGS = frozenset({"-c", "-lc"})


class Host:
    """The client that the ACP library calls. Handlers begin in the order of the messages and say
    what they have to say before they first wait.
    """

    def __init__(
        self, say: Callable[[Event], None], directory: Path, mode_is: Callable[[str], None]
    ) -> None:
        self._say = say
        self._mode_is = mode_is
        self._directory = directory
        self.asking = Asking(say)
        self.terminals = Terminals(directory)
        self.calls = Calls(directory, self.terminals.text)
        self.in_turn = False
        self.cost: dict[str, Any] | None = None
        self.heard = asyncio.Event()

    def end_turn(self, *, interrupted: bool) -> None:
        self.asking.withdraw()
        for event in self.calls.end_turn(interrupted=interrupted):
            self._say(event)
        self.in_turn = False

    # -- what it tells -----------------------------------------------------------------------------

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Outside a turn nothing is said: that is the history of a loaded session, or an echo."""
        self.heard.set()
        if (mode := mode_in(update)) is not None:
            self._mode_is(mode)
            return
        match update:
            case schema.UsageUpdate(cost=cost) if cost is not None:
                self.cost = {"amount": cost.amount, "currency": cost.currency}
            case _ if not self.in_turn:
                return
            case schema.AgentMessageChunk():
                if text := clean(text_of(update.content)):
                    self._say(Chunk(text))
            case schema.AgentThoughtChunk():
                self.calls.think(clean(text_of(update.content)))
            case schema.ToolCallStart() | schema.ToolCallProgress():
                for event in self.calls.updated(update):
                    self._say(event)
            case _:
                return  # echoed prompts, plans, commands: nothing that a device is told

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> schema.RequestPermissionResponse:
        """An option is chosen by its kind, never by its name; only this one call is ever
        allowed.
        """
        record = self.calls.asked(tool_call)
        times = Counter(option.option_id for option in options)
        # an id of two kinds says neither
        of_kind = {
            option.kind: option.option_id
            for option in reversed(options)
            if times[option.option_id] == 1
        }
        if "allow_once" not in of_kind:
            record.over = True
            self._say(ToolStarted(record.call))
            self._say(
                ToolFailed(
                    record.call,
                    "The agent offers no way to allow this call once, so it was rejected.",
                )
            )
            return _answer(of_kind, "reject_once", "reject_always")
        verdict = await self.asking.ask(record.call)
        if verdict is None:
            return _answer({})
        if verdict.decision == "approved":
            record.granted = True
            return _answer(of_kind, "allow_once")
        self._say(self.calls.refused(record, why_not(verdict)))
        return _answer(of_kind, "reject_once", "reject_always")

    # -- files -------------------------------------------------------------------------------------

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> schema.ReadTextFileResponse:
        try:
            return schema.ReadTextFileResponse(
                content=await files.read(path, self._directory, line, limit)
            )
        except (BridgeError, OSError) as error:  # TimeoutError is an OSError
            record = self.calls.reads_path(path)
            if record is not None:
                record.fault = errors.of_error(error)
            elif not errors.is_missing(error):
                # agents look whether a file is there before they write it: no tool has failed
                self._say(ToolStarted(call := _own_call("Read", {"file_path": path})))
                self._say(errors.failed(call, error))
            errors.refuse(error, path)

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> schema.WriteTextFileResponse:
        work = self.calls.grants_path(path) or await self._ask(
            "Write", {"file_path": path, "content": content}
        )
        try:
            before = await files.write(path, self._directory, content)
        except (BridgeError, OSError) as error:
            self._fail(work, error)
            errors.refuse(error, path)
        if isinstance(work, Call):
            change = schema.FileEditToolCallContent(
                type="diff", path=path, old_text=before, new_text=content
            )
            self._say(
                ToolSucceeded(
                    work, ToolOutcome(success=True, content=f"Wrote {path}", diff=diff_of([change]))
                )
            )
        return schema.WriteTextFileResponse()

    # -- commands ----------------------------------------------------------------------------------

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[Any] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> schema.CreateTerminalResponse:
        arguments, more = args or [], {variable.name: variable.value for variable in env or []}
        shown = shell.quoted(command, arguments)
        inner = (
            arguments[1]
            if command in _SHELLS and len(arguments) == 2 and arguments[0] in _FLAGS
            else shown
        )
        # nobody was shown the variables of an approved command
        work: Call | Record | None = None if more else self.calls.grants_command(shown, inner, cwd)
        if work is None:
            work = await self._ask(
                "Bash",
                {"command": shown}
                | ({"cwd": cwd} if cwd else {})
                | ({"env": more} if more else {}),
            )
        try:
            terminal_id = await self.terminals.create(
                command, arguments, cwd, more, output_byte_limit
            )
        except (BridgeError, NoTerminal, OSError, ValueError) as error:  # ValueError: a NUL in it
            self._fail(work, error)
            errors.refuse(error, shown)
        self.terminals.when_over(terminal_id, lambda terminal: self._ended(work, terminal))
        return schema.CreateTerminalResponse(terminal_id=terminal_id)

    async def terminal_output(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.TerminalOutputResponse:
        terminal = self._terminal(terminal_id)
        return schema.TerminalOutputResponse(
            output=terminal.text, truncated=terminal.output.cut, exit_status=terminal.status
        )

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.WaitForTerminalExitResponse:
        self._terminal(terminal_id)
        status = (await self.terminals.wait(terminal_id)).status
        return schema.WaitForTerminalExitResponse(
            exit_code=status.exit_code if status else None, signal=status.signal if status else None
        )

    async def kill_terminal(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.KillTerminalResponse:
        self._terminal(terminal_id)
        await self.terminals.kill(terminal_id)
        return schema.KillTerminalResponse()

    async def release_terminal(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.ReleaseTerminalResponse:
        self._terminal(terminal_id)
        await self.terminals.release(terminal_id)
        return schema.ReleaseTerminalResponse()

    def _fail(self, work: Call | Record, error: Exception) -> None:
        """What was begun for a call has failed: the bridge's own is over, the agent's is the
        agent's to close.
        """
        if isinstance(work, Call):
            self._say(errors.failed(work, error))
        else:
            work.fault = errors.of_error(error)

    def _ended(self, work: Call | Record, terminal: Terminal) -> None:
        if isinstance(work, Call):
            self._say(outcome_of(work, terminal))
        else:
            work.fault = errors.of_terminal(terminal)

    def _terminal(self, terminal_id: str) -> Terminal:
        try:
            return self.terminals.get(terminal_id)
        except NoTerminal as error:
            errors.refuse(error, terminal_id)

    async def _ask(self, tool: str, params: dict[str, Any]) -> Call:
        """Have a person approve what the agent wants the bridge to do. Raises RequestError when it
        is not approved.
        """
        call = _own_call(tool, params)
        verdict = await self.asking.ask(call)
        if verdict is None:
            raise RequestError(errors.REFUSED, "The turn was interrupted.")
        if verdict.decision != "approved":
            self._say(
                ToolSucceeded(call, ToolOutcome(success=False, content="", error=why_not(verdict)))
            )
            raise RequestError(errors.REFUSED, why_not(verdict))
        return call

    # -- what the bridge does not have -------------------------------------------------------------

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        raise RequestError.method_not_found(CLIENT_METHODS["elicitation_create"])

    async def complete_elicitation(self, elicitation_id: str, **_: Any) -> None:
        """Nothing was begun, so nothing is to be completed."""

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """An agent's own notifications mean nothing to the bridge."""

    def on_connect(self, conn: Any) -> None:
        """Nothing is to be done."""


def outcome_of(call: Call, terminal: Terminal) -> Event:
    """How a command ended, as the result of its call."""
    code = terminal.status.exit_code if terminal.status else None
    if code == 0 and not terminal.timed_out:
        return ToolSucceeded(
            call,
            ToolOutcome(
                success=True,
                content=terminal.text,
                metadata={"exit_code": 0},
                duration_ms=terminal.took_ms,
            ),
        )
    took_too_long = f"took longer than {terminal.seconds:g} seconds and was ended"
    message = f"The command {took_too_long if terminal.timed_out else shell.ending(terminal.group.returncode)}."
    details = ToolErrorDetails(
        exit_code=None if terminal.timed_out else code,
        stdout=terminal.text,
        execution_time_ms=terminal.took_ms,
    )
    fault = errors.of_terminal(terminal)
    return ToolFailed(call, message, fault.code, details, fault.retries)


def _own_call(tool: str, params: dict[str, Any]) -> Call:
    """A call of the bridge's own, for what the agent has it do."""
    return Call(
        f"bridge-{uuid.uuid4()}",
        tool,
        params,
        describe(tool, params),
        risk_of(tool, params),
        "The agent has the bridge do this.",
    )


def _answer(of_kind: dict[str, str], *kinds: str) -> schema.RequestPermissionResponse:
    """The first option of the kinds that there is; without one the agent is told that nobody
    decided.
    """
    for kind in kinds:
        if kind in of_kind:
            return schema.RequestPermissionResponse(
                outcome=schema.AllowedOutcome(outcome="selected", option_id=of_kind[kind])
            )
    return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
