"""Assemble an ACP agent's tool calls from updates in any order.

Some agents announce a call, ask, and report; others announce it in parts, or ask without
announcing. So a record is opened by whatever comes first, its parts are merged by ``toolCallId``,
and what is open at the turn's end is closed then.
"""

import os
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from acp import schema

from bridge_project.kernel.text import clean
from bridge_project.protocol.agent_text import for_person
from bridge_project.protocol.risk import paths_in
from sessions_app.agents import events
from sessions_app.agents.acp import content
from sessions_app.agents.acp.record import Record, Update
from sessions_app.agents.diffs import diff_of_texts
from sessions_app.agents.driver import describe_call
from sessions_app.agents.outside import outside
from sessions_app.approvals.tool_call import Call, usable_id
from sessions_app.approvals.tool_result import INTERRUPTED, TOOL_FAILED, Failure, readable

_REASONING_MAX_CHARS = 2000
_PAST_CALLS = 1000
_ENDED = ("completed", "failed")
_NO_RESULT = "The agent reported no result of this call."
_CANCELLED = "The agent has cancelled this call."
_ASKED_AGAIN = "The agent has asked about this call again."


class ToolCalls:
    """Collect one session's tool calls from the agent's updates, and report them."""

    def __init__(
        self, queue: events.EventQueue, directory: Path, withdraw: Callable[[str], None]
    ) -> None:
        self._events = queue
        self._withdraw = withdraw  # the question about a call
        self._directory = directory
        self._records: dict[str, Record] = {}
        self._asked: set[str] = set()  # keys of this turn about which somebody was asked
        self._past: deque[str] = deque(maxlen=_PAST_CALLS)  # ids of earlier turns' calls
        self._thoughts = ""
        self._plan: list[dict[str, str]] = []  # as it was reported last
        self.interrupted = False  # nothing is asked any more until the next turn

    # -- what the agent reports --------------------------------------------------------------------

    def think(self, text: str) -> None:
        """Store the agent's thought, shown as the reasoning of its next call."""
        self._thoughts = (self._thoughts + text)[-_REASONING_MAX_CHARS:]

    def update(self, update: schema.ToolCallStart | schema.ToolCallProgress) -> None:
        """Apply a report about a call; ignore what comes late or after an interrupt."""
        is_new = isinstance(update, schema.ToolCallStart) or self.has(update.tool_call_id)
        if not is_new and (self.interrupted or update.tool_call_id in self._past):
            return
        record = self._record(update)
        if record.over:
            self._report_ran_anyway(record, update.status)
            return
        record.merge(update)
        ended = record.status in _ENDED
        if ended or record.is_known:
            self._announce(record)
        if ended:
            self._report_ran_anyway(record, record.status)
            self._finish(record)

    def has(self, call_id: str) -> bool:
        """Return whether a call of that id is one of this turn's."""
        return call_id in self._records

    def _report_ran_anyway(self, record: Record, status: str | None) -> None:
        """Report a refused call that ran, once it has ended."""
        if record.refused is not None and status in _ENDED:
            if status == "completed":
                self._events.put(events.RanAnyway(record.refused))
            record.refused = None

    def asked_before(self, update: Update) -> Record | None:
        """Return the open call of that id, if somebody was asked about it already."""
        found = self._records.get(update.tool_call_id)
        return found if found is not None and found.asked is not None and not found.over else None

    def ask(self, update: Update) -> Record:
        """Return the record of a call that needs permission, announced or not.

        One that is asked about again is another call, which the first decision does not cover.
        """
        record = self._record(update)
        if record.over:
            record = self._open(update.tool_call_id)
        self._asked.add(record.key)
        record.refused, record.allowed = None, False
        record.merge(update)
        # a person is asked about the call as it is now, whatever was announced
        asked = record.ask(outside(self._directory, record.places()))
        record.announced = record.asked = replace(asked, directory=str(self._directory))
        record.content = []  # what was shown to the person who decides is not the call's result
        return record

    def question(self, call_id: str, describe: Callable[[str], Call]) -> Record:
        """Return the record of a question, which the agent may have announced as a call."""
        record = self._records.get(call_id)
        if record is None or record.over:
            record = self._open(call_id)
        self._asked.add(record.key)
        record.announced = describe(record.key)
        return record

    def plan(self, entries: Sequence[schema.PlanEntry]) -> None:
        """Report the agent's plan, as the list that claude-code writes itself."""
        todos = [{"content": one.content, "status": one.status} for one in entries]
        if todos == self._plan:
            return
        self._plan = todos
        call = describe_call(f"acp-{uuid.uuid4()}", "TodoWrite", {"todos": todos})
        self._events.put(events.ToolStarted(call))
        self._events.put(events.ToolSucceeded(call, readable({"newTodos": todos})))

    def stop(self, record: Record, why: str = _ASKED_AGAIN) -> None:
        """Close the record of a call that will not run, once; ignore its later updates."""
        if not record.over:
            record.over = True
            self._events.put(events.ToolStopped(record.call, why))

    def interrupt(self) -> None:
        """Note that nothing is asked any more."""
        self.interrupted = True

    @property
    def is_open(self) -> bool:
        """Return whether a call has no end yet."""
        return any(not record.over for record in self._records.values())

    def end_turn(self) -> None:
        """Close all calls that the agent left open in this turn."""
        for record in self._records.values():
            if not record.over:
                self._announce(record)
                self.stop(record, INTERRUPTED if self.interrupted else _NO_RESULT)
        self._past.extend(self._records)
        self._records.clear()
        self._asked.clear()
        self._thoughts = ""

    # -- what a call is about ----------------------------------------------------------------------

    def _other_than_shown(self, record: Record) -> str:
        """Return what an approved call has done, as its agent says, if another was shown."""
        if other := record.other_command:
            return other
        if record.asked is None or record.kind in content.CHANGES_NOTHING:
            return ""
        shown = {*map(self._whole, paths_in(record.asked.params))}
        shown |= {*map(self._whole, record.asked_places)}
        return ", ".join(one for one in record.places() if self._whole(one) not in shown)

    def _whole(self, path: str) -> str:
        return os.path.normpath(self._directory / path)

    # -- records and events ------------------------------------------------------------------------

    def _record(self, update: Update) -> Record:
        record = self._records.get(update.tool_call_id)
        refused = record.refused if record is not None else None
        # some report a call as new that they have asked about; another that ends twice has ended
        new = isinstance(update, schema.ToolCallStart) and (refused or update.status not in _ENDED)
        if record is None or (record.over and new):
            record = self._open(update.tool_call_id)
            record.refused = refused
        return record

    def _open(self, call_id: str) -> Record:
        thoughts, self._thoughts = clean(self._thoughts).strip(), ""
        key = usable_id(call_id)
        if key is None or key in self._asked:
            key = f"acp-{uuid.uuid4()}"
        record = Record(key, call_id, reasoning=thoughts)
        self._records[call_id] = record
        return record

    def _announce(self, record: Record) -> None:
        if record.announced is None:
            record.announced = record.call
            self._events.put(events.ToolStarted(record.announced))

    def _finish(self, record: Record) -> None:
        text, details = self._text(record), content.details_of(record.raw_output)
        exited = record.kind == "execute" and details.exit_code  # opencode calls it completed
        failed = record.status == "failed" or exited
        self._withdraw(record.key)
        if failed and (self.interrupted or record.cancelled):
            self.stop(record, INTERRUPTED if self.interrupted else _CANCELLED)
        elif failed:
            why = f"Exit code {details.exit_code}" if details.exit_code else TOOL_FAILED
            self._events.put(events.ToolFailed(record.call, Failure(text or why, details=details)))
        else:
            diff = diff_of_texts(record.changes)
            shown = content.pictures_of(*record.blocks)
            self._events.put(events.ToolSucceeded(record.call, text, diff, pictures=shown))
        if record.allowed and (other := self._other_than_shown(record)):
            self._events.put(events.RanOther(record.call, other))
        record.over = True

    def _text(self, record: Record) -> str:
        text = record.text
        text = text or ("" if record.changes else content.readable(record.raw_output))
        return for_person(text)
