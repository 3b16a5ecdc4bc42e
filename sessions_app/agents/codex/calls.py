"""Hold the tool calls of one session's codex, from its items and its questions.

An item is told when it begins and when it has ended; in between codex may ask about it. What a
person is asked about is the item as it was told first, and what its question adds.
"""

import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bridge_project.kernel.text import clean
from sessions_app.agents import events
from sessions_app.agents.codex import changes
from sessions_app.agents.codex.changes import Shown
from sessions_app.agents.codex.reading import count, part, parts, text
from sessions_app.agents.driver import (
    NOT_ASKED,
    REJECTED,
    SECRET_WORDS,
    PendingApprovals,
    Verdict,
    describe_call,
)
from sessions_app.agents.outside import outside
from sessions_app.approvals.tool_call import Agent, Call, usable_id
from sessions_app.approvals.tool_result import INTERRUPTED, TOOL_FAILED, Failure, readable

REASONING_CHARS: Final = 2000  # kept of the thoughts before a call
CHANGED: Final = (
    "The call was not run as it was asked for: the agent is told which parameters it should have."
)
_CHANGED_MEANWHILE: Final = (
    "The agent changed the call while its question waited, so it was rejected."
)
_NO_RESULT: Final = "The agent reported no result of this call."
_STILL_RUNS: Final = "The command had no result by the end of the turn."
_PAST_CALLS: Final = 1000
INPUT: Final = "TerminalInput"  # what is typed into a command that runs

Item = Mapping[str, Any]
_Key = tuple[str, str]  # ids of the thread and the item


@dataclass(slots=True)
class _Open:
    """Hold a call that has no end yet; ``refused``: why it does not run."""

    call: Call
    item: Item  # as it was told last
    asked: Shown | None = None  # as a person sees it
    refused: str = ""


class Calls:
    """Report the items of one session's threads as calls, and ask about them.

    ``agent_of`` returns the subagent whose thread that is.
    """

    def __init__(
        self,
        queue: events.EventQueue,
        approvals: PendingApprovals,
        agent_of: Callable[[str], Agent],
    ) -> None:
        self._events, self._approvals, self._agent_of = queue, approvals, agent_of
        self.directory = Path()
        self.interrupted = False  # nothing is asked any more until the next turn
        self._open: dict[_Key, _Open] = {}
        self._ids: set[str] = set()  # of calls, of this session
        self._past: deque[_Key] = deque(maxlen=_PAST_CALLS)
        self._allowed: set[_Key] = set()  # commands into which something may be typed, once
        self._thoughts = ""
        self._plan: list[dict[str, str]] = []  # as it was reported last

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    # -- what codex reports ------------------------------------------------------------------------

    def think(self, words: str) -> None:
        """Keep a thought, shown as the reasoning of the next call."""
        self._thoughts = (self._thoughts + words)[-REASONING_CHARS:]

    def begin(self, thread: str, item: Item) -> None:
        """Report an item that begins, if it is a call."""
        key, seen = (thread, text(item, "id")), changes.shown(item)
        if seen is not None and key not in self._open:
            if key in self._past:  # another call, for which the model has chosen the same id
                self._past.remove(key)
            call = self._describe(thread, text(item, "id"), seen)
            self._open[key] = _Open(call, item)
            self._events.put(events.ToolStarted(call))

    def update(self, thread: str, item_id: str, more: Item) -> None:
        """Take what is told of an item that has begun."""
        if (found := self._open.get((thread, item_id))) is not None:
            found.item = {**found.item, **more}

    def end(self, thread: str, item: Item) -> None:
        """Report the end of an item, announced or not."""
        key = thread, text(item, "id")
        if key not in self._open and key in self._past:  # told at the end of its turn
            return
        self.begin(thread, item)
        if (found := self._open.pop(key, None)) is None:
            return
        self._past.append(key)
        self._approvals.withdraw(found.call.id or "")
        status, call = item.get("status"), found.call
        ran = status == "completed" or (status == "failed" and item.get("exitCode") is not None)
        if found.refused and ran:
            self._events.put(events.RanAnyway(call))
        duration = count(item, "durationMs")
        if found.refused or status == "declined":
            why = found.refused or REJECTED
            self._events.put(events.ToolStopped(call, why, duration))
        elif status == "failed" and self.interrupted:
            self._events.put(events.ToolStopped(call, INTERRUPTED, duration))
        elif status == "failed":
            self._fail(call, item)
        else:
            result, diff = changes.result_of(item), changes.difference_of(item)
            self._events.put(events.ToolSucceeded(call, result, diff, duration_ms=duration))
        if found.asked is not None and not found.refused and (other := _other(found.asked, item)):
            self._events.put(events.RanOther(call, other))

    def _fail(self, call: Call, item: Item) -> None:
        details = changes.details_of(item)
        code = f"Exit code {details.exit_code}" if details.exit_code is not None else TOOL_FAILED
        why = Failure(changes.result_of(item) or code, details=details)
        self._events.put(events.ToolFailed(call, why))

    def plan(self, steps: list[dict[str, Any]]) -> None:
        """Report codex's plan, as the list that claude-code writes itself."""
        names = {"inProgress": "in_progress"}
        todos = [
            {"content": text(one, "step"), "status": names.get(status, status)}
            for one in steps
            if (status := text(one, "status"))
        ]
        if todos == self._plan:
            return
        self._plan = todos
        call = describe_call(self._new_id(""), "TodoWrite", {"todos": todos})
        self._events.put(events.ToolStarted(call))
        self._events.put(events.ToolSucceeded(call, readable({"newTodos": todos})))

    def allow_typing(self, thread: str, item_id: str) -> None:
        """Note that a person has seen what codex will type into a command."""
        self._allowed.add((thread, item_id))

    def type(self, thread: str, item_id: str, words: str) -> None:
        """Report what codex has typed into a command that runs, if it did not ask."""
        allowed = (thread, item_id) in self._allowed
        self._allowed.discard((thread, item_id))
        if allowed or not words:  # without words it only waits
            return
        running = self._open.get((thread, item_id))
        into = running.call.params if running is not None else {}
        params = {"input": words, "into": text(into, "command")}
        call = describe_call(self._new_id(""), INPUT, params)
        call = replace(call, agent=self._agent_of(thread))
        self._events.put(events.ToolStarted(call))
        self._events.put(events.ToolSucceeded(call))

    def end_turn(self, thread: str) -> None:
        """Close the calls of a thread whose turn has ended."""
        for key in [key for key in self._open if key[0] == thread]:
            self._stop(key)
        self._thoughts = ""

    def close_all(self) -> None:
        for key in tuple(self._open):
            self._stop(key)

    def _stop(self, key: _Key) -> None:
        found = self._open.pop(key)
        self._past.append(key)
        self._approvals.withdraw(found.call.id or "")
        left = _STILL_RUNS if found.item.get("type") == "commandExecution" else _NO_RESULT
        why = found.refused or (INTERRUPTED if self.interrupted else left)
        self._events.put(events.ToolStopped(found.call, why))

    # -- what codex asks ---------------------------------------------------------------------------

    def item(self, thread: str, item_id: str) -> Item:
        """Return an item that has begun and not ended, an empty one for any other."""
        found = self._open.get((thread, item_id))
        return found.item if found is not None else {}

    def find(self, thread: str, seen: Shown) -> str:
        """Return the id of an item that has begun and looks like this, "" without one."""
        for (of, item_id), found in self._open.items():
            if of == thread and not found.asked and changes.shown(found.item) == seen:
                return item_id
        return ""

    async def ask(self, thread: str, item_id: str, seen: Shown, why: str) -> Verdict | None:
        """Ask a person about an item; None when nobody decides any more.

        One that was not told, or that was asked about already, is a call of its own, whose end is
        its decision.
        """
        key = thread, item_id
        found = self._open.get(key)
        alone = found is None or found.asked is not None
        if found is None or alone:
            key = thread, self._new_id("")
            found = self._open[key] = _Open(self._describe(thread, "", seen), {})
        found.call = self._as_asked(found.call, seen, why)
        found.asked = seen
        verdict = None if self.interrupted else await self._decision(key, found)
        if alone and self._open.pop(key, None) is not None:
            self._conclude_alone(found, verdict)
        return verdict

    async def _decision(self, key: _Key, found: _Open) -> Verdict | None:
        verdict = await self._approvals.ask(found.call)
        if verdict is not None and self.interrupted:  # between the decision and here
            verdict = Verdict("rejected", reason=INTERRUPTED)
        if verdict is not None and found.asked and _other(found.asked, found.item):
            verdict = Verdict("rejected", reason=_CHANGED_MEANWHILE)
        if self._open.get(key) is not found:  # it has ended meanwhile
            return None
        if verdict is not None and verdict.decision != "approved":
            found.refused = (
                CHANGED if verdict.decision == "modified" else verdict.reason or REJECTED
            )
        return verdict

    def _conclude_alone(self, found: _Open, verdict: Verdict | None) -> None:
        if verdict is not None and verdict.decision == "approved":
            self._events.put(events.ToolSucceeded(found.call))
        else:
            self._events.put(events.ToolStopped(found.call, found.refused or INTERRUPTED))

    def _as_asked(self, call: Call, seen: Shown, why: str) -> Call:
        """Describe a call with all that a person must know to decide."""
        places = outside(self.directory, seen.places)
        reasons = ". ".join(filter(None, (call.reasoning, clean(why).strip()))) or None
        about = describe_call(call.id or "", seen.tool, seen.params, reasoning=reasons)
        lines = [about.description]
        lines += [f"Outside the allowed roots: {', '.join(places)}"] if places else []
        return replace(
            call,
            tool=seen.tool,
            params=seen.params,
            reasoning=reasons,
            description="\n".join(lines),
            risk_level=seen.risk,
            directory=str(self.directory),
        )

    async def ask_questions(
        self, thread: str, params: Mapping[str, Any], item_id: str
    ) -> Verdict | None:
        """Ask a person codex's own questions; the answers are the verdict's modifications."""
        if self.interrupted:
            return None
        seen = Shown("AskUserQuestion", params, "low")
        key = thread, item_id or self._new_id("")
        self._open[key] = found = _Open(self._describe(thread, item_id, seen), {})
        verdict = await self._approvals.ask(found.call)
        if self._open.pop(key, None) is None or verdict is None or self.interrupted:
            return None
        if verdict.decision == "rejected":
            self._events.put(events.ToolStopped(found.call, verdict.reason or REJECTED))
        else:
            answers = (verdict.modifications or {}).get("answers")
            self._events.put(
                events.ToolSucceeded(found.call, readable({**params, "answers": answers}))
            )
        return verdict

    def refuse(self, thread: str, tool: str, params: Item, about: str, why: str) -> None:
        """Show what codex asks and the bridge refuses by itself."""
        call = describe_call(self._new_id(""), tool, params, description=about)
        call = replace(call, agent=self._agent_of(thread))
        self._events.put(events.ToolStarted(call))
        self._events.put(events.ToolStopped(call, why))

    def _describe(self, thread: str, item_id: str, seen: Shown) -> Call:
        thoughts, self._thoughts = clean(self._thoughts).strip(), ""
        call = describe_call(
            self._new_id(item_id), seen.tool, seen.params, reasoning=thoughts or None
        )
        return replace(call, risk_level=seen.risk, agent=self._agent_of(thread))

    def _new_id(self, item_id: str) -> str:
        """Return an id of a call; the model chooses an item's, and may choose one twice."""
        id_ = usable_id(item_id)
        if id_ is None or id_ in self._ids:
            id_ = f"codex-{uuid.uuid4()}"
        self._ids.add(id_)
        return id_


def wants_told(verdict: Verdict) -> bool:
    """Return whether codex is told more about a decision than its answer says."""
    return verdict.decision == "modified" or verdict.reason not in ("", NOT_ASKED, INTERRUPTED)


def _other(asked: Shown, item: Item) -> str:
    """Return what an approved item has done, if that is not what was shown."""
    now = changes.shown(item)
    if now is None or now.tool != asked.tool:
        return ""
    # a question may leave out where its command runs, and says more than its item
    known = now.params.keys() & asked.params.keys() if now.tool == "Bash" else now.params.keys()
    differs = any(asked.params.get(name) != now.params[name] for name in known)
    return describe_call("", now.tool, now.params).description if differs else ""


def questions_in(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return codex's questions, in their order, as AskUserQuestion has them."""
    found: list[dict[str, Any]] = []
    known = set[str]()
    for one in parts(params, "questions"):
        question = text(one, "question") or text(one, "header") or "The agent asks you."
        question = question if question not in known else f"{question} ({text(one, 'id')})"
        known.add(question)
        question += f"\n{SECRET_WORDS}" if one.get("isSecret") is True else ""
        choices = [
            {"label": text(option, "label"), "description": text(option, "description")}
            for option in parts(one, "options")
        ]
        asked = {"question": question, "header": text(one, "header"), "options": choices}
        closed = {"closed": True} if choices and one.get("isOther") is not True else {}
        found.append({**asked, "multiSelect": False, **closed})
    return found


def command_shown(params: Mapping[str, Any]) -> Shown:
    """Return what a question about a command, or about what is typed into one, shows."""
    seen = changes.shown_command(params)
    if params.get("kind") != "writeStdin":
        return seen
    return replace(seen, tool=INPUT, risk="high")


def permissions_shown(params: Mapping[str, Any]) -> tuple[Shown, dict[str, Any]]:
    """Return what a question about permissions shows, and what is granted by a yes."""
    wanted = {n: value for n, value in part(params, "permissions").items() if value is not None}
    where = text(params, "cwd")
    return Shown("Permissions", {"for this turn": wanted, "cwd": where}, "high", (where,)), wanted
