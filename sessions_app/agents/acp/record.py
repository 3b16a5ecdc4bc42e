"""Hold what is known of one of an ACP agent's tool calls, and describe it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from acp import schema

from bridge_project.protocol.risk import RiskLevel, paths_in, risk_of
from sessions_app.agents.acp import content, lenient
from sessions_app.agents.acp.shown import shown_change, unnamed
from sessions_app.agents.diffs import Change
from sessions_app.agents.driver import describe_call
from sessions_app.approvals.tool_call import DESCRIPTION_CHARS, DIRECTORIES, Call

_RISKS: tuple[RiskLevel, ...] = get_args(RiskLevel)
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
    cancelled: bool = False  # by the agent itself
    raw_input: Any = None
    raw_output: Any = None
    content: list[Any] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    reasoning: str = ""
    announced: Call | None = None  # as the bridge knows it
    asked: Call | None = None  # as it was shown to a person, once somebody was asked
    asked_places: list[str] = field(default_factory=list)  # its paths as they were then
    allowed: bool = False  # by a person
    refused: Call | None = None  # what a person did not approve, until its result is reported
    over: bool = False  # its result has been reported

    def merge(self, update: Update) -> None:
        """Merge an update; fields that it omits or leaves empty keep their value."""
        parts, given = update.content or [], update.raw_input
        diffs = [part for part in parts if isinstance(part, schema.FileEditToolCallContent)]
        changes = [Change(diff.path, diff.old_text or "", diff.new_text) for diff in diffs]
        self.title = update.title or self.title
        self.kind = update.kind or self.kind
        self.name = content.name_of(update.field_meta) or self.name
        self.status = update.status or self.status
        self.cancelled |= lenient.CANCELLED in (update.field_meta or {})
        if given not in (None, {}, ""):
            known = self.raw_input.get("cwd") if isinstance(self.raw_input, dict) else None
            if self.kind == "execute" and isinstance(given, dict) and known is not None:
                given = given | {"cwd": given.get("cwd", known)}  # which was reported before
            self.raw_input = given
        elif self.raw_input is None and self.status == "pending":
            self.raw_input = content.parameters_in(parts)
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
    def other_command(self) -> str:
        """Return the command that the agent has named since it asked, if that is another.

        Other parameters may be told in another form: as a difference first, as texts later.
        """
        raw = self.raw_input if isinstance(self.raw_input, dict) else {}
        now = content.parameters_of(raw).get("command")
        if self.asked is None or not isinstance(now, str):
            return ""
        shown = [self.asked.description, *strings_in(self.asked.params)]
        before = self.asked.params.get("command")
        return "" if now == before or (before is None and any(now in one for one in shown)) else now

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
                tool, title = "Bash", ""
        why = self.reasoning or None
        return describe_call(
            self.key, tool, params, reasoning=why, description=title, risk_tool=risk_tool
        )

    def ask(self, outside: Iterable[str]) -> Call:
        """Describe it to the person who is asked: with everything that the agent sent.

        The title, and the text of its content, are in the description where the parameters do not
        have them. ``outside``: its paths that lead out of the allowed roots.
        """
        text = self.text.strip()
        call, alone = self.describe(), not self.raw_input and not self.changes
        known = [*strings_in(call.params)]
        beside = [
            one for one in (self.title, text) if one and not any(one in each for each in known)
        ]
        as_commands = {one: risk_of("Bash", {"command": one}) for one in beside}
        risks = [call.risk_level, *(risk_of("Edit", shown_change(one)) for one in self.changes)]
        risks += [
            risk
            for one, risk in as_commands.items()
            # where nothing else says what the call does, either may be what runs
            if risk == "critical" or (alone and text and (one == text or self.kind == "execute"))
        ]
        more = [one for one in beside if one not in call.description]
        if paths := [*outside]:
            more.append(f"Outside the allowed roots: {', '.join(paths)}")
        description = "\n".join([call.description, *more])
        params = call.params
        if len(description) > DESCRIPTION_CHARS:  # what is cut there stands here
            params = {**params, "description_in_full": description}
            description = f"{description[: DESCRIPTION_CHARS - 1]}…"
        risk = max(risks, key=_RISKS.index)
        self.asked = replace(call, params=params, description=description, risk_level=risk)
        self.asked_places = self.places()
        return self.asked

    @property
    def text(self) -> str:
        """Return the texts of its content."""
        return "\n".join(filter(None, map(content.text_of, self.blocks)))

    @property
    def blocks(self) -> list[Any]:
        """Return the blocks of its content."""
        return [
            part.content for part in self.content if isinstance(part, schema.ContentToolCallContent)
        ]

    def places(self) -> list[str]:
        """Return the paths of files and directories that it names, each once."""
        raw = self.raw_input if isinstance(self.raw_input, dict) else {}
        params = content.parameters_of(raw)
        where = [params[name] for name in DIRECTORIES if isinstance(params.get(name), str)]
        changed = (change.path for change in self.changes)
        return [*dict.fromkeys((*paths_in(params), *where, *changed, *self.paths))]

    def _params(self) -> dict[str, Any]:
        """Return the agent's own parameters, else those that its content shows."""
        if (raw := self.raw_input) is not None:
            given = raw if isinstance(raw, dict) else {"input": raw}
            params = content.parameters_of(given)
            # whoever approves a change sees each file that it is about
            paths = () if self.kind in content.CHANGES_NOTHING else self.paths
            return params | unnamed(params, self.changes, paths)
        if self.changes:
            first, *others = (shown_change(one) for one in self.changes)
            return {**first, "more": others} if others else first
        if self.kind == "execute" and self.title:
            return {"command": self.title}
        if len(self.paths) == 1:
            return {"file_path": self.paths[0]}
        return {"paths": self.paths} if self.paths else {}


def strings_in(value: Any) -> Iterator[str]:
    """Yield the texts in a call's parameters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings_in(one)
