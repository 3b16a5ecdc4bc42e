"""Assemble an ACP agent's tool calls from updates in any order.

Some agents announce a call, ask, and report; others announce it in parts, or ask without
announcing. So a record is opened by whatever comes first, its parts are merged by ``toolCallId``,
and what is open at the turn's end is closed then.
"""

import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from acp import schema

from bridge_project.kernel import limits, threads
from bridge_project.protocol.agent_text import for_person
from bridge_project.protocol.risk import PATH_MAX_CHARS
from sessions_app.agents import events
from sessions_app.agents.acp import content
from sessions_app.agents.acp.grants import grant_of
from sessions_app.agents.acp.record import Record, Update
from sessions_app.agents.diffs import diff_of_texts
from sessions_app.approvals.tool_call import usable_id
from sessions_app.approvals.tool_result import INTERRUPTED, TOOL_FAILED, Failure

_REASONING_MAX_CHARS = 2000
_PAST_CALLS = 1000
_ENDED = ("completed", "failed")
_NO_RESULT = "The agent reported no result of this call."
_NOT_AWAITED = "The agent's turn ended before anybody decided."
_ASKED_AGAIN = "The agent has asked about this call again."


class ToolCalls:
    """Collect one session's tool calls from the agent's updates, and report them."""

    def __init__(
        self, queue: events.EventQueue, directory: Path, terminal_text: Callable[[str], str]
    ) -> None:
        self._events = queue
        self._directory = directory
        self._terminal_text = terminal_text
        self._records: dict[str, Record] = {}
        self._asked: set[str] = set()  # keys of this turn about which somebody was asked
        self._past: deque[str] = deque(maxlen=_PAST_CALLS)  # ids of earlier turns' calls
        self._thoughts = ""
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
        record.refused = None
        record.merge(update)
        record.content = []  # what was shown to the person who decides is not the call's result
        # a person is asked about the call as it is now, whatever was announced
        record.announced = record.describe()
        writes = record.kind == "edit"
        record.asked_input = record.raw_input
        # however many paths it has, everything waits for one moment
        resolve = cache(partial(self.real, until=time.monotonic() + limits.REAL_PATH_SECONDS))
        record.asked = grant_of(record.announced, record.changes, resolve, writes=writes)
        return record

    def stop(self, record: Record, why: str = _ASKED_AGAIN) -> None:
        """Close the record of a call that will not run, once; ignore its later updates."""
        if not record.over:
            record.over = True
            self._events.put(events.ToolStopped(record.call, why))

    @contextmanager
    def waiting(self, record: Record) -> Iterator[None]:
        """List a waiting call of the bridge's own, so that it ends with the turn."""
        self._records[record.key] = record
        try:
            yield
        finally:
            self._records.pop(record.key, None)

    def interrupt(self) -> None:
        """Invalidate all approvals given so far."""
        self.interrupted = True
        for record in self._records.values():
            record.grant = None

    def end_turn(self) -> None:
        """Close all calls that the agent left open in this turn."""
        for record in self._records.values():
            if not record.over:
                self._announce(record)
                no_result = _NOT_AWAITED if record.own else _NO_RESULT
                self.stop(record, INTERRUPTED if self.interrupted else no_result)
        self._past.extend(self._records)
        self._records.clear()
        self._asked.clear()
        self._thoughts = ""

    # -- what an approval covers -------------------------------------------------------------------

    def granted(self) -> list[Record]:
        """Return the approved calls that run."""
        return [one for one in self._records.values() if one.grant and not one.over]

    def granting_command(
        self, shown: str, inner: str, real: str, variables: Mapping[str, str]
    ) -> Record | None:
        """Return the call whose approval permits this command, and use that approval up.

        The command is meant by itself (``shown``) or as what a shell is given (``inner``), in the
        directory ``real``.
        """
        for record in self.granted():
            if record.grant and record.grant.covers_command(shown, inner, real, variables):
                record.grant = None
                return record
        return None

    def real(self, path: str, until: float | None = None) -> str:
        """Return where a path leads now; what was approved is done there and nowhere else.

        With a NUL, as no path has it, when its disk does not answer.
        """
        if "\0" in path or len(path) > PATH_MAX_CHARS:
            return path
        seconds = limits.REAL_PATH_SECONDS if until is None else until - time.monotonic()
        if seconds <= 0:
            return f"{path}\0"
        found = threads.paths.begin(os.path.realpath, self._directory / path)
        try:
            return found.result(seconds)
        except TimeoutError:
            found.cancel()
            return f"{path}\0"

    # -- records and events ------------------------------------------------------------------------

    def _record(self, update: Update) -> Record:
        record = self._records.get(update.tool_call_id)
        if record is None or (record.over and isinstance(update, schema.ToolCallStart)):
            # codex reports a call as new that it has asked about
            refused = record.refused if record is not None else None
            record = self._open(update.tool_call_id)
            record.refused = refused
        return record

    def _open(self, call_id: str) -> Record:
        thoughts, self._thoughts = self._thoughts.strip(), ""
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
        if failed and self.interrupted:
            self.stop(record, INTERRUPTED)
        elif failed:
            known = record.failure or Failure(TOOL_FAILED)
            if details.exit_code is None:
                details.exit_code = known.details.exit_code
            why = f"Exit code {details.exit_code}" if details.exit_code else TOOL_FAILED
            failure = replace(known, message=text or why, details=details)
            self._events.put(events.ToolFailed(record.call, failure))
        else:
            # an agent may have written the file itself before the bridge did
            wrote = [change for change in record.wrote if change.old != change.new]
            diff = diff_of_texts(wrote or record.changes)
            self._events.put(events.ToolSucceeded(record.call, text, diff))
        record.over = True

    def _text(self, record: Record) -> str:
        parts = []
        for part in record.content:
            if isinstance(part, schema.ContentToolCallContent):
                parts.append(content.text_of(part.content))
            elif isinstance(part, schema.TerminalToolCallContent):
                parts.append(self._terminal_text(part.terminal_id))
        text = "\n".join(part for part in parts if part)
        text = text or ("" if record.changes else content.readable(record.raw_output))
        return for_person(text)
