"""Describe a tool call, whatever agent reports it. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from bridge_project.protocol.resources import SubAgent
from bridge_project.protocol.risk import RiskLevel
from bridge_project.protocol.types import now_text

ID_MAX_CHARS = 256
AGENT_ID_CHARS = 6  # shown of a subagent's id: several of a type are told apart
DESCRIPTION_CHARS = 2000
QUESTION = "AskUserQuestion"  # the tool with which claude-code asks the person something
PLAN = "ExitPlanMode"
DIALOGS = frozenset({QUESTION, PLAN})  # what a person says goes into their parameters
SUMMARY_CHARS = 200
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
# The names that agents give to where a call runs.
DIRECTORIES = ("cwd", "workdir", "directory", "dir_path", "working_directory")
# What a person wants to know first of a call, by the names that agents give their parameters.
MAIN_PARAMETERS = (
    *("command", "file_path", "notebook_path", "path", "url"),
    *("query", "pattern", "prompt", "plan", "description"),
)


class Agent(NamedTuple):
    """Name the subagent that a call is of; both empty: the session's own agent (D65)."""

    id: str = ""
    type: str = ""

    def wire(self) -> SubAgent | None:
        """Return it as messages name it, None for the session's own agent."""
        return SubAgent(id=self.id, type=self.type) if self.id else None

    def words(self) -> str:
        """Return the words for a person, empty for the session's own agent."""
        id_ = self.id.removeprefix("toolu_")[:AGENT_ID_CHARS]
        return f"subagent {self.type} {id_}" if self.id else ""


MAIN_AGENT: Final = Agent()


@dataclass(frozen=True, slots=True)
class Call:
    """Hold a tool call; ``id`` is None when the agent gave no usable one.

    ``directory``: absolute, where it would run; empty when the agent does not say.
    """

    id: str | None
    tool: str
    params: Mapping[str, Any]
    description: str
    risk_level: RiskLevel = "medium"
    reasoning: str | None = None
    agent: Agent = MAIN_AGENT
    directory: str = ""

    @property
    def digest(self) -> str:
        """Return a digest that an agent's equal calls share, in any order of keys."""
        call = [self.tool, self.params, *([self.agent.id] if self.agent.id else [])]
        return hashlib.sha256(_SORTED.encode(call).encode()).hexdigest()

    def doing(self, since: datetime) -> dict[str, Any]:
        """Return the call as a session's ``doing`` shows it."""
        summary = " ".join(self.description.split())[:SUMMARY_CHARS]
        return {"tool": self.tool[:SUMMARY_CHARS], "summary": summary, "since": now_text(since)}


def usable_id(value: object) -> str | None:
    """Return an agent's id of a call if it can be stored and sent, else None."""
    if not isinstance(value, str) or not 0 < len(value) <= ID_MAX_CHARS:
        return None
    return value if value.isprintable() and value.strip() else None


def describe(tool: str, params: Mapping[str, Any], given: object = None) -> str:
    """Describe in words what the call does; never empty (D37).

    A question is described by its words and choices, another call by the agent's words if it gave
    any, else by its main parameter.
    """
    if questions := questions_of(tool, params):
        return _cut("\n".join(_asked(question) for question in questions))
    if isinstance(given, str) and given.strip():
        return _cut(given.strip())
    name = tool.strip() or "A tool"
    values = (params.get(key) for key in MAIN_PARAMETERS)
    main = next((each for each in values if isinstance(each, str) and each.strip()), "")
    if not main and params:
        main = json.dumps(params, ensure_ascii=False)
    return _cut(f"{name}: {main}" if main else name)


@dataclass(frozen=True, slots=True)
class Question:
    """Hold a question; ``choices``: label → what it means; none: words are the answer."""

    text: str
    choices: Mapping[str, str]
    several: bool


def questions_of(tool: str, params: Mapping[str, Any]) -> list[Question]:
    """Return the questions of a call of AskUserQuestion; none for any other call."""
    asked = params.get("questions") if tool == QUESTION else None
    return [
        Question(one["question"], choices, one.get("multiSelect") is True)
        for one in (asked if isinstance(asked, list) else [])
        if isinstance(one, Mapping)
        and isinstance(one.get("question"), str)
        and ((choices := _choices(one.get("options"))) or one.get("options") == [])
    ]


def _choices(options: object) -> dict[str, str]:
    return {
        option["label"]: str(option.get("description") or "")
        for option in (options if isinstance(options, list) else [])
        if isinstance(option, Mapping) and isinstance(option.get("label"), str)
    }


def _asked(question: Question) -> str:
    how = " (several can be chosen)" if question.several else ""
    lines = [
        f"{number}. {label}" + (f": {means}" if means else "")
        for number, (label, means) in enumerate(question.choices.items(), 1)
    ]
    return "\n".join([question.text + how, *lines])


def _cut(text: str) -> str:
    return text if len(text) <= DESCRIPTION_CHARS else text[: DESCRIPTION_CHARS - 1] + "…"
