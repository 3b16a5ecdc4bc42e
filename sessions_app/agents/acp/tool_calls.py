"""The tool calls of an ACP agent: pieces that come in any order, or not at all, put together into
neutral events.

Agents differ. Some announce a call, ask, and report; some announce it in several updates; gemini
and qwen ask without announcing and say nothing after a refusal. So a record is opened by whatever
comes first, its parts are merged by ``toolCallId``, and at the turn's end it is closed for those
who forgot.
"""

from __future__ import annotations

import difflib
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp import schema

from bridge_project.kernel import limits
from bridge_project.protocol.resources import ToolErrorDetails, ToolOutcome
from bridge_project.protocol.risk import risk_of
from sessions_app.agents.acp.errors import UNKNOWN, Fault
from sessions_app.agents.driver import Event, ToolFailed, ToolStarted, ToolSucceeded
from sessions_app.approvals.tool_call import Call, describe, usable_id

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
_AS_RISKY_AS = {"Search": "Grep", "Think": "TodoWrite"}
_NAME_MAX_CHARS = 64
_DIFF_MAX_CHARS = 100_000
# of equal lines, by which comparing takes time: about 0.3 s, while everybody waits
_DIFF_MAX_PAIRS = 100_000
_REASONING_MAX_CHARS = 2000


@dataclass(slots=True)
class Record:
    """What is known of one call. ``said``: as what the bridge knows it; ``granted``: a person
    approved it; ``over``: it has its result.

    ``shown``: the paths that the person saw who was asked; what the agent says of the call later
    widens no approval. ``fault``: how the bridge failed at what it did for this call, which says
    more than the agent's own ``failed``.
    """

    key: str
    title: str = ""
    kind: str = ""
    name: str = ""
    status: str = "pending"
    raw_input: Any = None
    raw_output: Any = None
    content: list[Any] = field(default_factory=list)
    diffs: list[schema.FileEditToolCallContent] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    reasoning: str = ""
    said: Call | None = None
    shown: tuple[str, ...] = ()
    granted: bool = False
    over: bool = False
    fault: Fault = UNKNOWN

    def merge(self, update: Update) -> None:
        """What an update leaves out, or leaves empty, stays as it was."""
        self.title = update.title or self.title
        self.kind = update.kind or self.kind
        self.name = _name_of(update.field_meta) or self.name
        self.status = update.status or self.status
        self.raw_input = (
            update.raw_input if update.raw_input not in (None, {}, "") else self.raw_input
        )
        self.raw_output = update.raw_output if update.raw_output is not None else self.raw_output
        content = update.content or []
        self.diffs = [
            part for part in content if isinstance(part, schema.FileEditToolCallContent)
        ] or self.diffs
        self.content = content or self.content
        self.paths = [location.path for location in update.locations or []] or self.paths

    @property
    def tool(self) -> str:
        title = (
            self.title if len(self.title) <= _NAME_MAX_CHARS and self.title.isprintable() else ""
        )
        return TOOL_OF_KIND.get(self.kind) or self.name or title or "Tool"

    @property
    def params(self) -> dict[str, Any]:
        """The agent's own, or what can be told from what it shows."""
        if isinstance(self.raw_input, dict):
            return self.raw_input
        if self.raw_input is not None:
            return {"input": self.raw_input}
        if self.diffs:
            first, *others = [
                {"file_path": diff.path, "content": diff.new_text} for diff in self.diffs
            ]
            return {**first, "more": others} if others else first
        if self.kind == "execute" and self.title:
            return {"command": self.title}
        return (
            {"file_path": self.paths[0]}
            if len(self.paths) == 1
            else {"paths": self.paths}
            if self.paths
            else {}
        )

    @property
    def call(self) -> Call:
        """As it was first said, however the agent calls it later."""
        return self.said or self.described()

    def described(self) -> Call:
        """As it is known by now."""
        params = self.params
        risk = risk_of(_AS_RISKY_AS.get(self.tool, self.tool), params)
        return Call(
            self.key,
            self.tool,
            params,
            describe(self.tool, params, self.title),
            risk,
            self.reasoning or None,
        )

    def named_paths(self) -> Iterator[str]:
        """Every path that it names."""
        yield from self.paths
        yield from (diff.path for diff in self.diffs)
        if isinstance(self.raw_input, dict):
            yield from (
                value for value in self.raw_input.values() if isinstance(value, str) and value
            )


class Calls:
    """The calls of one session. ``terminal`` gives what a terminal has printed, by its id."""

    def __init__(self, directory: Path, terminal: Any) -> None:
        self._directory = directory
        self._terminal = terminal
        self._records: dict[str, Record] = {}
        self._thoughts = ""

    def think(self, text: str) -> None:
        """What the agent thinks before a call is its reasoning."""
        self._thoughts = (self._thoughts + text)[-_REASONING_MAX_CHARS:]

    def updated(self, update: Update) -> list[Event]:
        """What is to be said after an update of a call."""
        record = self._record(update)
        if record.over:
            return []
        record.merge(update)
        if record.status in ("completed", "failed"):
            return self._close(record)
        # An announcement without parameters is mostly followed by them.
        return (
            self._announce(record)
            if record.raw_input is not None or record.status == "in_progress"
            else []
        )

    def asked(self, update: Update) -> Record:
        """A permission is asked: the call is known from here on, whether it had been announced or
        not.
        """
        record = self._record(update)
        if record.over:  # the agent asks again for the same call
            record = self._records[update.tool_call_id] = self._new(update.tool_call_id)
        record.merge(update)
        record.content = []  # what was shown to the person who decides is no result of the call
        # what a person is asked is what it is now, whatever was announced
        record.said = record.described()
        record.shown, record.granted = (
            () if record.kind in _CHANGES_NOTHING else tuple(record.named_paths()),
            False,
        )
        return record

    def refused(self, record: Record, why: str) -> ToolSucceeded:
        """The record of a call that will not be run; what the agent still says of it is passed
        over.
        """
        record.over = True
        return ToolSucceeded(record.call, ToolOutcome(success=False, content="", error=why))

    def end_turn(self, *, interrupted: bool) -> list[Event]:
        """Close what the agent left open."""
        why = (
            "The call was interrupted."
            if interrupted
            else "The agent reported no result of this call."
        )
        events: list[Event] = []
        for record in self._records.values():
            if not record.over:
                events += self._announce(record)
                events.append(self.refused(record, why))
        self._records.clear()
        self._thoughts = ""
        return events

    # -- what an approval covers -------------------------------------------------------------------

    def grants_path(self, path: str) -> Record | None:
        """The call that names this path, was approved and still runs."""
        wanted = self._real(path)
        return next(
            (
                record
                for record in self._granted()
                if any(wanted == self._real(named) for named in record.shown)
            ),
            None,
        )

    def reads_path(self, path: str) -> Record | None:
        """The call that names this path and is not over; nobody need have approved it."""
        wanted, running = (
            self._real(path),
            (record for record in self._records.values() if not record.over),
        )
        return next(
            (
                record
                for record in running
                if any(wanted == self._real(named) for named in record.named_paths())
            ),
            None,
        )

    def grants_command(self, shown: str, inner: str, cwd: str | None) -> Record | None:
        """The call by which exactly this command was approved, by itself or as what a shell is
        given, and for there; one approval is good for one run.
        """
        for record in self._granted():
            params = record.call.params
            if params.get("command") in (shown, inner) and (
                cwd is None or self._is_told(cwd, params)
            ):
                record.granted = False
                return record
        return None

    def _is_told(self, cwd: str, params: Mapping[str, Any]) -> bool:
        """Whether a person knew that this is where it runs: it is the session's directory, or among
        the parameters.
        """
        known = {
            self._real("."),
            *(self._real(value) for value in params.values() if isinstance(value, str)),
        }
        return self._real(cwd) in known

    def _granted(self) -> Iterator[Record]:
        return (record for record in self._records.values() if record.granted and not record.over)

    def _real(self, path: str) -> str:
        return os.path.realpath(self._directory / path) if "\0" not in path else path

    # -- records and events ------------------------------------------------------------------------

    def _record(self, update: Update) -> Record:
        record = self._records.get(update.tool_call_id)
        if record is None or (record.over and isinstance(update, schema.ToolCallStart)):
            record = self._records[update.tool_call_id] = self._new(update.tool_call_id)
        return record

    def _new(self, call_id: str) -> Record:
        thoughts, self._thoughts = self._thoughts, ""
        return Record(usable_id(call_id) or f"acp-{uuid.uuid4()}", reasoning=thoughts.strip())

    def _announce(self, record: Record) -> list[Event]:
        if record.said is not None:
            return []
        record.said = record.call
        return [ToolStarted(record.said)]

    def _close(self, record: Record) -> list[Event]:
        events = self._announce(record)
        record.over = True
        text = self._text(record)
        if record.status == "failed":
            events.append(
                ToolFailed(
                    record.call,
                    text or "The tool failed.",
                    record.fault.code,
                    _details(record.raw_output),
                    record.fault.retries,
                )
            )
        else:
            events.append(
                ToolSucceeded(
                    record.call, ToolOutcome(success=True, content=text, diff=diff_of(record.diffs))
                )
            )
        return events

    def _text(self, record: Record) -> str:
        parts = []
        for part in record.content:
            if isinstance(part, schema.ContentToolCallContent):
                parts.append(text_of(part.content))
            elif isinstance(part, schema.TerminalToolCallContent):
                parts.append(self._terminal(part.terminal_id))
        text = "\n".join(part for part in parts if part) or (
            "" if record.diffs else _readable(record.raw_output)
        )
        return (
            text
            if len(text) <= limits.TOOL_OUTPUT_BYTES
            else f"{text[: limits.TOOL_OUTPUT_BYTES]}\n[cut: {len(text)} characters in all]"
        )


def text_of(block: Any) -> str:
    """A block of content as text; of what is none, what it is."""
    if isinstance(block, schema.TextContentBlock):
        return block.text
    if isinstance(block, schema.ResourceContentBlock):
        return block.uri
    if isinstance(block, schema.EmbeddedResourceContentBlock):
        return getattr(block.resource, "text", "") or f"[{block.resource.uri}]"
    return f"[{getattr(block, 'type', 'content')}]"


def diff_of(diffs: list[schema.FileEditToolCallContent]) -> str | None:
    """The changes as hunks of a unified diff; of several files each under its names."""
    parts = []
    for diff in diffs:
        old, new = diff.old_text or "", diff.new_text
        before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
        if len(old) + len(new) > _DIFF_MAX_CHARS or _pairs(before, after) > _DIFF_MAX_PAIRS:
            continue
        header = f"--- {diff.path}\n+++ {diff.path}\n" if len(diffs) > 1 else ""
        lines = list(difflib.unified_diff(before, after))[2:]
        parts.append(
            header
            + "".join(
                line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
                for line in lines
            )
        )
    return "".join(parts) or None


def _pairs(before: list[str], after: list[str]) -> int:
    """How many pairs of equal lines difflib looks at; it passes over a line that is more than a
    hundredth of a long text.
    """
    counts, most = Counter(after), len(after) // 100 + 1 if len(after) >= 200 else len(after)
    return sum(count for line in before if (count := counts[line]) <= most)


def _name_of(meta: Mapping[str, Any] | None) -> str:
    """The tool's own name, where an agent says it beside the protocol."""
    for holder in (meta, (meta or {}).get("claudeCode")):
        name = holder.get("toolName") if isinstance(holder, dict) else None
        if isinstance(name, str) and 0 < len(name) <= _NAME_MAX_CHARS and name.isprintable():
            return name
    return ""


def _readable(output: Any) -> str:
    if output is None or isinstance(output, str):
        return output or ""
    if isinstance(output, dict):
        for name in ("output", "content", "stdout", "error", "message"):
            if isinstance(output.get(name), str) and output[name]:
                return str(output[name])
    return json.dumps(output, ensure_ascii=False, default=str)


def _details(output: Any) -> ToolErrorDetails:
    said = output if isinstance(output, dict) else {}
    code = next(
        (said[name] for name in ("exit_code", "exitCode") if isinstance(said.get(name), int)), None
    )
    texts = {name: said[name] for name in ("stdout", "stderr") if isinstance(said.get(name), str)}
    return ToolErrorDetails(exit_code=code, **texts)
