"""Describe a tool call, whatever agent reports it. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bridge_project.protocol.risk import RiskLevel
from bridge_project.protocol.types import now_text

ID_MAX_CHARS = 256
DESCRIPTION_CHARS = 2000
QUESTION = "AskUserQuestion"  # the tool with which claude-code asks the person something
SUMMARY_CHARS = 200
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
# What a person wants to know first of a call, by the names that agents give their parameters.
MAIN_PARAMETERS = (
    *("command", "file_path", "notebook_path", "path", "url"),
    *("query", "pattern", "prompt", "plan", "description"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """Hold a tool call; ``id`` is None when the agent gave no usable one."""

    id: str | None
    tool: str
    params: Mapping[str, Any]
    description: str
    risk_level: RiskLevel = "medium"
    reasoning: str | None = None

    @property
    def digest(self) -> str:
        """Return a digest that is equal for equal calls, in any order of parameters."""
        return hashlib.sha256(_SORTED.encode([self.tool, self.params]).encode()).hexdigest()

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
    """Hold a question of an agent; ``choices``: label → what it means, in order."""

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
        and (choices := _choices(one.get("options")))
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
