"""Ask a person what an ACP agent asks by a form (``elicitation/create``).

A form's field is a question of ``AskUserQuestion``; one that the bridge does not know is answered
in words. The answers go to the agent as the fields' values, and are never checked here: that is the
agent's, as it is its own form.
"""

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from acp import schema

from sessions_app.agents.acp.tool_calls import ToolCalls
from sessions_app.agents.driver import (
    REJECTED,
    SECRET_WORDS,
    PendingApprovals,
    Verdict,
    describe_call,
)
from sessions_app.agents.events import EventQueue, ToolStarted, ToolStopped, ToolSucceeded
from sessions_app.approvals.tool_call import QUESTION
from sessions_app.approvals.tool_result import readable

_CUSTOM = "_custom"  # claude-agent-acp: the field of an answer in other words
_YES_NO = {"Yes": True, "No": False}
_SECRET = re.compile(
    r"pass(?:w|phrase)|secret|token|credential|(?:api|private).?key", re.IGNORECASE
)
_URL_WORDS = "It asks for a web address."
_NO_LINKS = (
    "The agent asks you to open a web address, which the bridge cannot do for it; it was declined."
)


@dataclass(slots=True)
class _Field:
    """Hold one field of a form.

    ``choices``: label → value; ``means``: label → what it means; ``custom``: the field that takes
    other words than these.
    """

    name: str
    given: Any
    optional: bool
    question: str = ""
    choices: dict[str, Any] = field(default_factory=dict)
    means: dict[str, str] = field(default_factory=dict)
    several: bool = False
    custom: str = ""

    def asked(self) -> dict[str, Any]:
        """Return the field as a question of ``AskUserQuestion``."""
        options = [
            {"label": label, "description": self.means.get(label, "")} for label in self.choices
        ]
        more = {"optional": True} if self.optional else {}
        more |= {"closed": True} if self.choices and not self.custom else {}
        return {
            "question": self.question,
            "header": getattr(self.given, "title", None) or self.name,
            "options": options,
            "multiSelect": self.several,
            **more,
        }

    def values(self, answer: str) -> Iterator[tuple[str, Any]]:
        """Yield the fields and values that an answer sets."""
        if not self.choices:
            value = _number(answer, self.given)
            if value is not None:
                yield self.name, value
            return
        chosen, words = [], answer
        while label := self._first_label(words):
            chosen.append(self.choices[label])
            words = words.removeprefix(label).removeprefix(", ")
            if not self.several:
                break
        if chosen:
            yield self.name, chosen if self.several else chosen[0]
        if words.strip() and self.custom:
            yield self.custom, words.strip()

    def _first_label(self, words: str) -> str:
        fits = (label for label in self.choices if words == label or words.startswith(f"{label}, "))
        return max(fits, key=len, default="")


class Questions:
    """Ask what one session's agent asks by forms."""

    def __init__(self, approvals: PendingApprovals, calls: ToolCalls, events: EventQueue) -> None:
        self._approvals = approvals
        self._calls = calls
        self._events = events

    async def answer(self, message: str, mode: Any) -> Any:
        """Answer a form as a person does; one that nobody answers any more is cancelled."""
        if self._calls.interrupted:
            return schema.CancelElicitationResponse(action="cancel")
        of_call = getattr(mode, "tool_call_id", None)
        call_id = of_call or f"form-{uuid.uuid4()}"
        form = getattr(mode, "requested_schema", None)
        if not isinstance(form, schema.ElicitationSchema):
            return self._decline(call_id, message, mode)
        fields = _fields_of(message, form)
        params = {"questions": [one.asked() for one in fields]}
        record = self._calls.question(call_id, lambda key: describe_call(key, QUESTION, params))
        verdict = await self._approvals.ask(record.call)
        if record.over or verdict is None or self._calls.interrupted:
            return schema.CancelElicitationResponse(action="cancel")
        if verdict.decision == "rejected":
            self._calls.stop(record, verdict.reason or REJECTED)
            return schema.DeclineElicitationResponse(action="decline")
        answers = _answers(verdict)
        if of_call is None:  # else the agent reports its result
            text = readable({**params, "answers": answers})
            record.over = True
            self._events.put(ToolSucceeded(record.call, text))
        values = (one.values(answers[one.question]) for one in fields if one.question in answers)
        content = {name: value for each in values for name, value in each if name}
        return schema.AcceptElicitationResponse(action="accept", content=content)

    def _decline(self, call_id: str, message: str, mode: Any) -> Any:
        """Show what the bridge cannot ask, such as that a web address be opened."""
        params = {"url": str(url)} if (url := getattr(mode, "url", None)) else {}
        call = describe_call(f"acp-{uuid.uuid4()}", QUESTION, params, description=message)
        self._events.put(ToolStarted(call))
        self._events.put(ToolStopped(call, _NO_LINKS))
        return schema.DeclineElicitationResponse(action="decline")


def _answers(verdict: Verdict) -> dict[str, str]:
    """Return the answers to the questions; without one the agent gets no value."""
    given = (verdict.modifications or {}).get("answers")
    return {
        question: ", ".join(map(str, answer)) if isinstance(answer, list) else str(answer)
        for question, answer in (given.items() if isinstance(given, Mapping) else ())
        if answer not in (None, "", [])
    }


def _fields_of(message: str, form: schema.ElicitationSchema) -> list[_Field]:
    """Return a form's fields; the words with which it is asked stand in the first."""
    required, found = set(form.required or ()), list[_Field]()
    for name, given in (form.properties or {}).items():
        before = found[-1] if found else None
        if before is not None and before.choices and name == before.name + _CUSTOM:
            before.custom = name
            continue
        found.append(one := _Field(name, given, name not in required))
        _take_choices(one)
    known = set[str]()
    if not found:  # it is to be agreed to, or not
        found.append(_Field("", None, optional=False, choices={"OK": True}))
    for one in found:
        lines = [message] if not known else []
        if len(found) > 1 or not message:
            lines.append(_label(one))
        question = "\n".join([*filter(None, lines), *_warnings(one)]) or "The agent asks you."
        one.question = question if question not in known else f"{question} ({one.name})"
        known.add(one.question)
    return found


def _label(one: _Field) -> str:
    title, about = (getattr(one.given, name, None) for name in ("title", "description"))
    return ": ".join(dict.fromkeys(filter(None, (title, about)))) or one.name


def _warnings(one: _Field) -> Iterator[str]:
    """Yield what a person must know of a field before answering it."""
    given = one.given
    if isinstance(given, schema.ElicitationOtherPropertySchema):
        known = given.model_dump(mode="json", exclude={"title", "description"})
        yield f"The bridge does not know this kind of field: {json.dumps(known)}"
    words = f"{one.name} {getattr(given, 'title', None)} {getattr(given, 'format', None)}"
    if not one.choices and _SECRET.search(words):
        yield SECRET_WORDS
    if getattr(given, "format", None) in ("uri", "url"):
        yield _URL_WORDS


def _take_choices(one: _Field) -> None:
    """Note what can be chosen for a field; equal names are told apart by their values."""
    given: Any = one.given
    options: list[Any] = []
    match given:
        case schema.ElicitationBooleanPropertySchema():
            one.choices = dict(_YES_NO)
        case schema.ElicitationStringPropertySchema():
            options = [*(given.one_of or given.enum or ())]
        case schema.ElicitationMultiSelectPropertySchema():
            one.several = True
            items: Any = given.items
            options = getattr(items, "any_of", None) or getattr(items, "enum", None) or []
    for option in options:
        value = option if isinstance(option, str) else option.const
        label = (value if isinstance(option, str) else option.title) or value
        label = label.strip() or "(empty)"
        label = f"{label} ({value})" if label in one.choices else label
        one.choices[label] = value
        one.means[label] = getattr(option, "description", None) or ""


def _number(answer: str, given: Any) -> Any:
    """Return an answer in the kind that its field has; None for what is no number."""
    kind: type[int | float | str] = str
    if isinstance(given, schema.ElicitationIntegerPropertySchema):
        kind = int
    elif isinstance(given, schema.ElicitationNumberPropertySchema):
        kind = float
    try:
        return kind(answer)
    except ValueError:
        return None
