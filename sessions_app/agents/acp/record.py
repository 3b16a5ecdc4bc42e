"""Hold what is known of one of an ACP agent's tool calls, and describe it."""

import uuid
from dataclasses import dataclass, field
from typing import Any

from acp import schema

from sessions_app.agents.acp import content
from sessions_app.agents.acp.grants import Grant, shown_change, unnamed
from sessions_app.agents.diffs import Change
from sessions_app.agents.driver import describe_call
from sessions_app.approvals.tool_call import Call
from sessions_app.approvals.tool_result import Failure

Update = schema.ToolCallStart | schema.ToolCallProgress | schema.ToolCallUpdate


@dataclass(slots=True)
class Record:
    """Hold what is known of one call."""

    key: str
    call_id: str = ""  # the agent's own
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
    asked: Grant | None = None  # what an approval would cover, once somebody was asked
    asked_input: Any = None  # `raw_input` as it was then
    grant: Grant | None = None  # what its approval covers
    refused: Call | None = None  # what a person did not approve, until its result is reported
    wrote: list[Change] = field(default_factory=list)  # what the bridge itself did for it
    over: bool = False  # its result has been reported
    own: bool = False  # the agent has the bridge make it
    # how the bridge failed at what it did for the call, which says more than the agent's `failed`
    failure: Failure | None = None

    def merge(self, update: Update) -> None:
        """Merge an update; fields that it omits or leaves empty keep their value."""
        parts, given = update.content or [], update.raw_input
        diffs = [part for part in parts if isinstance(part, schema.FileEditToolCallContent)]
        changes = [Change(diff.path, diff.old_text or "", diff.new_text) for diff in diffs]
        self.title = update.title or self.title
        self.kind = update.kind or self.kind
        self.name = content.name_of(update.field_meta) or self.name
        self.status = update.status or self.status
        if given not in (None, {}, ""):
            known = self.raw_input.get("cwd") if isinstance(self.raw_input, dict) else None
            if self.kind == "execute" and isinstance(given, dict) and known is not None:
                given = given | {"cwd": given.get("cwd", known)}  # which was reported before
            self.raw_input = given
        self.raw_output = self.raw_output if update.raw_output is None else update.raw_output
        self.changes = changes or self.changes
        if self.changes and self.kind in ("", "other"):
            self.kind = "edit"  # whatever the agent calls it
        self.content = parts or self.content
        self.paths = [location.path for location in update.locations or []] or self.paths

    @property
    def is_known(self) -> bool:
        """Return whether the agent has said what the call does, and not only where."""
        if isinstance(self.raw_input, dict):
            return bool(self.raw_input.keys() - {"cwd"})
        return self.raw_input is not None or self.status == "in_progress"

    @property
    def has_other_command(self) -> bool:
        """Return whether the agent named another command after asking about this one.

        Other parameters may be told in another form: as a difference first, as texts later.
        """
        before, now = (
            content.parameters_of(raw, self.call_id).get("command")
            if isinstance(raw, dict)
            else None
            for raw in (self.asked_input, self.raw_input)
        )
        return before is not None and now not in (None, before)

    @property
    def call(self) -> Call:
        """Return the call as first announced, whatever it is named later."""
        return self.announced or self.describe()

    def describe(self) -> Call:
        """Return the call as it is known by now."""
        params = self._params()
        named = len(self.title) <= content.TOOL_NAME_MAX_CHARS and self.title.isprintable()
        tool = content.TOOL_OF_KIND.get(self.kind) or self.name or (named and self.title) or "Tool"
        # one word is a tool's name or a path, which the parameters say better
        title = self.title if " " in self.title or not params else ""
        risk_tool = content.AS_RISKY_AS.get(tool, tool)
        if isinstance(params.get("command"), str):
            risk_tool = "Bash"
            if self.kind not in content.HAS_NO_COMMAND:
                tool, title = "Bash", ""  # codex calls one that reads "Read a.txt"
        reasons = (self.reasoning, content.reason_of(self.raw_input, self.call_id))
        why = ". ".join(filter(None, reasons)) or None
        return describe_call(
            self.key, tool, params, reasoning=why, description=title, risk_tool=risk_tool
        )

    def _params(self) -> dict[str, Any]:
        """Return the agent's own parameters, else those that its content shows."""
        if (raw := self.raw_input) is not None:
            given = raw if isinstance(raw, dict) else {"input": raw}
            params = content.parameters_of(given, self.call_id)
            # whoever approves a change sees each file that it is about
            harmless = self.kind in content.CHANGES_NOTHING
            return params | ({} if harmless else unnamed(params, self.changes, self.paths))
        if self.changes:
            first, *others = (shown_change(one) for one in self.changes)
            return {**first, "more": others} if others else first
        if self.kind == "execute" and self.title:
            return {"command": self.title}
        if len(self.paths) == 1:
            return {"file_path": self.paths[0]}
        return {"paths": self.paths} if self.paths else {}


def own_record(tool: str, params: dict[str, Any]) -> Record:
    """Return the record of a call that the bridge makes for the agent."""
    key, reasoning = f"bridge-{uuid.uuid4()}", "The agent has the bridge do this."
    return Record(key, announced=describe_call(key, tool, params, reasoning=reasoning), own=True)
