"""Assemble an ACP agent's tool calls from updates in any order.

Some agents announce a call, ask, and report; some announce it in several updates; gemini and qwen
ask without announcing and say nothing after a refusal. So a record is opened by whatever comes
first, its parts are merged by ``toolCallId``, and what is open at the turn's end is closed then.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp import schema

from bridge_project.protocol.agent_text import for_person
from sessions_app.agents.acp.content import (
    NAME_MAX_CHARS,
    details_of,
    name_of,
    parameters_of,
    readable,
    reason_of,
    text_of,
)
from sessions_app.agents.acp.errors import Fault
from sessions_app.agents.diffs import Change, diff_of_texts
from sessions_app.agents.driver import make_call
from sessions_app.agents.events import Event, ToolFailed, ToolStarted, ToolStopped, ToolSucceeded
from sessions_app.approvals.tool_call import Call, usable_id
from sessions_app.approvals.tool_result import INTERRUPTED, TOOL_FAILED

Update = schema.ToolCallStart | schema.ToolCallProgress | schema.ToolCallUpdate

# ACP has kinds where other agents have names of tools; these are the names that the risk rules and
# the phones know.
TOOL_OF_KIND = {
    "read": "Read",
    "edit": "Edit",
    "delete": "Delete",
    "move": "Move",
    "search": "Search",
    "execute": "Bash",
    "think": "Think",
    "fetch": "WebFetch",
    "switch_mode": "SwitchMode",
}
# that a person allowed one is no leave to write a file
_CHANGES_NOTHING = frozenset({"read", "search", "think", "fetch", "execute", "switch_mode"})
_RUNS = ("execute", "read", "search")  # what a command may be called
_AS_RISKY_AS = {"Search": "Grep", "Think": "TodoWrite"}
_REASONING_MAX_CHARS = 2000
_NO_RESULT = "The agent reported no result of this call."


@dataclass(slots=True)
class Record:
    """Hold what is known of one call."""

    key: str
    title: str = ""
    kind: str = ""
    name: str = ""
    status: str = "pending"
    raw_input: Any = None
    raw_output: Any = None
    content: list[Any] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    reasoning: str = ""
    announced: Call | None = None  # as the bridge knows it
    # the paths that the person saw who was asked; what the agent says later widens no approval
    shown: tuple[str, ...] = ()
    granted: bool = False  # a person approved it
    over: bool = False  # it has its result
    # how the bridge failed at what it did for the call, which says more than the agent's `failed`
    fault: Fault = field(default_factory=Fault)

    def merge(self, update: Update) -> None:
        """Merge an update; what it leaves out or empty stays."""
        content, given = update.content or [], update.raw_input
        diffs = [part for part in content if isinstance(part, schema.FileEditToolCallContent)]
        changes = [Change(diff.path, diff.old_text or "", diff.new_text) for diff in diffs]
        self.title = update.title or self.title
        self.kind = update.kind or self.kind
        self.name = name_of(update.field_meta) or self.name
        self.status = update.status or self.status
        if given not in (None, {}, ""):
            self.raw_input = self._in_its_directory(given)
        self.raw_output = self.raw_output if update.raw_output is None else update.raw_output
        self.changes = changes or self.changes
        self.content = content or self.content
        self.paths = [location.path for location in update.locations or []] or self.paths

    def _in_its_directory(self, given: Any) -> Any:
        """Add the directory that was reported before to a command's parameters."""
        known = self.raw_input.get("cwd") if isinstance(self.raw_input, dict) else None
        runs_there = self.kind == "execute" and isinstance(given, dict) and known is not None
        return given | {"cwd": given.get("cwd", known)} if runs_there else given

    @property
    def is_known(self) -> bool:
        """Tell whether the agent has said what the call does, and not only where."""
        if isinstance(self.raw_input, dict):
            return bool(self.raw_input.keys() - {"cwd"})
        return self.raw_input is not None or self.status == "in_progress"

    @property
    def call(self) -> Call:
        """Return the call as first announced, whatever it is named later."""
        return self.announced or self.describe()

    def describe(self) -> Call:
        """Return the call as it is known by now."""
        params = self._params()
        named = len(self.title) <= NAME_MAX_CHARS and self.title.isprintable()
        tool = TOOL_OF_KIND.get(self.kind) or self.name or (named and self.title) or "Tool"
        # one word is a tool's name or a path, which the parameters say better
        title = self.title if " " in self.title or not params else ""
        if isinstance(params.get("command"), str) and self.kind in _RUNS:
            tool, title = "Bash", ""  # codex calls one that reads "Read a.txt"
        reasons = (self.reasoning, reason_of(self.raw_input))
        return make_call(
            self.key,
            tool,
            params,
            reasoning=". ".join(filter(None, reasons)) or None,
            description=title,
            risk_tool=_AS_RISKY_AS.get(tool, tool),
        )

    def _params(self) -> dict[str, Any]:
        """Return the agent's own parameters, or what can be told from what it shows."""
        if isinstance(self.raw_input, dict):
            return parameters_of(self.raw_input)
        if self.raw_input is not None:
            return {"input": self.raw_input}
        if self.changes:
            first, *others = [
                {"file_path": change.path, "content": change.new} for change in self.changes
            ]
            return {**first, "more": others} if others else first
        if self.kind == "execute" and self.title:
            return {"command": self.title}
        if len(self.paths) == 1:
            return {"file_path": self.paths[0]}
        return {"paths": self.paths} if self.paths else {}

    def named_paths(self) -> Iterator[str]:
        """Yield every path that the call names."""
        yield from self.paths
        yield from (change.path for change in self.changes)
        if isinstance(self.raw_input, dict):
            yield from (
                value for value in self.raw_input.values() if value and isinstance(value, str)
            )


class ToolCalls:
    """Track one session's calls; ``terminal_text`` returns a terminal's output."""

    def __init__(self, directory: Path, terminal_text: Callable[[str], str]) -> None:
        self._directory = directory
        self._terminal_text = terminal_text
        self._records: dict[str, Record] = {}
        self._thoughts = ""

    # -- what the agent reports --------------------------------------------------------------------

    def think(self, text: str) -> None:
        """Keep a thought: those before a call are its reasoning."""
        self._thoughts = (self._thoughts + text)[-_REASONING_MAX_CHARS:]

    def update(self, update: schema.ToolCallStart | schema.ToolCallProgress) -> list[Event]:
        """Apply an agent's report, and return the events that follow."""
        record = self._record(update)
        if record.over:
            return []
        record.merge(update)
        if record.status in ("completed", "failed"):
            return [*self._announce(record), self._finish(record)]
        return self._announce(record) if record.is_known else []

    def ask(self, update: Update) -> Record:
        """Return the record of a call that needs permission, announced or not."""
        record = self._record(update)
        if record.over:  # the agent asks again for the same call
            record = self._open(update.tool_call_id)
        record.merge(update)
        record.content = []  # what was shown to the person who decides is no result of the call
        # what a person is asked is what it is now, whatever was announced
        record.announced = record.describe()
        harmless = record.kind in _CHANGES_NOTHING
        record.shown = () if harmless else tuple(record.named_paths())
        record.granted = False
        return record

    def stop(self, record: Record, why: str) -> ToolStopped:
        """Close the record of a call that will not run; ignore its later updates."""
        record.over = True
        return ToolStopped(record.call, why)

    def end_turn(self, *, interrupted: bool) -> list[Event]:
        """Close what the agent left open."""
        why = INTERRUPTED if interrupted else _NO_RESULT
        events: list[Event] = []
        for record in self._records.values():
            if not record.over:
                events += [*self._announce(record), self.stop(record, why)]
        self._records.clear()
        self._thoughts = ""
        return events

    # -- what an approval covers -------------------------------------------------------------------

    def granting_path(self, path: str) -> Record | None:
        """Return the approved, running call that names this path."""
        wanted = self._real(path)
        for record in self._granted():
            if wanted in map(self._real, record.shown):
                return record
        return None

    def reading_path(self, path: str) -> Record | None:
        """Return the open call that names this path, approved or not."""
        wanted = self._real(path)
        for record in self._records.values():
            if not record.over and wanted in map(self._real, record.named_paths()):
                return record
        return None

    def granting_command(self, shown: str, inner: str, cwd: str | None) -> Record | None:
        """Return the call that approved exactly this command, there, once.

        The command is meant by itself (``shown``) or as what a shell is given (``inner``).
        """
        for record in self._granted():
            params = record.call.params
            if params.get("command") in (shown, inner) and (
                cwd is None or self._is_shown(cwd, params)
            ):
                record.granted = False
                return record
        return None

    def _is_shown(self, cwd: str, params: Mapping[str, Any]) -> bool:
        """Tell whether a person knew where it runs: in the session's directory, or in one shown."""
        shown = [".", *(value for value in params.values() if isinstance(value, str))]
        return self._real(cwd) in map(self._real, shown)

    def _granted(self) -> Iterator[Record]:
        return (record for record in self._records.values() if record.granted and not record.over)

    def _real(self, path: str) -> str:
        return os.path.realpath(self._directory / path) if "\0" not in path else path

    # -- records and events ------------------------------------------------------------------------

    def _record(self, update: Update) -> Record:
        record = self._records.get(update.tool_call_id)
        if record is None or (record.over and isinstance(update, schema.ToolCallStart)):
            record = self._open(update.tool_call_id)
        return record

    def _open(self, call_id: str) -> Record:
        thoughts, self._thoughts = self._thoughts.strip(), ""
        record = Record(usable_id(call_id) or f"acp-{uuid.uuid4()}", reasoning=thoughts)
        self._records[call_id] = record
        return record

    def _announce(self, record: Record) -> list[Event]:
        if record.announced is not None:
            return []
        record.announced = record.call
        return [ToolStarted(record.announced)]

    def _finish(self, record: Record) -> Event:
        record.over = True
        text, details = self._text(record), details_of(record.raw_output)
        exited = record.kind == "execute" and details.exit_code  # opencode calls it completed
        if record.status == "failed" or exited:
            code, retries = record.fault
            why = f"Exit code {details.exit_code}" if details.exit_code else TOOL_FAILED
            return ToolFailed(record.call, text or why, code, details, retries)
        return ToolSucceeded(record.call, text, diff_of_texts(record.changes))

    def _text(self, record: Record) -> str:
        parts = []
        for part in record.content:
            if isinstance(part, schema.ContentToolCallContent):
                parts.append(text_of(part.content))
            elif isinstance(part, schema.TerminalToolCallContent):
                parts.append(self._terminal_text(part.terminal_id))
        text = "\n".join(part for part in parts if part)
        text = text or ("" if record.changes else readable(record.raw_output))
        return for_person(text)
