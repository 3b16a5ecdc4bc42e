"""Show what codex asks and reports as tool calls (D75). Pure."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from bridge_project.protocol.agent_text import for_person
from bridge_project.protocol.resources import ToolErrorDetails
from bridge_project.protocol.risk import RiskLevel, risk_of
from sessions_app.agents.codex.reading import count, part, parts, text
from sessions_app.agents.diffs import Change, diff_of_texts
from sessions_app.agents.process import shell
from sessions_app.approvals.tool_result import readable

Params = Mapping[str, Any]

_SPLIT_CHARS: Final = 20_000  # of a command; splitting takes time, while everybody waits
_MOVED: Final = "\n\nMoved to: "  # at the end of a difference, in words
# of a question about a command: what it is shown by, and what is its server's own
_KNOWN: Final = frozenset({
    *("kind", "threadId", "turnId", "itemId", "approvalId", "startedAtMs", "environmentId"),
    *("command", "cwd", "commandActions", "reason", "availableDecisions"),
    *("proposedExecpolicyAmendment", "proposedNetworkPolicyAmendments"),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shown:
    """Hold a call as a person sees it; ``places``: the paths that it names."""

    tool: str
    params: Params
    risk: RiskLevel
    places: tuple[str, ...] = field(default=())


def shown(item: Params) -> Shown | None:
    """Return an item as a tool call, None for one that is none."""
    match item.get("type"):
        case "commandExecution":
            return shown_command(item)
        case "fileChange":
            return _files(item)
        case "mcpToolCall":
            return shown_tool(text(item, "server"), text(item, "tool"), part(item, "arguments"))
        case "imageView":
            return _as("Read", {"file_path": text(item, "path")})
        case "webSearch":
            return _as("WebSearch", {"query": text(item, "query")})
        case "collabAgentToolCall":
            given = {"action": text(item, "tool"), "prompt": text(item, "prompt")}
            return _as("Agent", {name: value for name, value in given.items() if value})
    return None


def shown_command(about: Params) -> Shown:
    """Return a command, or a question about one, with all that it says."""
    said = {name: value for name, value in about.items() if value is not None}
    more = {} if "type" in about else {n: v for n, v in said.items() if n not in _KNOWN}
    where = {"cwd": text(about, "cwd")} if text(about, "cwd") else {}
    params = {"command": _script(text(about, "command")), **where, **more}
    return Shown("Bash", params, risk_of("Bash", params), tuple(where.values()))


def _script(command: str) -> str:
    """Return a command's script, without the shell that runs it."""
    if len(command) > _SPLIT_CHARS:
        return command
    try:
        program, *arguments = shlex.split(command)
    except ValueError:
        return command
    script = shell.script(program, arguments)
    return script if script in arguments else command


def shown_tool(server: str, tool: str, params: Params) -> Shown:
    """Return the call of a tool that one of the user's servers has."""
    return _as(f"mcp__{server}__{tool}", params)


def _as(tool: str, params: Params) -> Shown:
    return Shown(tool, params, risk_of(tool, params))


# -- files -----------------------------------------------------------------------------------------


def _files(item: Params) -> Shown:
    changes = parts(item, "changes")
    kinds = {text(part(one, "kind"), "type") for one in changes}
    tool = "Delete" if "delete" in kinds else "Write" if kinds == {"add"} else "Edit"
    first, *others = [*map(_change, changes)] or [{}]
    params = {**first, **({"more": others} if others else {})}
    risks = [risk_of(tool, params), *(risk_of(tool, one) for one in others)]
    return Shown(tool, params, max(risks, key=get_args(RiskLevel).index), tuple(_places(changes)))


def _places(changes: list[dict[str, Any]]) -> Iterator[str]:
    for one in changes:
        yield from filter(None, (text(one, "path"), text(part(one, "kind"), "move_path")))


def _change(change: Params) -> dict[str, Any]:
    kind, path, difference = part(change, "kind"), text(change, "path"), text(change, "diff")
    match text(kind, "type"):
        case "add":
            return {"file_path": path, "content": difference}
        case "delete":
            return {"file_path": path, "old_string": difference, "new_string": ""}
    match _hunks(_difference(change)):
        case [one]:
            edits: dict[str, Any] = one
        case []:  # in no form that the bridge knows
            edits = {"diff": difference} if difference else {}
        case several:
            edits = {"edits": several}
    moved = {"moved_to": to} if (to := text(kind, "move_path")) else {}
    return {"file_path": path, **edits, **moved}


def _difference(change: Params) -> str:
    """Return the difference of a changed file, without what is said below it."""
    to = text(part(change, "kind"), "move_path")
    return text(change, "diff").removesuffix(f"{_MOVED}{to}" if to else "")


def _hunks(difference: str) -> list[dict[str, str]]:
    """Return the texts before and after of each part; none of an unknown form."""
    found: list[dict[str, str]] = []
    for line in difference.splitlines(keepends=True):
        sign = line[0] if line.strip("\r\n") else " "
        text_ = line[1:] if line[0] == sign else line
        if sign == "@":
            found.append({"old_string": "", "new_string": ""})
        elif sign not in " -+\\" or not found:
            return []
        if sign in " -":
            found[-1]["old_string"] += text_
        if sign in " +":
            found[-1]["new_string"] += text_
    return found


def difference_of(item: Params) -> str | None:
    """Return what an item has changed as one difference.

    Each of several stands under its file's name.
    """
    changes, found = parts(item, "changes"), list[str]()
    for one in changes:
        path, content = text(one, "path"), text(one, "diff")
        match text(part(one, "kind"), "type"):
            case "add":
                difference = diff_of_texts([Change(path, "", content)])
            case "delete":
                difference = diff_of_texts([Change(path, content, "")])
            case _:
                difference = _difference(one)
        if difference:
            found += [f"--- {path}\n+++ {path}\n"] if len(changes) > 1 else []
            found.append(difference if difference.endswith("\n") else f"{difference}\n")
    return "".join(found) or None


# -- results ---------------------------------------------------------------------------------------


def result_of(item: Params) -> str:
    """Return what an item has come to, as text."""
    match item.get("type"):
        case "commandExecution":
            return for_person(text(item, "aggregatedOutput"))
        case "mcpToolCall":
            if said := text(part(item, "error"), "message"):
                return said
            blocks = parts(part(item, "result"), "content")
            return for_person("\n".join(text(one, "text") or readable(one) for one in blocks))
    return ""


def details_of(item: Params) -> ToolErrorDetails:
    """Return how an item's command has failed."""
    code, took = item.get("exitCode"), count(item, "durationMs")
    return ToolErrorDetails(
        exit_code=code if isinstance(code, int) else None, execution_time_ms=took
    )
